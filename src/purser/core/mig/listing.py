"""The ids under which a node lists a device to kubelet: of one that is cut on demand under several resources."""

from purser.core.device.ids import device_ids, part_ids
from purser.core.device.resources import mig_resource
from purser.core.mig.profiles import MIG_KINDS, MigKind
from purser.core.model import Device


def max_instances(kind: MigKind) -> int:
    """As many GPU instances as one GPU can have: of the smallest profile one in each place."""
    return max(len(profile.starts) for profile in kind.profiles if profile.memory_slices == 1)


def ids_by_resource(device: Device) -> dict[str, tuple[str, ...]]:
    """All ids of a device, by resource: of a GPU that is cut on demand a slot for each instance that it can have, and
    for each profile as many as there can be at once. No id is under two resources: agents look them up by the id
    alone."""
    found = {device.resource: device_ids(device)}
    if (kind := MIG_KINDS.get(device.mig_kind)) is not None:
        for profile in kind.profiles:
            most = 1 if profile.takes_media else len(profile.starts)  # there is one media extension
            found[mig_resource(profile.name)] = part_ids(device.uuid, profile.name, most)
    return found
