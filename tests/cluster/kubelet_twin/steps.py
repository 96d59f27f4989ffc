"""What a scenario is made of. Each step is done to both kubelets, which then must agree."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import grpc

from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.kube.errors import NotFoundError
from purser.kube.resources import PODS
from tests.cluster.kubernetes import BUSYBOX_IMAGE

from .kubelets import CHECKPOINT, Config
from .plugin import Plugin, Script
from .side import DOMAIN, Side, is_decided

NOT_ALLOCATED = "UnexpectedAdmissionError"
NOT_ALIGNED = "TopologyAffinityError"
NOT_CREATED = "CreateContainerConfigError"
_NUDGE_S = 0.5
_HOUSEKEEPING_S = 2.5
"""kubelet goes through all pods two seconds after its start. What newer ones refuse before that, they report as refused
ten seconds later only."""

_MEMORY = "32Mi"
_ABSENT_VOLUME = {"name": "absent", "configMap": {"name": "absent"}}
"""Keeps a pod from its start: kubelet admits it, and then waits for the volume."""


class Step(Protocol):
    """One thing that is done."""

    async def do(self, side: Side) -> None:
        """To one kubelet; returns once it shows."""


@dataclass(frozen=True)
class Scenario:
    """Steps under one configuration of kubelet."""

    title: str
    steps: tuple[Step, ...]
    ids_matter: bool = True
    """Whether kubelet's choice of devices is decided; it is random where no plugin prefers any, and among devices that
    an init container leaves. Then only numbers are compared."""
    config: Config = field(default_factory=dict)


def scenario(title: str, *steps: Step, ids_matter: bool = True) -> Scenario:
    """A scenario, whose configuration its group will say."""
    return Scenario(title, steps, ids_matter)


@dataclass(frozen=True)
class Container:
    """What one container asks for. None: does not speak of it."""

    gpu: int | None = None
    nic: int | None = None
    absent: int | None = None
    """Of what no plugin ever had."""
    cpu: str = ""
    """With it goes some memory, so that the pod is Guaranteed when every container has it."""
    requests_cpu: str = ""
    """Less than its limit."""


def c(gpu: int | None = None, nic: int | None = None, **others: Any) -> Container:
    """A container."""
    return Container(gpu, nic, **others)


@dataclass(frozen=True)
class Add:
    """Create a pod on the node, and see whether it is admitted. Its containers start only where that matters."""

    name: str
    containers: tuple[Container, ...]
    init: tuple[Container, ...] = ()
    whole_cpu: str = ""
    """What the pod as a whole may use; with it goes some memory. 1.20 knows no such amounts."""
    refused: str = ""
    """Reason of its status where it is to be refused."""
    blocked: bool = False
    """Whether it is admitted but a container cannot be created, for CreateContainerConfigError."""
    runs: bool = False
    """Whether to wait until it runs."""
    starts: bool = False
    """Whether to wait until it runs or a container cannot be created: which of both depends on the version."""

    async def do(self, side: Side) -> None:
        created = await side.client.create(PODS.raw(), self._manifest(side), side.namespace)
        side.uids[created["metadata"]["uid"]] = self.name
        status = await side.until(f"decided about pod {self.name}", lambda: self._decided(side))
        assert status.get("reason", "") == self.refused, f"{side.kubelet.node}: {self.name}: {status}"
        if self.runs:
            await Runs(self.name).do(side)

    async def _decided(self, side: Side) -> Any:
        pod = await side.pod(self.name)
        status = pod["status"]
        if self.blocked:
            return _is_blocked(status) and status
        if self.starts:
            return (status.get("phase") == "Running" or _is_blocked(status)) and status
        return is_decided(status) and status

    def _manifest(self, side: Side) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "nodeName": side.kubelet.node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            # What a start does not need costs time on two cores.
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [_container(f"c{n}", each, ["sleep", "3600"]) for n, each in enumerate(self.containers)],
            "initContainers": [_container(f"i{n}", each, ["true"]) for n, each in enumerate(self.init)],
        }
        if self.whole_cpu:
            spec["resources"] = {"limits": {"cpu": self.whole_cpu, "memory": _MEMORY}}
        if not (self.blocked or self.runs or self.starts):
            spec["volumes"] = [_ABSENT_VOLUME]
            for container in (*spec["containers"], *spec["initContainers"]):
                container["volumeMounts"] = [{"name": _ABSENT_VOLUME["name"], "mountPath": "/absent"}]
        return {"metadata": {"name": self.name, "namespace": side.namespace}, "spec": spec}


@dataclass(frozen=True)
class Runs:
    """Wait until a pod runs; its containers have the variables that the plugins gave them."""

    name: str

    async def do(self, side: Side) -> None:
        async def running() -> Any:
            pod = await side.pod(self.name)
            return pod["status"].get("phase") == "Running" and pod

        await side.nudge(self.name)
        pod = await side.until(f"running {self.name}", running)
        for container in pod["spec"]["containers"]:
            where = (side.namespace, self.name, pod["metadata"]["uid"], container["name"])
            env = await side.kubelet.environment(*where)
            ours = {key: value for key, value in sorted(env.items()) if key.startswith("TEST_")}
            side.said.append(f"{self.name}/{container['name']}: {ours}")


@dataclass(frozen=True)
class CannotBeCreated:
    """Wait until a container of a pod cannot be created for a reason that has these words."""

    name: str
    words: str

    async def do(self, side: Side) -> None:
        async def blocked() -> bool:
            if self.words in _is_blocked((await side.pod(self.name))["status"]):
                return True
            # More than once: kubelet writes into the status why it failed the time before.
            await side.nudge(self.name)
            await asyncio.sleep(_NUDGE_S)
            return False

        await side.until(f"stopping {self.name} for {self.words}", blocked)


@dataclass(frozen=True)
class Together:
    """Steps between which kubelets may differ: each of them tries again in its own time what failed."""

    steps: tuple[Step, ...]

    async def do(self, side: Side) -> None:
        for step in self.steps:
            await step.do(side)


def together(*steps: Step) -> Together:
    """Steps between which kubelets may differ."""
    return Together(steps)


@dataclass(frozen=True)
class Remove:
    """Delete pods, and wait until kubelet has forgotten them."""

    names: tuple[str, ...]

    async def do(self, side: Side) -> None:
        # kubelet allocates again for a pod that is gone by the time its containers are to start: a matter of chance.
        await side.until("done with starting containers", lambda: self._started(side))
        for name in self.names:
            with contextlib.suppress(NotFoundError):
                await side.client.delete(PODS, name, side.namespace, grace_period_seconds=0)

        async def forgotten() -> bool:
            left = {pod["metadata"]["name"] for pod in await side.pods()} | {pod.name for pod in await side.listed()}
            return not left & set(self.names)

        await side.until(f"rid of {self.names}", forgotten)

    async def _started(self, side: Side) -> bool:
        pods = [pod for pod in await side.pods() if pod["metadata"]["name"] in self.names]
        starting = [pod["status"] for pod in pods if _ABSENT_VOLUME["name"] not in map(_name, _volumes(pod))]
        return all(status.get("phase") != "Pending" or _is_blocked(status) for status in starting)


def remove(*names: str) -> Remove:
    """Delete pods."""
    return Remove(names)


_CLOSED_FOR_ANOTHER = "the client connection is closing"
_REGISTRATIONS = 5


async def _register(plugin: Plugin, folder: Path) -> None:
    """Introduce a plugin, as real ones do again where kubelet closes the connection to it: it notices late that the
    plugin before has ended, and ends the one that has the resource by now."""
    for _ in range(_REGISTRATIONS - 1):
        try:
            return await plugin.register(folder)
        except grpc.aio.AioRpcError as error:
            if _CLOSED_FOR_ANOTHER not in (error.details() or ""):
                raise
    return await plugin.register(folder)


@dataclass(frozen=True)
class Start:
    """Start a plugin, register it, and wait until the node has its devices."""

    resource: str
    script: Script
    by_watcher: bool = False
    socket: str = ""
    """Where another plugin of the resource is connected: an addition to the socket's name, which has to differ."""

    async def do(self, side: Side) -> None:
        plugin = Plugin(DOMAIN + self.resource, replace(self.script), self.by_watcher, self.socket)
        before, side.plugins[self.resource] = side.plugins.get(self.resource), plugin
        if self.by_watcher:
            await plugin.serve(side.kubelet.folder / "plugins_registry")
        else:
            folder = side.kubelet.folder / "device-plugins"
            await plugin.serve(folder)
            await _register(plugin, folder)
        await _offered(side, self.resource)
        if before is not None:
            # Its end must not matter any more.
            await before.stop()


