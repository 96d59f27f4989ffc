"""What connects the devices of a node: the PCIe level and the active NVLinks of every pair.

An NVLink ends at another GPU or at an NVSwitch. Switched links reach every GPU that has links to the switches, so a
pair shares as many of them as the GPU with fewer has. They are summed over all switches, not matched switch by switch:
in machines with two baseboards (DGX-2) GPUs sit on different switches that trunk links join at full width, and all
NVSwitch machines so far are one fabric.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec

from purser.agent.host import sysfs
from purser.agent.nvml.calls import DeviceCalls, Nvml
from purser.core.model import Link, PcieLevel

PCIE_LEVELS = {
    0: PcieLevel.SAME_BOARD,
    10: PcieLevel.SINGLE_SWITCH,
    20: PcieLevel.MULTI_SWITCH,
    30: PcieLevel.HOST_BRIDGE,
    40: PcieLevel.SAME_CPU,
    50: PcieLevel.CROSS_CPU,
}
"""nvmlGpuTopologyLevel_t."""


class NvLinkEndpoint(msgspec.Struct, frozen=True):
    """A device that answers, and the calls to ask it with."""

    uuid: str
    pci_bus_id: str
    handle: Any
    calls: DeviceCalls


class LinkCount(msgspec.Struct, frozen=True):
    """The active NVLinks of one device by where they end."""

    by_peer: Counter[str]
    """Links straight to another GPU, by its PCI address."""
    switched: int
    """Links to NVSwitches."""


def survey_links(nvml: Nvml, endpoints: Sequence[NvLinkEndpoint]) -> dict[str, dict[str, Link]]:
    """The links of every device to every other one: uuid to peer's uuid to link; the same both ways."""
    counts = {each.uuid: count_links(nvml, each) for each in endpoints}
    links: dict[str, dict[str, Link]] = {each.uuid: {} for each in endpoints}
    for one, other in combinations(endpoints, 2):
        pcie = one.calls.ask(_pcie_level, "nvmlDeviceGetTopologyCommonAncestor", one.handle, other.handle)
        nvlinks = _shared_links(counts[one.uuid], one.pci_bus_id, counts[other.uuid], other.pci_bus_id)
        links[one.uuid][other.uuid] = Link(other.uuid, pcie, nvlinks)
        links[other.uuid][one.uuid] = Link(one.uuid, pcie, nvlinks)
    return links


def count_links(nvml: Nvml, endpoint: NvLinkEndpoint) -> LinkCount:
    """Count a device's active NVLinks. A link that the GPU does not have is an error of that link, not of the GPU."""
    by_peer: Counter[str] = Counter()
    switched = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        if not endpoint.calls.ask(bool, "nvmlDeviceGetNvLinkState", endpoint.handle, link):
            continue
        remote = endpoint.calls.ask(int, "nvmlDeviceGetNvLinkRemoteDeviceType", endpoint.handle, link)
        if remote == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switched += 1
            continue
        # Drivers before R470 do not report the type; then the address identifies GPUs, and only they can be counted.
        address = endpoint.calls.ask(_bus_id, "nvmlDeviceGetNvLinkRemotePciInfo", endpoint.handle, link)
        if address is not None:
            by_peer[address] += 1
    return LinkCount(by_peer, switched)


def _shared_links(one: LinkCount, one_address: str, other: LinkCount, other_address: str) -> int:
    # The smaller of both views: a link that is down at one end carries nothing.
    direct = min(one.by_peer[other_address], other.by_peer[one_address])
    return direct + min(one.switched, other.switched)


def _pcie_level(level: Any) -> PcieLevel | None:
    return PCIE_LEVELS.get(int(level))


def _bus_id(info: Any) -> str:
    return sysfs.pci_address(str(info.busId))
