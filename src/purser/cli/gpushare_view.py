"""The table of ``kubectl inspect gpushare``, for people and scripts that read that one.

Layout of gpushare-device-plugin's ``cmd/inspect/display.go``. Each GPU has its own total here, and there is no
column for pods that wait: none of Purser's is on a node without its GPU.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from purser.core.device.ids import MAX_NODE_DEVICES

if TYPE_CHECKING:
    from purser.core.fleet import DeviceState, NodeState

_PADDING = 2
_RULE_BEYOND_FIRST_ROW = 20
_NOTHING = (0, 0)
_MIB_PER_GIB = 1024


def gpushare_table(nodes: "Iterable[NodeState]", addresses: Mapping[str, str], unit_mib: int = 1024) -> str:
    """Allocated and total memory of each GPU, node and the cluster. ``addresses``: InternalIP by node. ``unit_mib``: of
    what is counted, 1024 or 1.

    What is held in other words than gpushare's counts, rounded up to a unit.
    """
    listed = {node.name: _by_index(node.devices, unit_mib) for node in nodes}
    listed = {name: gpus for name, gpus in sorted(listed.items()) if sum(total for _, total in gpus.values())}
    most = max((index + 1 for gpus in listed.values() for index in gpus), default=0)
    unit = "GiB" if unit_mib == _MIB_PER_GIB else "MiB"
    head = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(most)), f"GPU Memory({unit})"]
    rows = [
        [
            name,
            addresses.get(name, "unknown"),
            *(_fraction(gpus.get(index, _NOTHING)) for index in range(most)),
            _fraction(_sum(gpus.values())),
        ]
        for name, gpus in listed.items()
    ]
    used, total = _sum(each for gpus in listed.values() for each in gpus.values())
    rule = "-" * (sum(len(cell) + 1 for cell in rows[0]) + _RULE_BEYOND_FIRST_ROW if rows else _RULE_BEYOND_FIRST_ROW)
    percent = 100 * used // total if total else 0
    lines = [*_aligned([head, *rows]), rule, "Allocated/Total GPU Memory In Cluster:", f"{used}/{total} ({percent}%)"]
    return "\n".join(lines)


def listed_unit_mib(memory: int, gpus: int) -> int:
    """1 for MiB or 1024 for GiB, by what nodes list of ``aliyun.com/gpu-mem`` and ``aliyun.com/gpu-count``.

    As ``kubectl inspect gpushare`` tells them apart, which takes more than 100 per GPU for MiB.
    """
    return 1 if memory > _MIB_PER_GIB * max(gpus, 1) else _MIB_PER_GIB


def _by_index(devices: "Iterable[DeviceState]", unit_mib: int) -> dict[int, tuple[int, int]]:
    """Allocated and total units; MIG devices of a GPU have its index, and are added up.

    Nodes write their indexes themselves: where one is beyond all that a node can have, the node's GPUs are numbered in
    its order, since every index below the highest has a column.
    """
    found: dict[int, tuple[int, int]] = {}
    for state in devices:
        if state.device.vendor == "nvidia":
            total = state.device.memory_mib // unit_mib
            used = min(-(-state.usage.memory_mib // unit_mib), total)
            found[state.device.index] = _sum([found.get(state.device.index, _NOTHING), (used, total)])
    if max(found, default=0) >= MAX_NODE_DEVICES:
        return {place: found[index] for place, index in enumerate(sorted(found))}
    return found


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    listed = list(pairs)
    return sum(used for used, _ in listed), sum(total for _, total in listed)


def _fraction(pair: tuple[int, int]) -> str:
    return f"{pair[0]}/{pair[1]}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) + _PADDING for column in zip(*rows, strict=True)]
    return ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
