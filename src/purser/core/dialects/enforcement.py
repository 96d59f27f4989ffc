"""Whether the shares of a pod have to be held to their limits: by its own annotation, or by its namespace's."""

import msgspec

from purser.core.dialects.errors import Problems
from purser.core.grant.enforcement import possible_enforcements
from purser.core.model import DeviceRequest, Enforcement, SpecHold
from purser.core.names import ENFORCEMENT_ANNOTATION, ENFORCEMENT_REQUIRED
from purser.core.pod.manifest import PodManifest


def requires_enforcement(pod: PodManifest, problems: Problems) -> bool:
    """Whether pod or namespace require it: neither takes back what the other says. An invalid value is noted."""
    values = {
        "annotation": pod.annotations.get(ENFORCEMENT_ANNOTATION, ""),
        f"namespace {pod.namespace}: annotation": pod.enforcement_of_namespace,
    }
    for where, value in values.items():
        if value not in ("", ENFORCEMENT_REQUIRED):
            subject = f'{where} {ENFORCEMENT_ANNOTATION} "{value[:64]}"'
            problems.add(f'{subject} is not valid: set it to "{ENFORCEMENT_REQUIRED}", or remove it')
    return ENFORCEMENT_REQUIRED in values.values()


def held(devices: DeviceRequest, hold: SpecHold) -> DeviceRequest:
    """The same request, on devices only where its shares are held to their limits."""
    return msgspec.structs.replace(devices, held_by=possible_enforcements(hold, devices.count))


def vendor_enforcement(devices: DeviceRequest) -> DeviceRequest:
    """The same of another vendor's devices: their device plugin holds shares."""
    return msgspec.structs.replace(devices, held_by=(Enforcement.VENDOR, Enforcement.WHOLE_DEVICE))
