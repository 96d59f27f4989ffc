"""HAMi's file of nodes (``nodeconfig``), read for one node as if NVIDIA's device plugin's file said the same.

Source: the ConfigMap ``hami-device-plugin`` of HAMi v2.10, key ``config.json``: a list of nodes by exact name.
"""

from typing import Any, Literal

import msgspec

from purser.core.decoding import UnreadableError, converted
from purser.core.sharing.file import Flags, PluginFile, SharingError
from purser.core.sharing.words import MigStrategy

NODES = "nodeconfig"
"""The key by which the file is known."""

_FILE = f"HAMi's {NODES}"


class _Filter(msgspec.Struct, frozen=True):
    uuid: tuple[str, ...] | None = None
    index: tuple[int, ...] | None = None


class _Node(msgspec.Struct, frozen=True):
    name: str
    operatingmode: Literal["", "hami-core", "mig", "mps"] = ""
    migstrategy: Literal["", "none", "single", "mixed"] = ""
    devicesplitcount: int | None = None
    devicememoryscaling: float | None = None
    devicecorescaling: float | None = None
    preconfigureddevicememory: int | None = None
    libcudaloglevel: int | None = None
    filterdevices: _Filter | None = None


class _File(msgspec.Struct, frozen=True):
    nodeconfig: tuple[dict[str, Any], ...] = ()


def is_hami_file(value: Any) -> bool:
    """Whether parsed YAML or JSON is such a file."""
    return isinstance(value, dict) and NODES in value


def hami_file(value: Any, node: str) -> tuple[PluginFile, tuple[str, ...]]:
    """What the file says of a node, and a sentence for each thing that it says without effect.

    A node that is not in it has HAMi's defaults; entries of other nodes are not looked at. Raises `SharingError`.
    """
    try:
        entries = converted(value, _File, _FILE).nodeconfig
        entry = next((each for each in entries if each.get("name") == node), None)
        if entry is None:
            return PluginFile(), ()
        said = {key: each for key, each in entry.items() if each is not None}
        found = converted(said, _Node, f"{_FILE}, node {node}")
    except UnreadableError as error:
        raise SharingError(str(error)) from error
    on_demand = MigStrategy.ON_DEMAND if found.operatingmode == "mig" else None
    return PluginFile(flags=Flags(mig_strategy=on_demand or found.migstrategy or None)), _notes(found)


def _notes(node: _Node) -> tuple[str, ...]:
    filtered = node.filterdevices is not None and bool(node.filterdevices.uuid or node.filterdevices.index)
    overbooked = "pods are granted no more of a GPU than there is"
    said = (
        ("operatingmode mps", node.operatingmode == "mps", "agent.enforcement of the chart starts MPS daemons"),
        (
            "devicesplitcount",
            bool(node.devicesplitcount),
            "agent.slots of the chart is how many share a GPU",
        ),
        ("devicememoryscaling", node.devicememoryscaling not in (None, 0, 1), overbooked),
        ("devicecorescaling", node.devicecorescaling not in (None, 0, 1), overbooked),
        ("preconfigureddevicememory", bool(node.preconfigureddevicememory), "a GPU has the memory that NVML reports"),
        ("libcudaloglevel", node.libcudaloglevel is not None, "a container's variable LIBCUDA_LOG_LEVEL counts"),
        ("filterdevices", filtered, "cordon these GPUs (purser cordon gpu)"),
    )
    return tuple(f"{_FILE}: {key} has no effect: {instead}" for key, is_said, instead in said if is_said)
