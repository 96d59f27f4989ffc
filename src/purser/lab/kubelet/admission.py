"""Admission of one pod over the wire: the twin decides, its questions are answered by the node's real plugins."""

from collections.abc import Collection
from typing import Any

import msgspec

from purser.adapters.pods import pod_spec
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.core.kubelet import admission, devicemanager
from purser.core.kubelet.asks import (
    Admission,
    AdmissionOutcome,
    AnswerWithDevices,
    Ask,
    FailedAnswer,
    PlainAnswer,
    PreferredAllocation,
    Rejection,
    ResourceManager,
)
from purser.core.kubelet.errors import UNEXPECTED_ADMISSION_ERROR
from purser.core.kubelet.pod import KubeletPod, kubelet_pod
from purser.core.kubelet.topologymanager import policy_for
from purser.core.kubernetes.quantities import QuantityError
from purser.kube.objects import Pod
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.endpoints import EmptyResponse, Endpoints, PluginError
from purser.lab.kubelet.pods import ContainerView, Raw, merge_first_wins, uid_of
from purser.lab.kubelet.runtime import ContainerMount


class AdmissionError(Exception):
    """kubelet refuses the pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


async def admit(
    books: Books, endpoints: Endpoints, pod: Raw, active: Collection[str] | None, running: Collection[str] = ()
) -> None:
    """Give a pod's containers what they ask for, or raise `AdmissionError`. Nothing is rolled back.

    For ``active`` and ``running`` see `purser.core.kubelet.admission.admit`. One pod at a time: the caller's concern.
    """
    seen = _kubelet_pod(pod)
    books.asked(ResourceManager.DEVICE, seen.uid)
    outcome = await _run_admission(books, endpoints, admission.admit(books.node, books.state, seen, active, running))
    if _asks_for_cpus(books, seen, outcome.refusal):
        books.asked(ResourceManager.CPU, seen.uid)
    if outcome.refusal is not None:
        raise AdmissionError(outcome.refusal.reason, outcome.refusal.message)
    _check_expired_resources(books, seen)


def lacks_devices(books: Books, uid: str, container: ContainerView) -> bool:
    """Whether a container has none of a resource whose plugin is known now, and kubelet allocates them at its creation.

    Not where a plugin is to be asked before the container starts: it holds nothing for it, which is an error.
    """
    held = devicemanager.held_by(books.devices, (uid, container.name))
    known = books.devices.resources
    lacking = [known[name] for name, n in container.limits.items() if n and name in known and name not in held]
    return bool(lacking) and not any(resource.options.pre_start_required for resource in lacking)


async def allocate_at_creation(
    books: Books, endpoints: Endpoints, pod: Raw, name: str, active: Collection[str] | None
) -> None:
    """Give a container that is about to be created the devices that it lacks. Raises `PluginError`. As for `admit`,
    one at a time."""
    books.asked(ResourceManager.DEVICE, uid_of(pod))
    twin = admission.allocate_at_creation(books.node, books.state, _kubelet_pod(pod), name, active)
    outcome = await _run_admission(books, endpoints, twin)
    if outcome.refusal is not None:
        raise PluginError(outcome.refusal.message)


async def _run_admission(books: Books, endpoints: Endpoints, twin: Admission) -> AdmissionOutcome:
    """To the end. The checkpoint is written after each container that got all of its devices."""
    served = ""
    try:
        ask = next(twin)
        while True:
            # The PodResources list for a plugin that asks kubelet during this call.
            books.commit(ask.state)
            if served not in ("", ask.container[1]):
                books.checkpoint()
            served = ask.container[1]
            answer = await _answer(endpoints, ask)
            ask = twin.send(AnswerWithDevices(answer, books.devices))
    except StopIteration as end:
        outcome: AdmissionOutcome = end.value
    books.commit(outcome.state)
    if served and not _lacks_devices(outcome.refusal, served):
        books.checkpoint()
    return outcome


def _lacks_devices(refusal: Rejection | None, container: str) -> bool:
    return refusal is not None and refusal.manager is ResourceManager.DEVICE and refusal.container == container


def _asks_for_cpus(books: Books, pod: KubeletPod, refusal: Rejection | None) -> bool:
    """The CPU manager has its turn after the device manager's, container by container, but is asked for hints first."""
    if policy_for(books.node.config, books.node.machine).asks_for_hints:
        return True
    return not _lacks_devices(refusal, pod.containers[0].name)


