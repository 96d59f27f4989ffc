"""kubelet's file cpu_manager_state: its text, its checksum, and what of it kubelet refuses.

Four formats. V1 (up to 1.17) has CPUs by container id, V2 by pod and container, V3 (1.36, behind the alpha gate
PodLevelResourceManagers) those of whole pods too. The text of V2 and V3 is the same while no pod has any: they differ
in the checksum. It is FNV-1a over how Go prints the structure, which is named alike in all three. V4 (1.37) is V2 with
the whole, pods included, as a string under ``data``, and that string's own checksum.
"""

from collections.abc import Iterator, Mapping

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.kubelet.cpuset import CpuSet, cpus_of, format_cpuset, parse_cpuset
from purser.core.kubelet.errors import CheckpointError
from purser.core.kubelet.gotext import MAX_STATE_BYTES, data_hash_input, fnv1a_32, go_json, with_data_of
from purser.core.kubelet.state import ContainerKey, CpuState

FILE_NAME = "cpu_manager_state"
"""Below kubelet's root directory."""

Entries = Mapping[str, Mapping[str, str]]


class CpuManagerCheckpoint(msgspec.Struct, frozen=True):
    """What the file says; CPU sets as text."""

    policy: str
    default: str
    entries: Entries | None = None
    """By pod uid and container name; None is Go's nil map, which has a checksum of its own."""
    pod_entries: Mapping[str, str] | None = None
    """By pod uid; None: format V2."""
    container_ids: Mapping[str, str] | None = None
    """By container id: format V1, which has no other entries."""


class _PodEntry(msgspec.Struct, rename="camel"):
    cpu_set: str = ""


class _File(msgspec.Struct):
    """The file; ``entries`` has CPU sets by container id in V1."""

    policy_name: str = msgspec.field(name="policyName", default="")
    default_cpu_set: str = msgspec.field(name="defaultCpuSet", default="")
    entries: dict[str, dict[str, str] | str] | None = None
    pod_entries: dict[str, _PodEntry] | None = msgspec.field(name="podEntries", default=None)
    checksum: int = 0
    data: str | None = None
    data_checksum: int = msgspec.field(name="dataChecksum", default=0)


_file_reader = JsonReader(_File, FILE_NAME, max_bytes=MAX_STATE_BYTES)


def encode(state: CpuState | None, *, with_data: bool = False) -> str:
    """The file of a state as kubelet writes it: format V2, without CPUs for None (policy none). ``with_data``: V4."""
    if state is None:
        return to_json(CpuManagerCheckpoint("none", "", {}), with_data=with_data)
    entries: dict[str, dict[str, str]] = {}
    for (pod, container), cpus in state.exclusive.items():
        entries.setdefault(pod, {})[container] = format_cpuset(cpus)
    return to_json(CpuManagerCheckpoint("static", format_cpuset(state.default), entries), with_data=with_data)


def decode(text: str | bytes, policy: str, containers: Mapping[str, ContainerKey] | None = None) -> CpuState:
    """The state that the file of a kubelet with this policy holds; its reserved CPUs are for kubelet's start to find.

    ``containers``: by container id, for files of format V1. Raises `CheckpointError` with what kubelet puts between
    ``could not restore state from checkpoint:`` and the advice to drain the node and delete the file.
    """
    found = parse(text)
    entries = found.entries or {}
    if found.container_ids is not None:
        entries = _by_container(found.container_ids, containers or {})
    if found.policy != policy:
        raise CheckpointError(f'configured policy "{policy}" differs from state checkpoint policy "{found.policy}"')
    if found.pod_entries:
        raise CheckpointError(f"CPUs of whole pods ({', '.join(sorted(found.pod_entries))}) are not supported")
    default = _cpus(found.default, f'could not parse default cpu set "{found.default}"')
    return CpuState(default=default, reserved=0, exclusive=dict(_exclusive_cpus(entries)))


def _by_container(ids: Mapping[str, str], containers: Mapping[str, ContainerKey]) -> Entries:
    entries: dict[str, dict[str, str]] = {}
    for id_, cpus in ids.items():
        if id_ not in containers:
            raise CheckpointError(
                "error migrating v1 checkpoint state to v2 checkpoint state: "
                f"containerID '{id_}' not found in initial containers list"
            )
        pod, container = containers[id_]
        entries.setdefault(pod, {})[container] = cpus
    return entries


def _exclusive_cpus(entries: Entries) -> Iterator[tuple[ContainerKey, CpuSet]]:
    for pod, by_name in entries.items():
        for name, cpus in by_name.items():
            yield (pod, name), _cpus(cpus, f'could not parse cpuset "{cpus}" for container "{name}" in pod "{pod}"')


