"""kubelet's checkpoint file of the device manager: its exact text and checksum.

The checksum is FNV-1a (32 bit) over the text that Go's spew prints for the data; both are the same from 1.20 to 1.36.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from purser.lab.kubelet.devicemanager import Allocation, ContainerKey

FILE_NAME = "kubelet_internal_checkpoint"


class CheckpointError(ValueError):
    """A checkpoint that kubelet would not read; the message says why."""


class Entry(msgspec.Struct, frozen=True):
    """What one container holds of one resource."""

    PodUID: str
    ContainerName: str
    ResourceName: str
    DeviceIDs: dict[int, list[str]]
    AllocResp: bytes


class _Data(msgspec.Struct, frozen=True):
    PodDeviceEntries: list[Entry] | None
    RegisteredDevices: dict[str, list[str]] | None


class _File(msgspec.Struct, frozen=True):
    Data: _Data
    Checksum: int


def encode(
    allocations: Mapping[ContainerKey, Mapping[str, Allocation]], registered: Mapping[str, tuple[str, ...]]
) -> str:
    """The text of the file."""
    entries = [
        Entry(uid, container, resource, {n: list(ids) for n, ids in held.devices_per_numa.items()}, held.response)
        for (uid, container), of_container in allocations.items()
        for resource, held in of_container.items()
    ]
    return encode_data(entries or None, {name: list(ids) for name, ids in registered.items()})


def encode_data(entries: list[Entry] | None, registered: dict[str, list[str]] | None) -> str:
    """The text of the file, from its parts; None is Go's nil."""
    data = _Data(entries, registered)
    return _go_json({"Data": _as_json(data), "Checksum": checksum(data)})


def decode(text: str | bytes) -> tuple[dict[ContainerKey, dict[str, Allocation]], dict[str, list[str]]]:
    """Allocations and registered devices. Raises `CheckpointError` for bad JSON and for a checksum that is not its."""
    try:
        file = msgspec.json.decode(text, type=_File, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"not a checkpoint: {error}") from error
    if checksum(file.Data) != file.Checksum:
        raise CheckpointError("checkpoint is corrupted")
    allocations: dict[ContainerKey, dict[str, Allocation]] = {}
    for entry in file.Data.PodDeviceEntries or ():
        per_numa = {node: tuple(ids) for node, ids in entry.DeviceIDs.items()}
        held = allocations.setdefault((entry.PodUID, entry.ContainerName), {})
        held[entry.ResourceName] = Allocation(per_numa, entry.AllocResp)
    return allocations, file.Data.RegisteredDevices or {}


def checksum(data: _Data) -> int:
    """FNV-1a over Go's text of the data."""
    value = 0x811C9DC5
    for byte in spew(data).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def spew(data: _Data) -> str:
    """The data as spew's ``%#v`` prints it: types in brackets, maps sorted by key, strings bare."""
    entries = "<nil>"
    if data.PodDeviceEntries is not None:
        entries = "[" + " ".join(_spew_entry(entry) for entry in data.PodDeviceEntries) + "]"
    registered = "<nil>"
    if data.RegisteredDevices is not None:
        registered = _spew_map(data.RegisteredDevices)
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){registered}}}"
    )


def _spew_entry(entry: Entry) -> str:
    response = "[" + " ".join(str(byte) for byte in entry.AllocResp) + "]"
    return (
        f"{{PodUID:(string){entry.PodUID} ContainerName:(string){entry.ContainerName} "
        f"ResourceName:(string){entry.ResourceName} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){_spew_map(entry.DeviceIDs)} AllocResp:([]uint8){response}}}"
    )


def _spew_map(ids: Mapping[Any, list[str]]) -> str:
    return "map[" + " ".join(f"{key}:[{' '.join(ids[key])}]" for key in sorted(ids)) + "]"


def _as_json(data: _Data) -> dict[str, Any]:
    entries = data.PodDeviceEntries
    return {
        "PodDeviceEntries": None if entries is None else [_entry_as_json(entry) for entry in entries],
        "RegisteredDevices": data.RegisteredDevices and dict(sorted(data.RegisteredDevices.items())),
    }


def _entry_as_json(entry: Entry) -> dict[str, Any]:
    # Go sorts a map's keys as text: "10" before "2".
    ids = {str(node): of_node for node, of_node in entry.DeviceIDs.items()}
    return {
        "PodUID": entry.PodUID,
        "ContainerName": entry.ContainerName,
        "ResourceName": entry.ResourceName,
        "DeviceIDs": dict(sorted(ids.items())),
        "AllocResp": base64.b64encode(entry.AllocResp).decode(),
    }


def _go_json(value: object) -> str:
    """JSON as Go writes it: no spaces, and the three characters escaped that HTML would mind."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
