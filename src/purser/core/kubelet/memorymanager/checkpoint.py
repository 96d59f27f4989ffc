"""The text of kubelet's memory_manager_state, in the three formats that kubelets read.

The first has no pod entries (up to 1.36, without the gate PodLevelResourceManagers); the second has ``podEntries``; the
third (1.37) carries the whole as a string under ``data`` and its checksum under ``dataChecksum``. Each checksum is
FNV-1a over what Go's spew prints of the value. Pod entries are read for the checksum only: allocations of whole pods
are behind a gate that is off by default, and not part of `MemoryState`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.core.kubelet.errors import CheckpointError
from purser.core.kubelet.gotext import MAX_STATE_BYTES, data_hash_input, fnv1a_32, go_json, with_data_of
from purser.core.kubelet.masks import MAX_NUMA_NODE, Mask, mask_of, nodes_of
from purser.core.kubelet.state import MemoryBlock, MemoryNode, MemoryState, MemoryTable

FILE_NAME = "memory_manager_state"

V = TypeVar("V")
NodeNumbers = list[int] | None


class _Table(msgspec.Struct, frozen=True, rename="camel"):
    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


class _Node(msgspec.Struct, frozen=True, rename="camel"):
    number_of_assignments: int = 0
    memory_map: dict[str, _Table] | None = None
    cells: NodeNumbers = None


class _Block(msgspec.Struct, frozen=True):
    affinity: NodeNumbers = msgspec.field(default=None, name="numaAffinity")
    type: str = ""
    size: int = 0


class _PodEntry(msgspec.Struct, frozen=True, rename="camel"):
    memory_blocks: list[_Block] | None = None


class _File(msgspec.Struct, frozen=True, rename="camel"):
    policy_name: str = ""
    machine_state: dict[int, _Node] | None = {}
    entries: dict[str, dict[str, list[_Block] | None] | None] | None = {}
    pod_entries: dict[str, _PodEntry] | None = {}
    checksum: int = 0
    data: str | None = None
    data_checksum: int = 0


_file_reader = JsonReader(_File, FILE_NAME, max_bytes=MAX_STATE_BYTES, strict=False)


def encode(policy: str, state: MemoryState, *, with_data: bool = False) -> str:
    """The file's text in the first format, which every kubelet reads; ``with_data``: in the third, which is the first
    with additions."""
    file = _File(
        policy_name=policy,
        machine_state={number: _encode_node(node) for number, node in state.nodes.items()},
        entries=_encode_entries(state),
    )
    value = {"policyName": policy, "machineState": _sorted_as_text(file.machine_state or {})}
    if file.entries:
        value["entries"] = _sorted_as_text(file.entries)
    checksum = fnv1a_32(_spew(file, "MemoryManagerCheckpoint", with_pods=False))
    written = {**value, "checksum": checksum}
    return go_json(with_data_of(written, value) if with_data else written)


def _encode_node(node: MemoryNode) -> _Node:
    tables = {name: _Table(*msgspec.structs.astuple(table)) for name, table in node.tables.items()}
    return _Node(node.assignments, tables, list(nodes_of(node.group)))


def _encode_entries(state: MemoryState) -> dict[str, dict[str, list[_Block] | None] | None]:
    entries: dict[str, dict[str, list[_Block] | None]] = {}
    for (uid, container), blocks in state.blocks.items():
        entries.setdefault(uid, {})[container] = [_Block(list(nodes_of(b.nodes)), b.resource, b.size) for b in blocks]
    return {**entries}


def _sorted_as_text(value: Any) -> Any:
    """JSON values with every mapping in Go's order: sorted by its keys as text."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _sorted_as_text(getattr(value, field.name)) for field in msgspec.structs.fields(value)
        }
    if isinstance(value, dict):
        return {key: _sorted_as_text(item) for key, item in sorted((str(key), item) for key, item in value.items())}
    return [_sorted_as_text(item) for item in value] if isinstance(value, list) else value