@dataclass(frozen=True)
class Stop:
    """End a plugin, and wait until the node offers none of its devices any more.

    kubelet looks once a second which of the sockets that it found are gone. It then ends the plugin of the resource
    that it asks by now: one that registered after the end of its connection and before that look is lost. So the
    socket goes first, and the plugin stays until kubelet has ended it."""

    resource: str

    async def do(self, side: Side) -> None:
        plugin = side.plugins[self.resource]
        try:
            if plugin.by_watcher:
                plugin.withdraw()
                await self._gone(side)
        finally:
            await plugin.stop()
        await self._gone(side)

    async def _gone(self, side: Side) -> None:
        await side.until(f"without {self.resource}", lambda: _is_offered(side, self.resource, 0))


@dataclass(frozen=True)
class Change:
    """Change what a plugin has or does, and tell kubelet."""

    resource: str
    fields: Mapping[str, Any]

    async def do(self, side: Side) -> None:
        plugin = side.plugins[self.resource]
        plugin.script = replace(plugin.script, **self.fields)
        if {"healthy", "unhealthy", "numa"} & self.fields.keys():
            plugin.tell()
            await _offered(side, self.resource)


def change(resource: str, **fields: Any) -> Change:
    """Change what a plugin has or does."""
    return Change(resource, fields)


