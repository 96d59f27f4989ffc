"""What holds a container to its share: a function of its spec, its shares and its devices.

The scheduler, which signs the answer in the grant, and the agent, which acts on it, ask the same function, so that
record, events, metrics and environment say the same.
"""

import posixpath
from collections.abc import Collection

from purser.core.grant.share_variables import (
    CORE_POLICY,
    CORE_POLICY_OFF,
    DISABLE_CONTROL,
    LIMITS,
    LOADER_VARIABLES,
    MPS,
    VariableNames,
)
from purser.core.model import ContainerGrant, Enforcement, LibraryHold, SpecHold
from purser.core.pod.manifest import ContainerEnvVar, ContainerSpec

_LIMIT_VARIABLES = VariableNames(
    LIMITS.exact | LOADER_VARIABLES.exact | {CORE_POLICY}, (*LIMITS.families, *MPS.families)
)
"""What can lift a limit that HAMi-core or MPS holds."""

_WORDS = {
    Enforcement.HAMI_CORE: {
        LibraryHold.FULL: Enforcement.HAMI_CORE,
        LibraryHold.MEMORY: Enforcement.HAMI_CORE_MEMORY,
        LibraryHold.ADVISORY: Enforcement.HAMI_CORE_ADVISORY,
    },
    Enforcement.MPS: {
        LibraryHold.FULL: Enforcement.MPS,
        LibraryHold.MEMORY: Enforcement.MPS,  # which knows nothing of the variable
        LibraryHold.ADVISORY: Enforcement.MPS_ADVISORY,
    },
}
"""Of a container, by what holds shares of its devices and what its spec lets be held."""

OF_DEVICES = (
    Enforcement.MIG,
    Enforcement.MPS,
    Enforcement.HAMI_CORE,
    Enforcement.WHOLE_DEVICE,
    Enforcement.TIME_SLICING,
    Enforcement.NONE,
)
"""What may hold shares of NVIDIA's devices."""

SHARED_MEMORY = "/dev/shm"
"""Where a container and its MPS daemon meet. kubelet mounts volumes of the pod over what a device plugin mounts."""

_EXCLUSIVE_ENFORCEMENTS = (Enforcement.MIG, Enforcement.WHOLE_DEVICE)
"""Devices with room for one container: whatever it does, it has no neighbours."""


def control_is_disabled(container: ContainerSpec) -> bool:
    """Whether the container asks not to be limited, by a variable with a literal value: others are not resolved before
    it runs."""
    return any(variable.name == DISABLE_CONTROL and variable.value.lower() == "true" for variable in container.env)


def spec_hold(container: ContainerSpec) -> SpecHold:
    """How a container can be held to its share whose spec is this."""
    paths = (posixpath.normpath(f"/{mount.mount_path.lstrip('/')}") for mount in container.mounts)
    return SpecHold(_library_hold(container), by_mps=SHARED_MEMORY not in paths)


def _library_hold(container: ContainerSpec) -> LibraryHold:
    if control_is_disabled(container):
        return LibraryHold.OFF
    if any(map(_disables_limits, container.env)) or any(
        _LIMIT_VARIABLES.matches_prefix(each.prefix) for each in container.env_from
    ):
        return LibraryHold.ADVISORY
    policy = next((each.value for each in reversed(container.env) if each.name == CORE_POLICY), "")
    return LibraryHold.MEMORY if policy in CORE_POLICY_OFF else LibraryHold.FULL


def enforcement_of(part: ContainerGrant, hold: SpecHold, of_devices: Collection[Enforcement]) -> Enforcement:
    """What holds a container to its part of a grant; ``of_devices``: what holds shares of each of its devices."""
    shared = set(of_devices).difference(_EXCLUSIVE_ENFORCEMENTS)
    if of_devices and not shared:
        return Enforcement.MIG if Enforcement.MIG in of_devices else Enforcement.WHOLE_DEVICE
    if part.is_whole:
        return Enforcement.WHOLE_DEVICE
    if len(shared) != 1:
        return Enforcement.NONE  # no two are in one container
    word = _share_enforcement(shared.pop(), hold, len(set(part.uuids)))
    if word is Enforcement.HAMI_CORE_MEMORY and not any(0 < share.cores_percent < 100 for share in part.shares):
        return Enforcement.HAMI_CORE  # there is no limit of compute to lift
    return word


def possible_enforcements(hold: SpecHold, count: int) -> tuple[Enforcement, ...]:
    """Of what may hold shares of devices all that holds a container with shares of so many, or with so many parts."""
    return tuple(word for word in OF_DEVICES if not _share_enforcement(word, hold, count).is_advisory)


def _share_enforcement(of_device: Enforcement, hold: SpecHold, count: int) -> Enforcement:
    """What holds a container to shares of so many such devices. A client has one MPS daemon, and each device its
    own."""
    if of_device in _EXCLUSIVE_ENFORCEMENTS or of_device is Enforcement.VENDOR:
        return of_device
    if of_device is Enforcement.MPS and (count > 1 or not hold.by_mps):
        of_device = Enforcement.TIME_SLICING
    if hold.limits is LibraryHold.OFF:
        return Enforcement.NONE
    return _WORDS[of_device][hold.limits] if of_device in _WORDS else of_device


def _disables_limits(variable: ContainerEnvVar) -> bool:
    if variable.name == CORE_POLICY:
        return not variable.is_plain
    return _LIMIT_VARIABLES.has(variable.name)
