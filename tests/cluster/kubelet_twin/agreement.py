"""Plays scenarios on two kubelets and compares them after each step."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import grpc

from purser.kube.client import Client
from purser.kube.errors import NotFoundError
from purser.kube.resources import NAMESPACES, NODES
from purser.lab.controlplane.real import wait_until_pods_allowed

from .kubelets import CHECKPOINT, Config, NodeKubelet
from .side import DOMAIN, Side
from .steps import Remove, Scenario, Stop

_PATIENCE_S = 15.0
"""How long kubelets have to come to agree."""
_HASTE_S = 2.0
"""The same, once they did not."""
_POLL_S = 0.15


class Pair:
    """Kubelets that must not differ, the real one first."""

    def __init__(self, client: Client, kubelets: tuple[NodeKubelet, ...]) -> None:
        self._client = client
        self._kubelets = kubelets
        self._config: Config | None = None
        """Under which both run with nothing left of what was before; None where that is not known."""
        self._sides: tuple[Side, ...] = ()

    async def start(self) -> None:
        """Make the namespaces; the kubelets start with the first scenario."""
        for kubelet in self._kubelets:
            namespace = f"twin-{kubelet.node}"
            await self._client.create(NAMESPACES, {"metadata": {"name": namespace}})
            await wait_until_pods_allowed(self._client, namespace)

    async def play(self, scenario: Scenario) -> None:
        """Do every step to all, to the end even where they differ. Raises AssertionError with every difference."""
        await self._clear()
        if self._config != scenario.config:
            await asyncio.gather(*(self._start_over(kubelet, scenario.config) for kubelet in self._kubelets))
        self._config = None
        self._sides = tuple(Side(kubelet, self._client, f"twin-{kubelet.node}") for kubelet in self._kubelets)
        differences = await self._play(scenario)
        assert not differences, "\n".join(["the kubelets do not agree", *differences])
        await self._clear()
        self._config = scenario.config

    async def stop(self) -> None:
        """End what is under way, and the kubelets."""
        await self._clear()
        for kubelet in self._kubelets:
            await kubelet.stop()

    async def _play(self, scenario: Scenario) -> list[str]:
        """All differences, each after the step that brought it."""
        found: dict[str, None] = {}
        for step in scenario.steps:
            failures = await asyncio.gather(*(step.do(side) for side in self._sides), return_exceptions=True)
            lines = await self._differences(scenario.ids_matter, _HASTE_S if found else _PATIENCE_S)
            lines += [f"{type(failure).__name__}: {failure}" for failure in failures if failure is not None]
            if new := [line for line in lines if line not in found]:
                found |= dict.fromkeys([f"after {step}:", *new])
            if any(failures):
                break
        return list(found)

    async def _differences(self, ids_matter: bool, patience_s: float) -> list[str]:
        """What kubelet does in its own time (files, the node's status) gets some."""
        deadline = time.monotonic() + patience_s
        while True:
            seen = [await side.observe() for side in self._sides]
            if not ids_matter:
                for each in seen:
                    _nothing_twice(each["pod_resources"])
                seen = [_counted(each) for each in seen]
            found = [line for other in seen[1:] for line in _different(seen[0], other)]
            if not found or time.monotonic() > deadline:
                return found
            await asyncio.sleep(_POLL_S)

    async def _clear(self) -> None:
        sides, self._sides = self._sides, ()
        await asyncio.gather(*(_clear(side) for side in sides))

    async def _start_over(self, kubelet: NodeKubelet, config: Config) -> None:
        await kubelet.stop()
        (kubelet.folder / CHECKPOINT).unlink(missing_ok=True)
        await self._forget_resources(kubelet.node)
        await kubelet.start(config)

    async def _forget_resources(self, node: str) -> None:
        """kubelet itself never takes a resource off the node's status that was there once."""
        with contextlib.suppress(NotFoundError):
            capacity = (await self._client.get(NODES.raw(), node))["status"]["capacity"]
            gone: dict[str, None] = dict.fromkeys(name for name in capacity if name.startswith(DOMAIN))
            patch = {"status": {"capacity": gone, "allocatable": gone}}
            await self._client.patch_merge(NODES, node, patch, subresource="status")


async def _clear(side: Side) -> None:
    names = tuple(pod["metadata"]["name"] for pod in await side.pods())
    await Remove(names).do(side)
    await asyncio.gather(*(_end(side, resource) for resource in side.plugins))


async def _end(side: Side, resource: str) -> None:
    # A kubelet that notices the end only after the next one's registration would end that one (since 1.25).
    with contextlib.suppress(grpc.aio.AioRpcError, AssertionError):
        await Stop(resource).do(side)


def _different(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            yield from _different(one.get(key, "nothing"), other.get(key, "nothing"), f"{path}/{key}")
    elif one != other:
        yield f"  {path}:\n    real:     {one}\n    emulated: {other}"


def _counted(seen: Any) -> Any:
    """The same with numbers of devices in place of their ids."""
    if isinstance(seen, dict):
        return {key: _counted(value) for key, value in seen.items() if key != "response"}
    if isinstance(seen, frozenset):
        return len(seen)
    if isinstance(seen, list | tuple):
        return [_counted(each) for each in seen]
    return seen


def _nothing_twice(listed: Any) -> None:
    """Where ids are not compared, at least no device has two owners."""
    containers = [container for pod in listed.values() for container in pod.values()]
    ids = [id_ for container in containers for ids in container["devices"].values() for id_ in ids]
    assert len(ids) == len(set(ids)), f"a device was given away twice: {listed}"
