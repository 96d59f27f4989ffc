"""What else the pod's author could have asked for: less of one amount, or one thing less by which the choice of GPUs is
narrowed. A log has what a pod asks for, and not the words in which it does."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from purser.core.kubelet.pod import CPU, MEMORY, KubeletContainer, with_containers
from purser.core.kubernetes.quantities import MIB
from purser.core.model import WHOLE_PERCENT, ContainerRequest, DeviceRequest, GpuNic, PodRequest
from purser.core.names import GPU_RESOURCE
from purser.core.placement import Reason
from purser.core.vendors.catalogue import BY_RESOURCE
from purser.core.wording import counted
from purser.scheduler.explaining.changes import ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.logged.moment import LoggedMoment
from purser.scheduler.explaining.logged.offering import suggest_if_fits
from purser.scheduler.explaining.searching import MAX_TRIED, at_once, fewer_cpus, largest_that_fits

GPUS, GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES = "gpus", "gpuMemoryMiB", "gpuMemoryPercent", "gpuCoresPercent"
"""What a container asks for, as suggestions name it."""

_FIELDS = {
    GPUS: "count",
    GPU_MEMORY: "memory_mib",
    GPU_MEMORY_PERCENT: "memory_percent",
    GPU_CORES: "cores_percent",
}
"""Of `DeviceRequest`."""


class _Axis(msgspec.Struct, frozen=True):
    """An amount that one container may lower."""

    container: str
    what: str
    asked: str
    """In words."""
    values: Sequence[int]
    """Lower ones, ascending."""
    changed: Callable[[int], PodRequest]
    is_tried: bool = False
    """Whether each is tried; else all before one that fits do."""


def smaller_requests(moment: LoggedMoment) -> Iterator[Suggestion]:
    """For each container and amount the largest that fits."""
    for axis in _axes(moment):
        found = at_once(largest_that_fits(axis.values, _fits_with(moment, axis), is_tried=axis.is_tried))
        if found is not None:
            text = f"container {axis.container} requests {_words(axis.what, found)} instead of {axis.asked}"
            change = SuggestedChange(
                container=axis.container, resource=axis.what, amount=_amount_text(axis.what, found)
            )
            yield from suggest_if_fits(moment, ChangeKind.AMOUNT, text, change, axis.changed(found))


def _fits_with(moment: LoggedMoment, axis: _Axis) -> Callable[[int], bool]:
    return lambda value: bool(moment.evaluate(axis.changed(value)).fits)


def _axes(moment: LoggedMoment) -> Iterator[_Axis]:
    request = moment.request
    for container in request.containers:
        yield from _device_axes(moment, container)
    if Reason.KUBELET_WOULD_REJECT in moment.reasons and request.kubelet_pod is not None:
        for part in request.kubelet_pod.containers:
            yield from _aligned_resources(request, part)


def _device_axes(moment: LoggedMoment, container: ContainerRequest) -> Iterator[_Axis]:
    asked, sizes = container.devices, _sizes(container.devices)

    def axis(what: str, values: Sequence[int], words: str, *, is_tried: bool = False, **others: object) -> _Axis:
        def changed(value: int) -> PodRequest:
            devices = replace(asked, **{_FIELDS[what]: value, **others})
            return _with_devices(moment.request, container.name, devices)

        return _Axis(container.name, what, words, values, changed, is_tried)

    if asked.count > 1:
        yield axis(GPUS, range(1, asked.count), str(asked.count), is_tried=asked.count <= MAX_TRIED)
    if memory := asked.memory_mib or 0:
        values = sorted(size for size in sizes if size < memory) if sizes else range(1, memory)
        yield axis(GPU_MEMORY, values, str(memory), is_tried=bool(sizes))
    if (percent := asked.memory_percent or 0) and not asked.is_plain:
        yield axis(GPU_MEMORY_PERCENT, range(1, percent), str(percent))
    if asked.cores_percent and not asked.is_plain:
        yield axis(GPU_CORES, range(1, asked.cores_percent), str(asked.cores_percent))
    if asked.memory_percent == WHOLE_PERCENT and asked.resource == GPU_RESOURCE:
        most = max((each.device.memory_mib for node in moment.fleet for each in node.devices), default=0)
        cores = 0 if asked.is_plain else asked.cores_percent
        shares = range(1, most + 1)
        yield axis(GPU_MEMORY, shares, "all of its GPUs' memory", memory_percent=None, cores_percent=cores)


def _aligned_resources(request: PodRequest, part: KubeletContainer) -> Iterator[_Axis]:
    """What a kubelet aligns with them."""
    cpus, memory = part.limits.get(CPU, 0), part.limits.get(MEMORY, 0) // MIB
    if cpus > 1:
        yield _Axis(
            part.name, CPU, _amount_text(CPU, cpus), fewer_cpus(cpus), _kubelet_axes(request, part.name, CPU), True
        )
    changed = _kubelet_axes(request, part.name, MEMORY, MIB)
    yield _Axis(part.name, MEMORY, _amount_text(MEMORY, memory), range(1, memory), changed)


def _sizes(asked: DeviceRequest) -> Sequence[int]:
    """The amounts of memory that a family of other vendors' devices has; empty: any."""
    family = BY_RESOURCE.get(asked.resource)
    return () if family is None or family.memory is None else family.memory.allowed