async def _answer(endpoints: Endpoints, ask: Ask) -> PlainAnswer:
    try:
        if isinstance(ask, PreferredAllocation):
            available, must_include = sorted(ask.available), sorted(ask.must_include)
            return await endpoints.preferred(ask.resource, available, must_include, ask.size)
        response = await endpoints.allocate(ask.resource, sorted(ask.device_ids))
        return response.SerializeToString()
    except PluginError as error:
        return FailedAnswer(str(error), is_empty_response=isinstance(error, EmptyResponse))


def _kubelet_pod(pod: Raw) -> KubeletPod:
    """The pod as the twin takes it. The API server lets no bad quantity through, an odd one may."""
    try:
        return kubelet_pod(pod_spec(msgspec.convert(pod, Pod)))
    except (QuantityError, msgspec.ValidationError) as error:
        raise AdmissionError(UNEXPECTED_ADMISSION_ERROR, f"cannot decode pod {uid_of(pod)}: {error}") from error


def _check_expired_resources(books: Books, pod: KubeletPod) -> None:
    """Of a resource whose plugin stayed away for too long the node has none; one it never had is not looked at."""
    for container in pod.containers:
        for resource, requested in container.limits.items():
            if requested and resource in books.devices.removed:
                message = f"Node didn't have enough resource: {resource}, requested: {requested}, used: 0, capacity: 0"
                raise AdmissionError(f"OutOf{resource}", message)


class RunOptions:
    """What the plugins' responses add to a container: the first response that sets a key wins."""

    def __init__(self, responses: list[api_pb2.ContainerAllocateResponse], *, with_cdi: bool) -> None:
        self.env = merge_first_wins(dict(response.envs) for response in responses)
        self.annotations = merge_first_wins(dict(response.annotations) for response in responses)
        devices = {device.container_path: device for r in reversed(responses) for device in r.devices}
        mounts = {mount.container_path: mount for r in reversed(responses) for mount in r.mounts}
        self.devices = tuple(devices)
        self.mounts = tuple(ContainerMount(m.container_path, m.host_path, m.read_only) for m in mounts.values())
        names = (device.name for r in responses for device in r.cdi_devices)
        self.cdi_devices = tuple(dict.fromkeys(names)) if with_cdi else ()


async def run_options(books: Books, endpoints: Endpoints, uid: str, container: ContainerView) -> RunOptions:
    """What a container is created with; asks PreStartContainer of the plugins that want it. Raises `PluginError`."""
    held = devicemanager.held_by(books.devices, (uid, container.name))
    for resource, required in container.limits.items():
        known = books.devices.resources.get(resource)
        if known is None or not known.options.pre_start_required:
            continue
        if resource in held:
            await endpoints.pre_start(resource, sorted(held[resource].device_ids))
        elif required or books.behaviour.wants_devices_for_zero:
            where = f"pod {uid}, container {container.name}, resource {resource}"
            raise PluginError(f"no devices found allocated in local cache for {where}")
    responses = [_response(allocation.response) for allocation in held.values()]
    return RunOptions(responses, with_cdi=books.behaviour.merges_cdi_devices)


def _response(data: bytes) -> api_pb2.ContainerAllocateResponse:
    response: Any = api_pb2.ContainerAllocateResponse()
    response.ParseFromString(data)
    return response  # type: ignore[no-any-return]
