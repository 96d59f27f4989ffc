"""Cordons GPUs of a node, and uncordons them: one write to the node, and none where nothing changes."""

from collections.abc import Sequence

from purser.adapters.nodes import inventory_of
from purser.core.model import Device
from purser.core.node.cordons import cordoned, cordoned_gpus, uncordon_annotations
from purser.core.vendors.catalogue import FAMILIES
from purser.kube import Client, ConflictError, NotFoundError
from purser.kube.resources import NODES

MIN_UUID_PREFIX = 4
"""Characters of a uuid that name a GPU."""


class UnknownGpuError(Exception):
    """The node has no such GPU, or several; the message says which it has."""


async def named_gpus(client: Client, node_name: str, words: Sequence[str]) -> tuple[str, ...]:
    """The uuids of GPUs that people name by index, uuid, or the beginning of a uuid. A GPU that is cordoned is known,
    though the node may have lost it.

    Raises `UnknownGpuError`, also where there is no such node, `InventoryError`, and `KubeError`.
    """
    try:
        node = await client.get(NODES, node_name)
    except NotFoundError:
        raise UnknownGpuError(f"node {node_name} does not exist: purser get nodes lists the nodes with GPUs") from None
    lost = cordoned_gpus(node.metadata.annotations)
    if set(words) <= set(lost):
        return tuple(dict.fromkeys(words))
    inventory = inventory_of(node, FAMILIES)
    devices = () if inventory is None else inventory.devices
    return tuple(dict.fromkeys(_resolve_gpu(node_name, each, devices, lost) for each in words))


def _resolve_gpu(node_name: str, word: str, devices: Sequence[Device], lost: Sequence[str]) -> str:
    """The one that is meant. A number is an index, which MIG devices do not have."""
    known = dict.fromkeys((*(device.uuid for device in devices), *lost))
    if word in known:
        return word
    if word.isdecimal():
        found = [device.uuid for device in devices if not device.parent and str(device.index) == word]
    elif len(word.removeprefix("GPU-").removeprefix("MIG-")) >= MIN_UUID_PREFIX:
        found = [uuid for uuid in known if uuid.startswith(word) or uuid.partition("-")[2].startswith(word)]
    else:
        found = []
    if len(found) == 1:
        return found[0]
    if found:
        instead = "the UUID" if word.isdecimal() else "more of the UUID"
        raise UnknownGpuError(f"{word} on node {node_name} is ambiguous: it matches {', '.join(found)}; use {instead}")
    raise UnknownGpuError(f"node {node_name} has no GPU {word}: {_describe_gpus(devices)}")


async def cordon_gpus(client: Client, node_name: str, uuids: Sequence[str]) -> bool:
    """Keep new pods off these GPUs; whether anything was written.

    Raises `UnknownGpuError`, `InventoryError`, and `KubeError` (`NotFoundError`: there is no such node).
    """
    node = await client.get(NODES, node_name)
    inventory = inventory_of(node, FAMILIES)
    devices = () if inventory is None else inventory.devices
    known = {device.uuid for device in devices}
    unknown = [uuid for uuid in uuids if uuid not in known]
    if unknown:
        raise UnknownGpuError(f"node {node_name} has no GPU {', '.join(unknown)}: {_describe_gpus(devices)}")
    return await _change(client, node_name, uuids, cordon=True)


def _describe_gpus(devices: Sequence[Device]) -> str:
    if not devices:
        return "no agent or device plugin lists any GPU there"
    if not any(each.parent for each in devices):
        indices = sorted(each.index for each in devices)
        which = f"an index from {indices[0]} to {indices[-1]}" if len(indices) > 1 else f"index {indices[0]}"
        return f"must be {which}, or a UUID"
    has = ", ".join(f"{'MIG device of ' if each.parent else ''}GPU {each.index} ({each.uuid})" for each in devices)
    return f"it has {has}. Specify a GPU with MIG enabled by the UUIDs of its MIG devices"


async def uncordon_gpus(client: Client, node_name: str, uuids: Sequence[str]) -> bool:
    """Uncordon these GPUs, by whichever annotation they were cordoned; returns whether anything was written. Raises
    `KubeError`."""
    return await _change(client, node_name, uuids, cordon=False)


async def _change(client: Client, node_name: str, uuids: Sequence[str], *, cordon: bool) -> bool:
    while True:
        meta = (await client.get(NODES, node_name)).metadata
        changes = (cordoned if cordon else uncordon_annotations)(meta.annotations, uuids)
        if not changes:
            return False
        patch = {"metadata": {"annotations": changes, "resourceVersion": meta.resource_version}}
        try:
            await client.patch_merge(NODES, node_name, patch)
        except ConflictError:
            continue  # kubelet and agent write to the node, too: what stands there now is read again
        return True