def _with_devices(request: PodRequest, name: str, devices: DeviceRequest) -> PodRequest:
    """One container asks for others, and kubelet is asked for as many."""
    parts = tuple(replace(each, devices=devices) if each.name == name else each for each in request.containers)
    changed = replace(request, containers=parts)
    return _kubelet_axes(changed, name, devices.resource)(devices.count)


def _kubelet_axes(request: PodRequest, name: str, resource: str, unit: int = 1) -> Callable[[int], PodRequest]:
    """What of a container kubelet counts: the limit and the request, where it has either."""

    def changed(value: int) -> PodRequest:
        pod = request.kubelet_pod
        if pod is None:
            return request
        parts = tuple(
            replace(
                each,
                limits={**each.limits, resource: value * unit} if resource in each.limits else each.limits,
                requests={**each.requests, resource: value * unit} if resource in each.requests else each.requests,
            )
            if each.name == name
            else each
            for each in pod.containers
        )
        return replace(request, kubelet_pod=with_containers(pod, parts))

    return changed


def wider_choices(moment: LoggedMoment) -> Iterator[Suggestion]:
    """Each thing that alone narrows the choice of GPUs too much."""
    request = moment.request
    fields: tuple[tuple[str, str, object], ...] = (
        ("models_allowed", "the pod allows all GPU models", ()),
        ("models_denied", "the pod does not exclude any GPU model", ()),
        ("uuids_allowed", "the pod allows all GPU UUIDs", ()),
        ("uuids_denied", "the pod does not exclude any GPU UUID", ()),
        ("numa_bind", "the pod does not require its GPUs to be on one NUMA node", False),
        ("modes_allowed", "the pod allows all GPU modes", ()),
        ("held_by", "the pod does not require its share limits to be enforced", ()),
        ("mig_profiles", "the pod does not name a MIG profile", ()),
    )
    for field, text, anything in fields:
        if any(getattr(each.devices, field) != anything for each in request.containers):
            parts = tuple(
                replace(each, devices=replace(each.devices, **{field: anything})) for each in request.containers
            )
            yield from _choice(moment, field, text, replace(request, containers=parts))
    if request.gpu_policy:
        yield from _choice(moment, "gpu_policy", "the pod does not set a GPU policy", replace(request, gpu_policy=()))
    if request.gpu_nic is GpuNic.REQUIRED:
        text = "the pod prefers network devices near its GPUs instead of requiring them"
        yield from _choice(moment, "gpu_nic", text, replace(request, gpu_nic=GpuNic.PREFERRED))


def _choice(moment: LoggedMoment, field: str, text: str, changed: PodRequest) -> Iterator[Suggestion]:
    yield from suggest_if_fits(moment, ChangeKind.ANNOTATION, text, SuggestedChange(field=field), changed)


def _words(what: str, amount: int) -> str:
    """As a sentence has it."""
    match what:
        case "gpus":
            return counted(amount, "GPU")
        case "gpuMemoryMiB":
            return f"{amount} MiB of GPU memory"
        case "gpuMemoryPercent":
            return f"{amount}% of a GPU's memory"
        case "gpuCoresPercent":
            return f"{amount}% of a GPU's compute"
        case _:
            return f"{what}: {_amount_text(what, amount)}"


def _amount_text(what: str, amount: int) -> str:
    """As a pod has it."""
    if what == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return f"{amount}Mi" if what == MEMORY else str(amount)
