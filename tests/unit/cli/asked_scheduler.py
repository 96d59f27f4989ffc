"""A scheduler's read API on loopback, in the test's own loop, with the lab's API server behind it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.unit.kube.certificates import Authority
from tests.unit.kube.servers import port_of_nobody
from tests.unit.scheduler.extender_world import World, replica, server

from purser.core.state import StateReplica
from purser.lab.apiserver import User
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.read_api import (
    AccessControl,
    NodePage,
    ObjectPage,
    RolloutPage,
    SharedReads,
    StatePage,
    WhyPage,
    read_api_app,
)
from purser.telemetry import listening


class AskedScheduler(NamedTuple):
    """A replica, and how commands ask it: as jane, who may read all."""

    world: World
    authority: Authority
    folder: Path
    port: int
    places_pods: bool

    @property
    def options(self) -> Sequence[str]:
        """Of commands."""
        url = f"https://127.0.0.1:{self.port}"
        return (
            f"--scheduler={url}",
            f"--token-file={self.folder / 'token'}",
            f"--certificate-authority={self.folder / 'ca.crt'}",
        )

    @asynccontextmanager
    async def restarted(self) -> AsyncIterator[None]:
        """The read API again, at the same port."""
        async with _serving(self.world, self.authority, self.folder, self.port, self.places_pods):
            yield


@asynccontextmanager
async def asked_scheduler(folder: Path, *, places_pods: bool = True) -> AsyncIterator[AskedScheduler]:
    """A replica with its read API."""
    async with _replica(folder) as (world, authority), _serving(world, authority, folder, 0, places_pods) as port:
        yield AskedScheduler(world, authority, folder, port, places_pods)


@asynccontextmanager
async def scheduler_to_ask(folder: Path, *, places_pods: bool = True) -> AsyncIterator[AskedScheduler]:
    """The same before its read API starts: nobody listens at its port."""
    with port_of_nobody() as port:
        async with _replica(folder) as (world, authority):
            yield AskedScheduler(world, authority, folder, port, places_pods)


@asynccontextmanager
async def _replica(folder: Path) -> AsyncIterator[tuple[World, Authority]]:
    authority = Authority()
    (folder / "ca.crt").write_bytes(authority.pem)
    (folder / "token").write_text("viewer")
    async with server() as api, replica(api) as world:
        api.add_user("viewer", User("jane"))
        world.extender.attach(world.pods)
        yield world, authority


@asynccontextmanager
async def _serving(
    world: World, authority: Authority, folder: Path, port: int, places_pods: bool
) -> AsyncIterator[int]:
    client, cache, clock, extender = world.client, world.cache, world.clock, world.extender
    reads = SharedReads(clock)
    told = StateReplica("pod-1", places_pods, "pod-1")
    app = read_api_app(
        AccessControl(client, clock),
        StatePage(cache, extender.pending, lambda: told, clock),
        NodePage(cache),
        ObjectPage(client, cache, reads),
        WhyPage(client, cache, extender.pending, extender.searches.search, lambda: places_pods, reads),
        RolloutPage(client, lambda: (), clock),
        SchedulerMetrics(),
    )
    tls = authority.server_context(folder, "localhost", ip="127.0.0.1")
    async with listening(app, "127.0.0.1", port, tls) as port:
        yield port
