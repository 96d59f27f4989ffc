"""kubelet's checkpoint file of the device manager: its exact text and checksum.

The checksum is over the text that Go's spew prints for the data; both are the same from 1.20 to 1.37. Kubelets up to
1.19 wrote a list of device ids (V1), newer ones a map by NUMA node; both are read, V1's as devices of node 0.
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.core.kubelet.devicemanager.holdings import Held
from purser.core.kubelet.errors import CheckpointError
from purser.core.kubelet.gotext import MAX_STATE_BYTES, fnv1a_32, go_json
from purser.core.kubelet.state import Allocation, ContainerKey

FILE_NAME = "kubelet_internal_checkpoint"

Ids = list[str] | None
"""None is Go's nil, here and below: its checksum differs from that of an empty list."""


class PodDevicesEntry(msgspec.Struct, frozen=True):
    """What one container holds of one resource. Names of fields are the file's."""

    PodUID: str
    ContainerName: str
    ResourceName: str
    DeviceIDs: dict[int, Ids] | list[str] | None
    AllocResp: bytes | None


class Data(msgspec.Struct, frozen=True):
    """What the file says, as far as the checksum covers it."""

    PodDeviceEntries: list[PodDevicesEntry] | None
    RegisteredDevices: dict[str, Ids] | None


class _File(msgspec.Struct, frozen=True):
    Data: Data
    Checksum: int


class DeviceManagerCheckpoint(msgspec.Struct, frozen=True):
    """What kubelet remembers across a restart."""

    held: Held
    registered: Mapping[str, tuple[str, ...]]
    """The healthy devices of every resource."""


_file_reader = JsonReader(_File, FILE_NAME, max_bytes=MAX_STATE_BYTES, strict=False)


def encode(held: Held, registered: Mapping[str, tuple[str, ...]]) -> str:
    """The text of the file."""
    entries = [
        PodDevicesEntry(uid, container, name, {n: list(ids) for n, ids in one.devices_per_numa.items()}, one.response)
        for (uid, container), of_container in held.items()
        for name, one in of_container.items()
    ]
    return encode_data(Data(entries or None, {name: list(ids) for name, ids in registered.items()}))


def encode_data(data: Data) -> str:
    """The text of the file, from its parts."""
    return go_json({"Data": _as_json(data), "Checksum": fnv1a_32(spew(data))})


def decode(text: str | bytes) -> DeviceManagerCheckpoint:
    """What a file says. Raises `CheckpointError` for what is not a checkpoint and for a checksum that is not its."""
    data = decode_data(text)
    held: dict[ContainerKey, dict[str, Allocation]] = {}
    for entry in data.PodDeviceEntries or ():
        allocation = Allocation(_per_numa(entry.DeviceIDs), entry.AllocResp or b"")
        held.setdefault((entry.PodUID, entry.ContainerName), {})[entry.ResourceName] = allocation
    return DeviceManagerCheckpoint(
        held, {name: tuple(ids or ()) for name, ids in (data.RegisteredDevices or {}).items()}
    )


def decode_data(text: str | bytes) -> Data:
    """The parts of a file. Raises `CheckpointError`."""
    try:
        file = _file_reader.read(text)
    except UnreadableError as error:
        raise CheckpointError(f"not a valid device manager checkpoint: {error}") from error
    if fnv1a_32(spew(file.Data)) != file.Checksum:
        raise CheckpointError("checkpoint is corrupted")
    return file.Data


def spew(data: Data) -> str:
    """The data as spew's ``%#v`` prints it: types in brackets, maps sorted by key, strings bare."""
    entries = "<nil>"
    if data.PodDeviceEntries is not None:
        entries = f"[{' '.join(map(_spew_entry, data.PodDeviceEntries))}]"
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){_spew_map(data.RegisteredDevices)}}}"
    )


def _spew_entry(entry: PodDevicesEntry) -> str:
    ids: Any = entry.DeviceIDs
    ids = f"([]string){_spew_list(ids)}" if isinstance(ids, list) else f"(checkpoint.DevicesPerNUMA){_spew_map(ids)}"
    response = _spew_list(None if entry.AllocResp is None else list(map(str, entry.AllocResp)))
    return (
        f"{{PodUID:(string){entry.PodUID} ContainerName:(string){entry.ContainerName} "
        f"ResourceName:(string){entry.ResourceName} DeviceIDs:{ids} AllocResp:([]uint8){response}}}"
    )


def _spew_map(lists: Mapping[Any, Ids] | None) -> str:
    if lists is None:
        return "<nil>"
    return f"map[{' '.join(f'{key}:{_spew_list(lists[key])}' for key in sorted(lists))}]"


def _spew_list(words: Ids) -> str:
    return "<nil>" if words is None else f"[{' '.join(words)}]"


def _per_numa(ids: dict[int, Ids] | list[str] | None) -> dict[int, tuple[str, ...]]:
    if isinstance(ids, list):
        return {0: tuple(ids)}
    return {node: tuple(of_node or ()) for node, of_node in (ids or {}).items()}


def _as_json(data: Data) -> dict[str, Any]:
    entries = data.PodDeviceEntries
    return {
        "PodDeviceEntries": None if entries is None else [_entry_as_json(entry) for entry in entries],
        "RegisteredDevices": data.RegisteredDevices and dict(sorted(data.RegisteredDevices.items())),
    }


def _entry_as_json(entry: PodDevicesEntry) -> dict[str, Any]:
    ids: Any = entry.DeviceIDs
    if isinstance(ids, dict):
        # Go sorts a map's keys as text: "10" before "2".
        ids = dict(sorted((str(node), of_node) for node, of_node in ids.items()))
    return {
        "PodUID": entry.PodUID,
        "ContainerName": entry.ContainerName,
        "ResourceName": entry.ResourceName,
        "DeviceIDs": ids,
        "AllocResp": None if entry.AllocResp is None else base64.b64encode(entry.AllocResp).decode(),
    }