def decode(text: str | bytes) -> tuple[str, MemoryState]:
    """The policy's name and the state. Raises `CheckpointError` for bad JSON, a wrong checksum or impossible nodes."""
    file = _parse(text)
    if file.data is not None:
        if fnv1a_32(data_hash_input(file.data)) != file.data_checksum:
            raise CheckpointError("checkpoint is corrupted")
        file = _parse(file.data)
    elif file.checksum and file.checksum not in _checksums(file):
        raise CheckpointError("checkpoint is corrupted")
    return file.policy_name, MemoryState(_nodes(file), _blocks(file))


def _parse(text: str | bytes) -> _File:
    try:
        return _file_reader.read(text)
    except UnreadableError as error:
        raise CheckpointError(f"not a valid {FILE_NAME} file: {error}") from error


def _checksums(file: _File) -> Iterable[int]:
    """The checksums that some kubelet would have written: the Go type's name is part of what is summed up."""
    yield fnv1a_32(_spew(file, "MemoryManagerCheckpoint", with_pods=False))
    yield fnv1a_32(_spew(file, "MemoryManagerCheckpoint", with_pods=True))
    yield fnv1a_32(_spew(file, "MemoryManagerCheckpointV1", with_pods=False))


def _nodes(file: _File) -> dict[int, MemoryNode]:
    return {number: _node(number, node) for number, node in sorted((file.machine_state or {}).items())}


def _node(number: int, node: _Node) -> MemoryNode:
    tables = {name: MemoryTable(*msgspec.structs.astuple(table)) for name, table in (node.memory_map or {}).items()}
    return MemoryNode(tables, _mask([number, *(node.cells or ())]), node.number_of_assignments)


def _blocks(file: _File) -> dict[tuple[str, str], tuple[MemoryBlock, ...]]:
    return {
        (uid, container): tuple(MemoryBlock(_mask(block.affinity or ()), block.type, block.size) for block in blocks)
        for uid, containers in (file.entries or {}).items()
        for container, blocks in (containers or {}).items()
        if blocks is not None
    }


def _mask(numbers: Iterable[int]) -> Mask:
    numbers = tuple(numbers)
    for number in numbers:
        if not 0 <= number <= MAX_NUMA_NODE:
            raise CheckpointError(f"{FILE_NAME} names NUMA node {number}: must be from 0 to {MAX_NUMA_NODE}")
    return mask_of(numbers)


def _spew(file: _File, type_name: str, *, with_pods: bool) -> str:
    """The file as spew's ``%#v`` prints it: types in brackets, maps sorted by key, pointers marked, strings bare."""
    pods = f" PodEntries:(state.PodMemoryAssignments){_map(file.pod_entries, _spew_pod)}" if with_pods else ""
    return (
        f"(*state.{type_name}){{PolicyName:(string){file.policy_name} "
        f"MachineState:(state.NUMANodeMap){_map(file.machine_state, _spew_node)} "
        f"Entries:(state.ContainerMemoryAssignments){_map(file.entries, _spew_containers)}{pods} "
        "Checksum:(checksum.Checksum)0}"
    )


def _map(values: Mapping[Any, V] | None, spew: Callable[[V], str]) -> str:
    if values is None:
        return "<nil>"
    return "map[" + " ".join(f"{key}:{spew(values[key])}" for key in sorted(values)) + "]"


def _list(values: list[V] | None, spew: Callable[[V], str]) -> str:
    return "<nil>" if values is None else "[" + " ".join(spew(value) for value in values) + "]"


def _spew_node(node: _Node) -> str:
    return (
        f"<*>{{NumberOfAssignments:(int){node.number_of_assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){_map(node.memory_map, _spew_table)} "
        f"Cells:([]int){_list(node.cells, str)}}}"
    )


def _spew_table(table: _Table) -> str:
    return (
        f"<*>{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} Free:(uint64){table.free}}}"
    )


def _spew_containers(containers: Mapping[str, list[_Block] | None] | None) -> str:
    return _map(containers, lambda blocks: _list(blocks, _spew_block))


def _spew_block(block: _Block) -> str:
    return (
        f"{{NUMAAffinity:([]int){_list(block.affinity, str)} "
        f"Type:(v1.ResourceName){block.type} Size:(uint64){block.size}}}"
    )


def _spew_pod(entry: _PodEntry) -> str:
    return f"{{MemoryBlocks:([]state.Block){_list(entry.memory_blocks, _spew_block)}}}"
