"""What of a device can only be seen while no pod has it: kept, so that a restart of the agent loses no VF of a pool.

A pod takes a VF's interface, and where RDMA devices belong to network namespaces, its RDMA device too, out of the
host's sight; so does whoever moves a PF's interface elsewhere. Selectors for these then mean the VF no more.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
import structlog

from purser.agent.host.files import read_head, replace_file
from purser.core.decoding import JsonReader, UnreadableError
from purser.core.sriov.devices import NodeDevices, RdmaDevice, SriovDevice

log = structlog.get_logger("purser.agent")

_MAX_SEEN_BYTES = 16 << 20


class SeenDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was last seen of a device."""

    vendor: str
    device: str
    pf_address: str = ""
    pf_name: str = ""
    link_type: str = ""
    p_key: str = ""
    rdma: tuple[RdmaDevice, ...] = ()
    pf_aliases: tuple[str, ...] = ()


SeenDevices = Mapping[str, SeenDevice]
"""By kubelet's id."""

_file_reader: JsonReader[dict[str, SeenDevice]] = JsonReader(
    dict[str, SeenDevice], "the file of known SR-IOV devices", max_bytes=_MAX_SEEN_BYTES
)


def complete_from_memory(node: NodeDevices, seen: SeenDevices, held: Collection[str] | None) -> NodeDevices:
    """The node with what cannot be seen now. ``held``: ids that containers hold; None: not known, any may be."""
    return msgspec.structs.replace(
        node,
        devices=tuple(
            _complete_device(each, seen[each.id], held is None or each.id in held) if each.id in seen else each
            for each in node.devices
        ),
    )


def seen_of(node: NodeDevices) -> dict[str, SeenDevice]:
    """What there is to keep of completed devices: those that are gone are forgotten."""
    return {
        each.id: SeenDevice(
            each.vendor,
            each.device,
            each.pf_address,
            each.pf_name,
            each.link_type,
            each.p_key,
            each.rdma,
            each.pf_aliases,
        )
        for each in node.devices
    }


def _complete_device(device: SriovDevice, seen: SeenDevice, is_held: bool) -> SriovDevice:
    if (device.vendor, device.device, device.pf_address) != (seen.vendor, seen.device, seen.pf_address):
        return device  # another card in this slot
    known = msgspec.structs.replace(device, link_type=device.link_type or seen.link_type)
    if not device.pf_name:
        known = msgspec.structs.replace(known, pf_name=seen.pf_name, pf_aliases=seen.pf_aliases)
    if not is_held:
        return known
    return msgspec.structs.replace(known, p_key=device.p_key or seen.p_key, rdma=device.rdma or seen.rdma)


def read_seen(path: Path) -> SeenDevices:
    """The file; nothing where there is none that can be read."""
    try:
        return _file_reader.read(read_head(path, _MAX_SEEN_BYTES + 1))
    except FileNotFoundError:
        return {}
    except (OSError, UnreadableError) as error:
        log.warning("Cannot read the file of known SR-IOV devices", path=str(path), error=str(error))
        return {}


def write_seen(path: Path, seen: SeenDevices) -> None:
    """Keep it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, msgspec.json.encode(seen, order="sorted"))
