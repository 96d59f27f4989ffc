"""`purser web`: the fleet as web pages, on this machine."""

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purser.cli.options import Context, Kubeconfig
from purser.cli.output import MISUSED, fail
from purser.cli.read_api import SchedulerCa, SchedulerTokenFile, SchedulerUrl, read_api_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable

    from purser.kube import Client
    from purser.top.asking import ReadApi
    from purser.top.source import StateSource
    from purser.web import Feed

HELP = """Show the cluster's GPUs, who holds them, and what waits and why, as web pages that update live.

The pages are served on this machine only: open the printed address in a browser. To see them from another machine,
forward the port, for example with ssh -L. Press Ctrl-C to stop.

The command only reads the cluster and only needs the right to list and watch pods and nodes. It also works in clusters
that do not use Purser's scheduler. With --scheduler, the command queries the read API of Purser's scheduler instead
(docs/read-api.md). If you add --namespace, the right to list the pods in that namespace is enough.

Exit code: 0 you stopped it; 1 the cluster did not answer, or the port is taken; 2 wrong usage, such as a kubeconfig
that cannot be used.

Example: purser web

Example: purser web --port 0 --context prod
"""

DEFAULT_PORT = 8480


def web(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    port: Annotated[int, typer.Option(help="Port of the pages. 0 picks a free port.", min=0, max=65535)] = DEFAULT_PORT,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="With --scheduler: show only this namespace's pods."),
    ] = None,
    scheduler: SchedulerUrl = None,
    token_file: SchedulerTokenFile = None,
    certificate_authority: SchedulerCa = None,
) -> None:
    """Serve the pages until stopped."""
    api = read_api_of(scheduler, token_file, certificate_authority, namespace)
    if api is None and namespace is not None:
        fail("--namespace requires --scheduler", MISUSED)
    if api is not None and (kubeconfig is not None or context is not None):
        fail("--scheduler cannot be used with --kubeconfig or --context", MISUSED)
    from purser.cli.kernels import choose_kernels
    from purser.cli.serving import LogLevel, configure_logs, serve

    configure_logs(LogLevel.WARNING)
    choose_kernels("numpy")  # importing numba takes longer than it saves
    serve(_serving(kubeconfig, context, api, port))


def _serving(
    kubeconfig: Path | None, context: str | None, api: "ReadApi | None", port: int
) -> "Callable[[asyncio.Event], Awaitable[None]]":
    async def main(stop: "asyncio.Event") -> None:
        from purser.kube import Client, ClusterConfig, SystemClock
        from purser.top.asking import AskedScheduler, StateReader

        if api is not None:
            async with StateReader(api) as reader:
                await _serve(AskedScheduler(reader, api, SystemClock()), port, stop)
            return
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            await _serve(_followed(client), port, stop)

    return main


async def _serve(source: "StateSource", port: int, stop: "asyncio.Event") -> None:
    from purser.kube import SystemClock
    from purser.kube.racing import until
    from purser.web import Feed, serving_pages

    clock = SystemClock()
    feed = Feed(source, clock)
    async with serving_pages(feed, clock, port) as url:
        print(f"The pages are at {url} (press Ctrl-C to stop)", flush=True)
        await until(feed.run(), stop.wait())


@asynccontextmanager
async def pages_of(client: "Client") -> "AsyncIterator[str]":
    """The pages of a cluster on a free port while the context lasts, and their address."""
    import asyncio

    from purser.kube import SystemClock
    from purser.web import Feed, serving_pages

    clock = SystemClock()
    feed = Feed(_followed(client), clock)
    following = asyncio.ensure_future(_keep_following(feed))
    try:
        async with serving_pages(feed, clock, 0) as url:
            yield url
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _keep_following(feed: "Feed") -> None:
    import structlog

    from purser.kube import KubeError

    try:
        await feed.run()
    except KubeError as error:
        structlog.get_logger("purser.web").error("The web pages cannot be updated", error=str(error))


def _followed(client: "Client") -> "StateSource":
    from purser.cli.why import explanation_lines
    from purser.kube import SystemClock
    from purser.top.following import FollowedCluster

    return FollowedCluster(client, SystemClock(), lambda found: list(explanation_lines(found)))
