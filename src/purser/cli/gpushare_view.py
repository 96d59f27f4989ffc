"""The tables of ``kubectl inspect gpushare``, for people and scripts that read those.

Layout of gpushare-device-plugin's ``cmd/inspect/display.go``. Each GPU has its own total here, and there is no
column for pods that wait: none of Purser's is on a node without its GPU.
"""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING

from purser.core.device.ids import MAX_NODE_DEVICES

if TYPE_CHECKING:
    from purser.core.fleet import DeviceState, NodeState
    from purser.core.model import Grant

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
    lines = [
        *_align_rows([head, *rows]),
        rule,
        "Allocated/Total GPU Memory In Cluster:",
        f"{used}/{total} ({percent}%)",
    ]
    return "\n".join(lines)


def gpushare_details(
    nodes: "Iterable[NodeState]", grants: "Iterable[Grant]", addresses: Mapping[str, str], unit_mib: int = 1024
) -> str:
    """The tables of ``kubectl inspect gpushare -d``: a node's pods, with what each holds of each of its GPUs.

    A pod has one row, whatever number of GPUs it holds.
    """
    by_node: dict[str, list[Grant]] = {}
    for grant in sorted(grants, key=lambda each: (each.namespace, each.pod)):
        by_node.setdefault(grant.node, []).append(grant)
    lines, sums = list[str](), list[tuple[int, int]]()
    for node in sorted(nodes, key=lambda each: each.name):
        gpus = _by_index(node.devices, unit_mib)
        used, total = _sum(gpus.values())
        if not total:
            continue
        sums.append((used, total))
        columns = _columns(node.devices)
        rows = [_pod_row(grant, columns, len(_header(gpus)), unit_mib) for grant in by_node.get(node.name, ())]
        table = [["NAME", "NAMESPACE", *_header(gpus)], *rows]
        ends = [["Allocated :", f"{used} ({100 * used // total}%)"], ["Total :", f"{total}"]]
        shown = _align_rows([*table, *ends])
        lines += ["", *_align_rows([["NAME:", node.name], ["IPADDRESS:", addresses.get(node.name, "unknown")]]), ""]
        lines += [*shown, "-" * max(map(len, shown))]
    used, total = _sum(sums)
    percent = 100 * used // total if total else 0
    return "\n".join([*lines, "", "", f"Allocated/Total GPU Memory In Cluster:  {used}/{total} ({percent}%)"])


def _header(gpus: Mapping[int, object]) -> list[str]:
    return [f"GPU{index}(Allocated)" for index in range(max(gpus) + 1)]


def _pod_row(grant: "Grant", columns: Mapping[str, int], count: int, unit_mib: int) -> list[str]:
    held = [0] * count
    for part in grant.containers:
        for share in part.shares:
            if (column := columns.get(share.uuid)) is not None:
                held[column] += share.memory_mib
    return [grant.pod, grant.namespace, *(f"{_units(each, unit_mib)}" for each in held)]


def listed_unit_mib(memory: int, gpus: int) -> int:
    """1 for MiB or 1024 for GiB, by what nodes list of ``aliyun.com/gpu-mem`` and ``aliyun.com/gpu-count``.

    As ``kubectl inspect gpushare`` tells them apart, which takes more than 100 per GPU for MiB.
    """
    return 1 if memory > _MIB_PER_GIB * max(gpus, 1) else _MIB_PER_GIB


def _by_index(devices: "Iterable[DeviceState]", unit_mib: int) -> dict[int, tuple[int, int]]:
    """Allocated and total units by column; MIG devices of a GPU have its column, and are added up."""
    listed = list(devices)
    columns = _columns(listed)
    found: dict[int, tuple[int, int]] = {}
    for state in listed:
        if (column := columns.get(state.device.uuid)) is not None:
            total = state.device.memory_mib // unit_mib
            used = min(_units(state.usage.memory_mib, unit_mib), total)
            found[column] = _sum([found.get(column, _NOTHING), (used, total)])
    return found


def _columns(devices: "Iterable[DeviceState]") -> dict[str, int]:
    """The column of each GPU, by uuid: its index.

    Nodes write their indexes themselves: where one is beyond all that a node can have, the node's GPUs are numbered in
    its order, since every index below the highest has a column.
    """
    indexes = {state.device.uuid: state.device.index for state in devices if state.device.vendor == "nvidia"}
    if max(indexes.values(), default=0) < MAX_NODE_DEVICES:
        return indexes
    places = {index: place for place, index in enumerate(sorted(set(indexes.values())))}
    return {uuid: places[index] for uuid, index in indexes.items()}


def _units(memory_mib: int, unit_mib: int) -> int:
    return -(-memory_mib // unit_mib)


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    listed = list(pairs)
    return sum(used for used, _ in listed), sum(total for _, total in listed)


def _fraction(pair: tuple[int, int]) -> str:
    return f"{pair[0]}/{pair[1]}"


def _align_rows(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) + _PADDING for column in zip_longest(*rows, fillvalue="")]
    return ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