@dataclass(frozen=True)
class StopDuringAllocate:
    """Let one plugin go away while another one is asked to allocate."""

    asked: str
    stopped: str

    async def do(self, side: Side) -> None:
        side.plugins[self.asked].script.during_allocate = lambda: Stop(self.stopped).do(side)


@dataclass(frozen=True)
class Restart:
    """Kill kubelet and start it again. Plugins stay away until they are started."""

    edit: Callable[[Path], object] | None = None
    """What to do to the device manager's checkpoint in between."""

    async def do(self, side: Side) -> None:
        await side.until("done with reporting plugins that are gone", lambda: self._settled(side))
        await side.kubelet.stop()
        for plugin in side.plugins.values():
            await plugin.stop()
        if self.edit is not None:
            self.edit(side.kubelet.folder / CHECKPOINT)
        await side.kubelet.start()
        await side.until("aware of its pods again", lambda: self._listed(side))
        await asyncio.sleep(_HOUSEKEEPING_S)

    async def _settled(self, side: Side) -> bool:
        """Of what an earlier scenario left: kubelet never corrects its last report of a resource that it forgets."""
        return all(offer[1] <= 0 for name, offer in (await side.offers()).items() if name not in side.plugins)

    async def _listed(self, side: Side) -> bool:
        """Which of the failed ones are listed depends on the version."""
        alive = {pod["metadata"]["name"] for pod in await side.pods() if pod["status"].get("phase") != "Failed"}
        return alive <= {pod.name for pod in await side.listed()}


@dataclass(frozen=True)
class Register:
    """Register what kubelet refuses."""

    resource: str
    version: str = "v1beta1"

    async def do(self, side: Side) -> None:
        try:
            await Plugin(self.resource, Script()).register(side.kubelet.folder / "device-plugins", self.version)
            side.said.append(f"{self.resource}: registered")
        except grpc.aio.AioRpcError as error:
            side.said.append(f"{self.resource}: {error.code().name}: {error.details()}")


@dataclass(frozen=True)
class AskNewer:
    """Call what not every version's PodResources has."""

    async def do(self, side: Side) -> None:
        async with side.pod_resources() as channel:
            lister = api_pb2_grpc.PodResourcesListerStub(channel)
            for call, request in (
                (lister.GetAllocatableResources, api_pb2.AllocatableResourcesRequest()),
                (lister.Get, api_pb2.GetPodResourcesRequest(pod_name="p", pod_namespace=side.namespace)),
            ):
                try:
                    answer = await call(request, timeout=30)
                    side.said.append(f"answered {sorted(_ids(answer))}")
                except grpc.aio.AioRpcError as error:
                    details = (error.details() or "").replace(side.namespace, "<namespace>")
                    side.said.append(f"{error.code().name}: {details}")


def _container(name: str, asked: Container, command: list[str]) -> dict[str, Any]:
    numbers = {"gpu": asked.gpu, "nic": asked.nic, "absent": asked.absent}
    limits = {DOMAIN + resource: str(number) for resource, number in numbers.items() if number is not None}
    if asked.cpu:
        limits |= {"cpu": asked.cpu, "memory": _MEMORY}
    resources: dict[str, Any] = {"limits": limits}
    if asked.requests_cpu:
        resources["requests"] = {"cpu": asked.requests_cpu}
    return {
        "name": name,
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": command,
        "resources": resources,
    }


def _volumes(pod: Mapping[str, Any]) -> list[Any]:
    return pod["spec"].get("volumes") or []


def _name(each: Mapping[str, Any]) -> str:
    return str(each["name"])


def _ids(answer: Any) -> list[str]:
    """The devices that GetAllocatableResources names; none in other answers."""
    ours = [each for each in getattr(answer, "devices", ()) if each.resource_name.startswith(DOMAIN)]
    return [id_ for each in ours for id_ in each.device_ids]


def _is_blocked(status: Mapping[str, Any]) -> str:
    """Message of a container that cannot be created."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = container["state"].get("waiting") or {}
            if waiting.get("reason") == NOT_CREATED:
                return str(waiting.get("message") or "no message")
    return ""


async def _offered(side: Side, resource: str) -> None:
    """Both in the node's status and, for devices may change while their number does not, in kubelet's checkpoint."""
    healthy = side.plugins[resource].script.healthy

    async def offered() -> bool:
        return side.registered(resource) == set(healthy) and await _is_offered(side, resource, len(healthy))

    await side.until(f"offering {healthy} of {resource}", offered)


async def _is_offered(side: Side, resource: str, count: int) -> bool:
    """Whether the node has so many healthy devices."""
    capacity = (await side.offers()).get(resource)
    return capacity is not None and capacity[1] == count
