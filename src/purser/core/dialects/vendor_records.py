"""What a Binding tells the device plugin of another vendor's family: the annotations of `DeviceFamily.records`.

In them braces stand for parts of the grant (`purser.core.vendors.family.RECORD_FIELDS`). Meanings are those of HAMi
v2.10's ``PatchAnnotations`` (``pkg/device``).
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from purser.core.device.slicing import SliceProfile, Slicing, compute_percent
from purser.core.dialects.hami_codec import ContainerDevice, encode_pod_devices
from purser.core.dialects.vendor_amounts import asks_for_cores
from purser.core.model import ContainerGrant, DeviceShare, Grant, NodeInventory
from purser.core.pod.manifest import PodManifest
from purser.core.vendors.family import DeviceFamily

_NANOSECONDS = 10**9


def vendor_record(
    family: DeviceFamily, pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int
) -> dict[str, str]:
    """What HAMi's scheduler would write for the vendor's plugin."""
    held = [part.shares if (part := grant.of(each.name)) is not None else () for each in pod.containers]
    shares = [share for of_container in held for share in of_container]
    indices = {device.uuid: device.index for device in inventory.devices}
    slicings = {device.uuid: device.slicing for device in inventory.devices if device.slicing is not None}
    is_soft = family.is_soft(pod.annotations)
    places = [indices[share.uuid] for share in shares if share.uuid in indices]
    first = shares[0] if shares else DeviceShare("", 0, 0)
    profiles = _profiles(pod, grant, inventory)
    chosen = next(iter(profiles.values()), None)
    fields = {
        "node": grant.node,
        "seconds": at_ns // _NANOSECONDS,
        "nanoseconds": at_ns,
        "devices": encode_pod_devices([[_device(family, share, slicings, is_soft) for share in each] for each in held]),
        "indices": ",".join(map(str, places)),
        "numbers": ",".join(map(str, _numbers(family, pod, grant, indices))),
        "count": len(shares),
        "index": places[0] if places else "",
        "cores": family.cores_of(first.cores_percent),
        "memory": first.memory_mib // family.memory_unit_mib(),
        "minor": "" if chosen is None else chosen[0].minor,
        "slices": "" if chosen is None else chosen[1].slices,
        "profiles": _enflame_record(profiles),
        "by_container": _metax_record(held),
        "templates": _ascend_record(family, shares, is_soft),
    }
    records = dict(family.records)
    if len(shares) > 1:
        records |= family.several_records
    if any(asks_for_cores(family, container) for container in pod.containers):
        records |= family.core_records
    return {name: value.format_map(fields) for name, value in records.items()}


def _device(
    family: DeviceFamily, share: DeviceShare, slicings: Mapping[str, Slicing], is_soft: bool
) -> ContainerDevice:
    slicing = slicings.get(share.uuid)
    profile = None if slicing is None else slicing.profile(share.profile)
    if slicing is not None and profile is not None:
        cores = compute_percent(slicing, profile)
    elif family.cores is not None and family.cores.numbered:
        # As a mask, as HAMi counts them.
        cores = sum(1 << number for number in share.core_numbers) or family.whole_cores
    elif family.cores is None and share.is_whole and not is_soft:
        cores = family.whole_cores
    else:
        cores = family.cores_of(share.cores_percent)
    return ContainerDevice(share.uuid, family.word, share.memory_mib, cores)


def _numbers(family: DeviceFamily, pod: PodManifest, grant: Grant, indices: Mapping[str, int]) -> Iterator[int]:
    for container in pod.containers:
        part: ContainerGrant | None = grant.of(container.name)
        for share in () if part is None else part.shares:
            if share.uuid not in indices:
                continue
            if family.cores is not None and asks_for_cores(family, container):
                yield from (indices[share.uuid] * family.cores.per_device + number for number in share.core_numbers)
            else:
                yield indices[share.uuid]


def _metax_record(held: Sequence[Sequence[DeviceShare]]) -> str:
    """As MetaX's plugin reads it; what is zero is left out."""
    found = [
        [{"uuid": share.uuid, **_without_zeros(compute=share.cores_percent, vRam=share.memory_mib)} for share in each]
        for each in held
    ]
    return msgspec.json.encode(found).decode()


def _without_zeros(**amounts: int) -> dict[str, int]:
    return {name: value for name, value in amounts.items() if value}


def _profiles(pod: PodManifest, grant: Grant, inventory: NodeInventory) -> dict[str, tuple[Slicing, SliceProfile]]:
    """By container, the profile that it has of its device."""
    slicings = {device.uuid: device.slicing for device in inventory.devices if device.slicing is not None}
    found = {}
    for container in pod.containers:
        part = grant.of(container.name)
        for share in () if part is None else part.shares[:1]:
            slicing = slicings.get(share.uuid)
            profile = None if slicing is None else slicing.profile(share.profile)
            if slicing is not None and profile is not None:
                found[container.name] = slicing, profile
    return found


def _enflame_record(profiles: Mapping[str, tuple[Slicing, SliceProfile]]) -> str:
    """As Enflame's plugin reads it, in the order of Go's maps."""
    found = {
        name: {
            "allocated": False,
            "request": profile.slices,
            "profileID": profile.number,
            "profileName": profile.name,
        }
        for name, (_, profile) in sorted(profiles.items())
    }
    return msgspec.json.encode(found).decode()


def _ascend_record(family: DeviceFamily, shares: Sequence[DeviceShare], is_soft: bool) -> str:
    """As Ascend's plugin reads it; what is empty is left out."""
    found: list[dict[str, str | int]] = []
    for share in shares:
        template = None if share.is_whole or is_soft else family.template_for(share.memory_mib)
        named: dict[str, str | int] = {} if template is None else {"temp": template.name}
        cores = _without_zeros(core=share.cores_percent) if is_soft else {}
        found.append({"UUID": share.uuid, **named, "memory": share.memory_mib, **cores})
    return msgspec.json.encode(found).decode()
