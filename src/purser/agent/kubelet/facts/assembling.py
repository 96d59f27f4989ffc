"""The report out of what was read. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from purser.agent.inventory.building import KubeletDevice
from purser.agent.kubelet.facts.reading import Found
from purser.core.device.resources import is_gpu_resource
from purser.core.kubelet import cpumanager, memorymanager
from purser.core.kubelet.devicemanager.checkpoint import DeviceManagerCheckpoint
from purser.core.kubelet.devicemanager.holdings import Held, counted
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.report import MAX_REPORT_BYTES, aligns, compact_state, encode, report_of, size_of
from purser.core.kubelet.state import (
    CpuState,
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    MemoryState,
    PluginDevice,
    PluginOptions,
    PluginResource,
)

NumaNodes = tuple[int, ...] | None
Allocatable = Mapping[str, Mapping[str, NumaNodes]]
"""By resource and device the NUMA nodes, as PodResources lists them; None: no topology."""

OWN_OPTIONS = PluginOptions(pre_start_required=True, preferred_allocation=True)
"""Of Purser's own plugin. kubelet does not expose the options of other plugins: they count as having none, which makes
no difference to the number of devices on each NUMA node."""

T = TypeVar("T")


class AssembledReport(msgspec.Struct, frozen=True):
    """The text to publish and what it lacks."""

    text: str = ""
    """Empty: nothing is known, and nothing may be said."""
    problems: Mapping[str, str] = {}


def assemble(found: Found, allocatable: Allocatable, own: Iterable[KubeletDevice]) -> AssembledReport:
    """The report's text. Devices without a NUMA node are renamed, save GPUs, and all others' too when the text would be
    too long otherwise.

    Where a part that this configuration needs could not be read, or belongs to another machine, only the configuration
    is reported, and the node's state counts as unknown: with a part left out, running pods that hold something of it
    would count as not yet admitted.
    """
    if found.config is None:
        return AssembledReport(problems=found.problems)
    node = KubeletNode(found.config, found.machine or Machine())
    problems = dict(found.problems)
    if not aligns(found.config) or found.machine is None or found.devices is None:
        return AssembledReport(encode(report_of(node)), problems)
    devices = _devices(found.devices, allocatable, {(device.resource, device.id): device for device in own})
    state = KubeletState(devices, _cpus(node, found, problems), _memory(node, found, problems))
    if problems:
        return AssembledReport(encode(report_of(node)), problems)
    return _compact_report(node, state, problems)


def _compact_report(node: KubeletNode, state: KubeletState, problems: dict[str, str]) -> AssembledReport:
    own = set(filter(is_gpu_resource, state.devices.resources))
    for keep in (_with_topology(state.devices) | own, own):
        text = encode(report_of(node, compact_state(state, keep)))
        if size_of(text) <= MAX_REPORT_BYTES:
            return AssembledReport(text, problems)
    problems["devices"] = (
        f"the report is {size_of(text)} bytes, over the limit of {MAX_REPORT_BYTES}, so only the configuration is "
        "published"
    )
    return AssembledReport(encode(report_of(node)), problems)


def _with_topology(devices: DeviceManagerState) -> set[str]:
    return {
        name
        for name, resource in devices.resources.items()
        if any(device.numa_nodes for device in resource.devices.values())
    }


def _devices(
    saved: DeviceManagerCheckpoint, allocatable: Allocatable, own: Mapping[tuple[str, str], KubeletDevice]
) -> DeviceManagerState:
    """Healthy is what kubelet's checkpoint says is; the others it lists, and Purser's own, are not."""
    from_checkpoint = _checkpoint_numa_nodes(saved.held)
    resources = {}
    for name in sorted(saved.registered.keys() | allocatable.keys()):
        listed, known = allocatable.get(name, {}), from_checkpoint.get(name, {})
        own_devices = {id_: device for (resource, id_), device in own.items() if resource == name}
        healthy = frozenset(saved.registered.get(name, ()))
        devices = {
            id_: PluginDevice(id_, id_ in healthy, _numa_nodes(id_, own_devices, listed, known))
            for id_ in sorted(healthy | listed.keys() | own_devices.keys())
        }
        options = OWN_OPTIONS if is_gpu_resource(name) else PluginOptions()
        resources[name] = PluginResource(
            devices, healthy, frozenset(devices) - healthy, is_listed=True, options=options
        )
    return DeviceManagerState(resources, saved.held, counted(saved.held))


def _numa_nodes(
    id_: str, own: Mapping[str, KubeletDevice], listed: Mapping[str, NumaNodes], filed: Mapping[str, NumaNodes]
) -> NumaNodes:
    if id_ in own:
        return own[id_].numa_nodes or None
    return listed[id_] if id_ in listed else filed.get(id_)


def _checkpoint_numa_nodes(held: Held) -> dict[str, dict[str, NumaNodes]]:
    """The NUMA nodes under which kubelet has filed what is held, by resource and device. Before 1.23 node 0 may also
    mean none."""
    found: dict[str, dict[str, set[int]]] = {}
    for of_container in held.values():
        for name, allocation in of_container.items():
            for number, ids in allocation.devices_per_numa.items():
                for id_ in ids:
                    found.setdefault(name, {}).setdefault(id_, set()).update([number] if number >= 0 else [])
    return {name: {id_: tuple(sorted(on)) or None for id_, on in ids.items()} for name, ids in found.items()}


def _cpus(node: KubeletNode, found: Found, problems: dict[str, str]) -> CpuState | None:
    if found.cpus is None:
        return None
    return _start_manager("cpus", lambda: cpumanager.start(node, found.cpus), problems)


def _memory(node: KubeletNode, found: Found, problems: dict[str, str]) -> MemoryState | None:
    if found.memory is None:
        return None
    return _start_manager("memory", lambda: memorymanager.start(node, found.memory), problems)


def _start_manager(part: str, start: Callable[[], T], problems: dict[str, str]) -> T | None:
    """A manager's state as it would be if kubelet started now: that finds the reserved CPUs, and files that do not fit
    the machine."""
    try:
        return start()
    except KubeletStartError as error:
        problems[part] = str(error)
        return None