def _cpus(text: str, problem: str) -> CpuSet:
    try:
        return parse_cpuset(text)
    except ValueError as error:
        raise CheckpointError(brief(f"{problem}: {error}")) from error


def parse(text: str | bytes) -> CpuManagerCheckpoint:
    """The file's content in the format that its checksum fits. Raises `CheckpointError`."""
    file = _read(text)
    if file.data is not None:
        if fnv1a_32(data_hash_input(file.data)) != file.data_checksum:
            raise CheckpointError("could not load v4 checkpoint: checkpoint is corrupted")
        content = _read(file.data)
        entries = {key: value for key, value in (content.entries or {}).items() if not isinstance(value, str)}
        if len(entries) < len(content.entries or {}):
            raise CheckpointError(
                "could not load v4 checkpoint: its entries are keyed by container ID, not by pod and container"
            )
        return CpuManagerCheckpoint(content.policy_name, content.default_cpu_set, entries, _pods(content))
    for found in _interpretations(file):
        if fnv1a_32(hash_input(found)) == file.checksum:
            return msgspec.structs.replace(found, entries=found.entries or {})
    raise CheckpointError("checkpoint is corrupted")


def _read(text: str | bytes) -> _File:
    try:
        return _file_reader.read(text)
    except UnreadableError as error:
        raise CheckpointError(f"checkpoint is corrupted: {error}") from error


def _pods(file: _File) -> dict[str, str]:
    return {uid: entry.cpu_set for uid, entry in (file.pod_entries or {}).items()}


def _interpretations(file: _File) -> Iterator[CpuManagerCheckpoint]:
    """What a file may mean, format by format."""
    ids = {key: value for key, value in (file.entries or {}).items() if isinstance(value, str)}
    entries = {key: value for key, value in (file.entries or {}).items() if not isinstance(value, str)}
    pods = _pods(file)
    if not entries:
        yield CpuManagerCheckpoint(file.policy_name, file.default_cpu_set, container_ids=ids)
    if ids:
        return
    for found in (entries, None) if not entries else (entries,):
        yield CpuManagerCheckpoint(file.policy_name, file.default_cpu_set, found, pods)
        if not pods:
            yield CpuManagerCheckpoint(file.policy_name, file.default_cpu_set, found)


def to_json(checkpoint: CpuManagerCheckpoint, *, with_data: bool = False) -> str:
    """The text of the file, as Go's encoder writes it; ``with_data``: in format V4, from the content of V2."""
    entries: Mapping[str, object] = checkpoint.container_ids or {
        pod: _sorted(found) for pod, found in (checkpoint.entries or {}).items()
    }
    pods = {pod: {"cpuSet": cpus} for pod, cpus in (checkpoint.pod_entries or {}).items()}
    content = {
        "policyName": checkpoint.policy,
        "defaultCpuSet": checkpoint.default,
        **({"entries": _sorted(entries)} if entries else {}),
        **({"podEntries": _sorted(pods)} if pods else {}),
    }
    file = {**content, "checksum": fnv1a_32(hash_input(checkpoint))}
    return go_json(with_data_of(file, content) if with_data else file)


def _sorted(mapping: Mapping[str, object]) -> dict[str, object]:
    return dict(sorted(mapping.items()))


def hash_input(checkpoint: CpuManagerCheckpoint) -> str:
    """What the checksum is taken of: the structure as Go's spew prints it, its checksum 0."""
    if checkpoint.container_ids is not None:
        entries = f"(map[string]string){_spew(checkpoint.container_ids)}"
    else:
        found = checkpoint.entries
        nested = None if found is None else {pod: _spew(containers) for pod, containers in found.items()}
        entries = f"(map[string]map[string]string){_spew(nested)}"
    return (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){checkpoint.policy} "
        f"DefaultCPUSet:(string){checkpoint.default} Entries:{entries}"
        f"{_spew_pods(checkpoint.pod_entries)} Checksum:(checksum.Checksum)0}}"
    )


def _spew_pods(pods: Mapping[str, str] | None) -> str:
    if pods is None:
        return ""
    entries = {pod: _spew_pod(cpus) for pod, cpus in pods.items()}
    return f" PodEntries:(state.PodCPUAssignments){_spew(entries)}"


def _spew_pod(cpus: str) -> str:
    members = cpus_of(_cpus(cpus, f'could not parse cpuset "{cpus}"'))
    elements = " ".join(f"{cpu}:{{}}" for cpu in members)
    return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elements}]}}}}"


def _spew(mapping: Mapping[str, str] | None) -> str:
    if mapping is None:
        return "<nil>"
    return f"map[{' '.join(f'{key}:{value}' for key, value in sorted(mapping.items()))}]"
