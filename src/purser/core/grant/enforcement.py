"""What holds a container to its share: a function of its spec, its shares and its node.

The scheduler, which signs the answer in the grant, and the agent, which acts on it, ask the same function, so that
record, events, metrics and environment say the same.
"""

from purser.core.grant.share_variables import CORE_POLICY, CORE_POLICY_OFF, DISABLE_CONTROL, LIMITS, LOADER, Names
from purser.core.model import ContainerGrant, Enforcement, LibraryHold
from purser.core.pod.manifest import ContainerEnvVar, ContainerSpec

_LIFTING = Names(LIMITS.exact | LOADER.exact | {CORE_POLICY}, LIMITS.families)
"""What can lift a limit that HAMi-core holds."""

_WORDS = {
    LibraryHold.FULL: Enforcement.HAMI_CORE,
    LibraryHold.MEMORY: Enforcement.HAMI_CORE_MEMORY,
    LibraryHold.ADVISORY: Enforcement.HAMI_CORE_ADVISORY,
    LibraryHold.OFF: Enforcement.NONE,
}


def control_is_disabled(container: ContainerSpec) -> bool:
    """Whether the container asks not to be limited; in plain text, for nobody looks elsewhere before it runs."""
    return any(variable.name == DISABLE_CONTROL and variable.value.lower() == "true" for variable in container.env)


def library_hold(container: ContainerSpec) -> LibraryHold:
    """How much of its limits HAMi-core's library could hold a container to, whose spec is this."""
    if control_is_disabled(container):
        return LibraryHold.OFF
    if any(map(_lifts, container.env)) or any(_LIFTING.reachable_behind(each.prefix) for each in container.env_from):
        return LibraryHold.ADVISORY
    policy = next((each.value for each in reversed(container.env) if each.name == CORE_POLICY), "")
    return LibraryHold.MEMORY if policy in CORE_POLICY_OFF else LibraryHold.FULL


def enforcement_of(part: ContainerGrant, hold: LibraryHold, of_node: Enforcement) -> Enforcement:
    """What holds a container to its part of a grant, on a node that can enforce this much."""
    if part.is_whole:
        return Enforcement.WHOLE_DEVICE
    if of_node is not Enforcement.HAMI_CORE:
        return Enforcement.NONE
    if hold is LibraryHold.MEMORY and not any(0 < share.cores_percent < 100 for share in part.shares):
        return Enforcement.HAMI_CORE  # there is no limit of compute to lift
    return _WORDS[hold]


def _lifts(variable: ContainerEnvVar) -> bool:
    if variable.name == CORE_POLICY:
        return not variable.is_plain
    return _LIFTING.has(variable.name)
