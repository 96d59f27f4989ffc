"""Refusals in one sentence, as it stands in kube-scheduler's FailedScheduling event: how many nodes and GPUs stand
against the pod and for what reason, the largest obstacle first.

kube-scheduler counts nodes by the text that an extender gives for each: ``0/5 nodes are available: 3 node(s) had no
suitable GPU: ..., 2 node(s) had untolerated taint ...``. All nodes that Purser refuses therefore get the same text,
with counts of its own inside.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from purser.core.decoding import brief
from purser.core.device.modes import modes_text
from purser.core.device.resources import mig_resource
from purser.core.fleet import DeviceState, Fleet, rule
from purser.core.grant.quota import Demand, QuotaLimits, request_demand
from purser.core.mig.on_demand import asked_profile, can_use_instances, kind_of, named
from purser.core.model import DeviceRequest, Enforcement, PodRequest
from purser.core.names import DISPUTED_CONDITION, GPU_RESOURCE
from purser.core.placement.reasons import OTHER_INSTANCES_CLAUSE, Reason, Refusal, tally
from purser.core.placement.shape import takes_model

_EXAMPLES = 32
"""Nodes that are looked into for each refusal, for the models that there are or what ails a GPU: enough for people."""

_MODELS = 4
"""GPU models that are named."""

_MAX_MODEL_CHARACTERS = 64
"""Characters of a model's name."""


class _Tally(msgspec.Struct):
    """One reason over all nodes."""

    reason: Reason
    nodes: int = 0
    devices: int = 0
    memory_needed_mib: int = 0
    memory_free_mib: int = 0
    memory_largest_mib: int = 0
    cores_needed_percent: int = 0
    cores_free_percent: int = 0
    count_needed: int = 0
    container: str = ""
    detail: str = ""
    """One of them, where nodes have different ones."""
    dispute: str = ""
    """The same of `Refusal.dispute`; empty where no other pods may be named."""
    idle_only: bool = False
    """The pod's policy takes only unused GPUs."""
    examples: list[DeviceState] = []
    """Devices of some of these nodes."""

    def add(self, refusal: Refusal, devices: int, nodes: int) -> None:
        self.nodes += nodes
        self.devices += devices * nodes
        self.memory_needed_mib = max(self.memory_needed_mib, refusal.memory_needed_mib)
        self.memory_free_mib = max(self.memory_free_mib, refusal.memory_free_mib)
        self.memory_largest_mib = max(self.memory_largest_mib, refusal.memory_largest_mib)
        self.cores_needed_percent = max(self.cores_needed_percent, refusal.cores_needed_percent)
        self.cores_free_percent = max(self.cores_free_percent, refusal.cores_free_percent)
        self.count_needed = max(self.count_needed, refusal.count_needed)
        self.container = self.container or refusal.container
        self.detail = max(self.detail, refusal.detail)
        self.dispute = max(self.dispute, refusal.dispute)


def explain(
    refusals: Mapping[str, Refusal],
    request: PodRequest,
    fleet: Fleet,
    quota: str = "",
    *,
    idle_only: bool = False,
    lists: Callable[[str], bool] | None = None,
) -> str:
    """Such as ``node(s) had no suitable GPU: 16 GPUs on 2 nodes have less than 10240 MiB free (most: 8192 MiB)``.

    ``quota`` is the sentence on the namespace's quota where that is the obstacle; ``idle_only``: the pod's policy takes
    only unused GPUs. ``lists``: whether any node has a device, by uuid; without it all nodes are looked through.

    The pod's owner reads the sentence, so it names no other pod.
    """
    found = clauses(refusals, request, fleet, idle_only=idle_only, lists=lists)
    if quota and any(each.reason is Reason.QUOTA_NOT_FIT for each in found):
        return quota
    lead = f"container {found[0].container}: " if len(request.containers) > 1 and found and found[0].container else ""
    return f"node(s) had no suitable GPU: {lead}{'; '.join(each.text for each in found)}"


class Clause(msgspec.Struct, frozen=True):
    """One reason over all nodes, as a part of the sentence."""

    reason: Reason
    text: str
    nodes: int
    devices: int
    """0: it is about nodes as a whole."""
    container: str = ""
    """The first container that could not be placed, on one of them."""


def clauses(
    refusals: Mapping[str, Refusal],
    request: PodRequest,
    fleet: Fleet,
    *,
    idle_only: bool = False,
    lists: Callable[[str], bool] | None = None,
    names_pods: bool = False,
) -> list[Clause]:
    """The reasons of these refusals, the largest obstacle first. See `explain`.

    ``names_pods``: an operator reads them, so that they name the pods, of any namespace, on which a dispute is.
    """
    by_reason = _tally(refusals.values(), idle_only)
    if not names_pods and (disputed := by_reason.get(Reason.DISPUTED)):
        disputed.dispute = ""
    _find_examples(by_reason, refusals, fleet)
    if mismatch := by_reason.get(Reason.UUID_MISMATCH):
        mismatch.detail = _missing_everywhere(request, lists or _uuids(fleet).__contains__)
    tallies = sorted(by_reason.values(), key=lambda found: (-found.nodes, -found.devices, found.reason))
    devices = {container.name: container.devices for container in request.containers}
    return [
        Clause(
            found.reason,
            _clause(found, devices.get(found.container)),
            found.nodes,
            0 if found.reason in _NODE_CLAUSES else found.devices,
            found.container,
        )
        for found in tallies
    ]


def demand_over_quota(refusals: Mapping[str, Refusal], request: PodRequest, fleet: Fleet, left: QuotaLimits) -> Demand:
    """What the pod would use of its namespace's quota, where that was an obstacle: ``left`` does not hold it.

    Of memory in percent (of a whole GPU, too) as much as on the smallest GPU that is too large for what is left, among
    those of some nodes that were refused for it.
    """
    over = (name for name, each in refusals.items() if any(r is Reason.QUOTA_NOT_FIT for r, _ in each.counts))
    nodes = (node for name in islice(over, _EXAMPLES) if (node := fleet.node(name)) is not None)
    sizes = sorted({state.device.memory_mib for node in nodes for state in node.devices})
    found = (request_demand(_in_mib(request, size)) for size in sizes)
    return next((demand for demand in found if not left.holds(demand)), request_demand(request))


def _in_mib(request: PodRequest, memory_mib: int) -> PodRequest:
    """The request as it would be on GPUs with so much memory."""
    return msgspec.structs.replace(
        request,
        containers=tuple(
            msgspec.structs.replace(each, devices=_devices_in_mib(each.devices, memory_mib))
            for each in request.containers
        ),
    )


def _devices_in_mib(asked: DeviceRequest, memory_mib: int) -> DeviceRequest:
    needed = rule.memory_asked(memory_mib, asked.memory_mib or 0, asked.memory_percent or 0)
    return msgspec.structs.replace(asked, memory_mib=needed, memory_percent=None)


def wordings(reason: Reason) -> list[str]:
    """All that `explain` says of GPUs or nodes for one reason, with numbers made up: what the reference of reasons
    lists beside it."""
    found = _Tally(reason, nodes=2, devices=2, memory_needed_mib=2048, memory_largest_mib=4096, detail="...")
    if reason in _NODE_CLAUSES:
        return [_NODE_CLAUSES[reason][True]]
    share = DeviceRequest(2, memory_mib=2048, models_allowed=("...",), held_by=(Enforcement.HAMI_CORE,))
    whole = msgspec.structs.replace(share, memory_mib=None, memory_percent=100, cores_percent=100)
    cases = (
        (found, share),
        (msgspec.structs.replace(found, memory_largest_mib=1024), share),
        (found, whole),
        (msgspec.structs.replace(found, idle_only=True), share),
    )
    return list(dict.fromkeys(_DEVICE_CLAUSES[reason](*case) for case in cases))


def _tally(refusals: Iterable[Refusal], idle_only: bool) -> dict[Reason, _Tally]:
    tallies: dict[Reason, _Tally] = {}
    for refusal, nodes in tally(refusals):
        for reason, devices in refusal.counts:
            tallies.setdefault(reason, _Tally(reason, idle_only=idle_only)).add(refusal, devices, nodes)
    return tallies


def _missing_everywhere(request: PodRequest, lists: Callable[[str], bool]) -> str:
    """What the pod names, and no node has."""
    named = {uuid for each in request.containers for uuid in each.devices.uuids_allowed}
    missing = sorted(uuid for uuid in named if not lists(uuid))
    return f"no node has {_listed(missing, ' or ')}" if missing else ""


def _uuids(fleet: Fleet) -> frozenset[str]:
    nodes = filter(None, map(fleet.node, fleet.names()))
    return frozenset(state.device.uuid for node in nodes for state in node.devices)


def _find_examples(by_reason: Mapping[Reason, _Tally], refusals: Mapping[str, Refusal], fleet: Fleet) -> None:
    examined = {reason: 0 for reason in _REASONS_WITH_EXAMPLES if reason in by_reason}
    if not examined:
        return
    for name, refusal in refusals.items():
        for reason, _ in refusal.counts:
            if examined.get(reason, _EXAMPLES) < _EXAMPLES and (node := fleet.node(name)) is not None:
                examined[reason] += 1
                by_reason[reason].examples.extend(node.devices)


def _clause(found: _Tally, asked: DeviceRequest | None) -> str:
    if found.reason in _NODE_CLAUSES:
        detail = f" ({found.detail})" if found.detail else ""
        return f"{_count(found.nodes, 'node')} {_NODE_CLAUSES[found.reason][found.nodes > 1]}{detail}"
    where = f"{_count(found.devices, 'GPU')} on {_count(found.nodes, 'node')}"
    return f"{where} {_DEVICE_CLAUSES[found.reason](found, asked or DeviceRequest(found.count_needed))}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _verb(found: _Tally, one: str, many: str) -> str:
    return one if found.devices == 1 else many


def _is(found: _Tally) -> str:
    return _verb(found, "is", "are")


def _has(found: _Tally) -> str:
    return _verb(found, "has", "have")


def _relevant_examples(found: _Tally, asked: DeviceRequest) -> list[DeviceState]:
    """Examples that may be named: not what the pod's own UUIDs rule out."""
    return [state for state in found.examples if not asked.excludes(state.device.uuid)]


def _unhealthy(found: _Tally, asked: DeviceRequest) -> str:
    first = next((each.device for each in _relevant_examples(found, asked) if not each.device.healthy), None)
    example = ""
    if first is not None and first.unhealthy_reason:
        example = f" (GPU {first.index}: {brief(first.unhealthy_reason)})"
    return f"{_is(found)} unhealthy{example}"


def _other_type(found: _Tally, asked: DeviceRequest) -> str:
    models = sorted({state.device.model for state in found.examples})
    named = _listed(models, ", ")
    wants = [
        lead + _listed([word.lstrip("=") for word in words], " or ")
        for lead, words in (
            ("a model with ", asked.models_allowed),
            ("no ", asked.models_denied),
        )
        if words
    ]
    modes = ""
    profiles = [mig_resource(kind.profiles[0].name) for s in found.examples if (kind := kind_of(s.device)) is not None]
    if profiles and not can_use_instances(asked.resource, asked.count, asked.modes_allowed):
        if all(takes_model(asked.models_allowed, asked.models_denied, model) for model in models):
            wants.clear()  # the models are not in the way
        wants.append(
            f"{asked.count} whole GPUs for one container, but on GPUs in MIG mode a container gets one GPU instance, "
            f"or several if it asks for MIG devices by name, such as {profiles[0]}"
        )
    if any(state.device.resource != asked.resource and not _is_served(state, asked) for state in found.examples):
        wants.insert(0, asked.resource)
    elif any(state.device.mig_kind and asked_profile(state.device, asked) is None for state in found.examples):
        wants.append("a GPU instance larger than the GPU's largest MIG profile")
    elif (
        asked.resource == GPU_RESOURCE
        and not asked.is_plain
        and any(not state.device.memory_mib for state in found.examples)
    ):
        wants.append("an amount of memory, which the driver of these GPUs does not report (ask for whole GPUs instead)")
    elif asked.soft_split and any(not state.device.soft_split for state in found.examples):
        wants.append("a node with the vendor's library for soft splitting")
    elif asked.slices is not None:
        wants.append("a profile that the node does not list")
    elif asked.count > 1 and any(state.device.one_each for state in found.examples):
        wants.append(
            f"{asked.count} replicas, but the node's configuration file sets failRequestsGreaterThanOne: ask for 1"
        )
    elif not asked.is_plain and any(state.device.replicas > 1 for state in found.examples):
        wants.append("an amount of memory or compute, but these GPUs are shared in equal parts: remove the amount")
    if asked.modes_allowed:
        wants.append(f"mode {modes_text(asked.modes_allowed)}")
        modes = modes_text(state.device.mode for state in found.examples)
    there = f" (available: {named}{f', mode {modes}' if modes else ''})" if named else ""
    wanted = ", ".join(wants) or "another model or mode"
    return f"{_verb(found, 'does', 'do')} not match the pod's request: {wanted}{there}"


def _not_enforced(found: _Tally, asked: DeviceRequest) -> str:
    there = ", ".join(sorted({state.device.enforcement for state in found.examples}))
    *others, last = asked.held_by or ("...",)
    wanted = f"{', '.join(others)} or {last}" if others else last
    verb = _verb(found, "does", "do")
    return (
        f"{verb} not enforce the pod's share, but the pod requires enforcement (available: {there or '...'}; "
        f"required: {wanted})"
    )


def _is_served(state: DeviceState, asked: DeviceRequest) -> bool:
    """Whether it is a GPU of which instances are made that the pod asks for by name."""
    return asked_profile(state.device, asked) is not None


def _no_place(found: _Tally, asked: DeviceRequest) -> str:
    cut = [state for state in _relevant_examples(found, asked) if state.device.mig_kind]
    profiles = sorted({profile.name for state in cut if (profile := asked_profile(state.device, asked))})
    wanted = " or ".join(profiles) or "a GPU instance"
    there = _listed(
        [f"GPU {state.device.index}: {_instances(state)}" for state in cut], "; ", 2 * _MAX_MODEL_CHARACTERS
    )
    beside = f" {found.detail}" if found.detail == OTHER_INSTANCES_CLAUSE else ""
    return f"{_has(found)} no room for {wanted}{beside}{f' ({there})' if there else ''}"


def _instances(state: DeviceState) -> str:
    held = [f"{named(each)} (not held by a pod)" for each in state.device.mig_held]
    return ", ".join([*map(named, state.usage.instances), *held]) or "empty"


def _listed(words: Sequence[str], between: str, longest: int = _MAX_MODEL_CHARACTERS) -> str:
    """The first of them: pods and nodes name what they like, and as much of it."""
    more = f" and {len(words) - _MODELS} more" if len(words) > _MODELS else ""
    return between.join(brief(word, longest) for word in words[:_MODELS]) + more


def _in_use(found: _Tally, asked: DeviceRequest) -> str:
    if _wants_whole(asked):
        return f"{_is(found)} in use, and the pod wants {_verb(found, 'a whole GPU', 'whole GPUs')}"
    if found.idle_only:
        return f"{_is(found)} in use, and policy mutex wants {_verb(found, 'an idle GPU', 'idle GPUs')}"
    return f"{_is(found)} in use and cannot be shared with the pod"


def _short_of_memory(found: _Tally, asked: DeviceRequest) -> str:
    if found.memory_needed_mib > found.memory_largest_mib:
        return f"{_is(found)} too small for {found.memory_needed_mib} MiB (largest: {found.memory_largest_mib} MiB)"
    if _wants_whole(asked) and not asked.memory_mib:  # an idle GPU may have too little of an amount
        return _in_use(found, asked)
    percent = f" ({asked.memory_percent}%)" if asked.memory_percent else ""
    return (
        f"{_has(found)} less than {found.memory_needed_mib} MiB{percent} of memory free"
        f" (most: {found.memory_free_mib} MiB)"
    )


def _short_of_cores(found: _Tally, asked: DeviceRequest) -> str:
    if _wants_whole(asked):
        return _in_use(found, asked)
    return f"{_has(found)} less than {found.cores_needed_percent}% of compute free (most: {found.cores_free_percent}%)"


def _wants_whole(asked: DeviceRequest) -> bool:
    return asked.is_whole or asked.memory_percent == 100


_SEE_NODE_HINT = f"see the node's condition {DISPUTED_CONDITION}"
"""What a dispute is about, for those who may not read of others' pods."""

_NODE_CLAUSES = {
    Reason.UNREGISTERED: (
        "has no inventory: no agent runs there, or it has not written one",
        "have no inventory: no agent runs there, or it has not written one",
    ),
    Reason.NO_DEVICES: ("has no GPUs", "have no GPUs"),
    Reason.NOMINATED: (
        "is reserved for nominated pods of the same or higher priority",
        "are reserved for nominated pods of the same or higher priority",
    ),
    Reason.TOO_FEW_PAIRS: (
        "has too few pairs of a GPU and a network device under the same PCIe switch",
        "have too few pairs of a GPU and a network device under the same PCIe switch",
    ),
    Reason.NO_POOL: (
        "has none of the SR-IOV pools that the pod asks for",
        "have none of the SR-IOV pools that the pod asks for",
    ),
    Reason.KUBELET_ADMISSION_PENDING: (
        "has pods awaiting kubelet's admission",
        "have pods awaiting kubelet's admission",
    ),
    Reason.KUBELET_WOULD_REJECT: ("has a kubelet that would reject the pod", "have kubelets that would reject the pod"),
}

_DEVICE_CLAUSES: dict[Reason, Callable[[_Tally, DeviceRequest], str]] = {
    Reason.NOT_HEALTHY: _unhealthy,
    Reason.CORDONED: lambda t, _: f"{_is(t)} cordoned",
    Reason.DISPUTED: lambda t, _: f"{_is(t)} disputed ({t.dispute or _SEE_NODE_HINT})",
    Reason.TYPE_MISMATCH: _other_type,
    Reason.UUID_MISMATCH: lambda t, _: (
        f"{_is(t)} excluded by the UUIDs that the pod names{f' ({t.detail})' if t.detail else ''}"
    ),
    Reason.NUMA_NOT_FIT: lambda t, _: f"{_is(t)} available, but {t.count_needed} are needed on one NUMA node",
    Reason.NOT_LINKED: lambda t, _: f"{_is(t)} available, but {t.count_needed} linked GPUs are needed on one node",
    Reason.NOT_MIXED: lambda t, _: (
        f"{_is(t)} available, but {t.count_needed} whole GPUs or {t.count_needed} MIG devices are needed on one node, "
        "because no container can have both"
    ),
    Reason.NOT_ENFORCED: _not_enforced,
    Reason.SLOTS_EXHAUSTED: lambda t, _: f"{_has(t)} no free slot",
    Reason.EXCLUSIVE_CONFLICT: _in_use,
    Reason.QUOTA_NOT_FIT: lambda t, _: "would exceed the namespace's ResourceQuota",
    Reason.NO_MIG_PLACE: _no_place,
    Reason.SHARES_DIFFER: lambda t, _: f"{_has(t)} shares that are incompatible with the pod's",
    Reason.INSUFFICIENT_MEMORY: _short_of_memory,
    Reason.INSUFFICIENT_CORES: _short_of_cores,
    Reason.CORES_EXHAUSTED: lambda t, _: f"{_has(t)} no compute left",
    Reason.TOO_FEW_GPUS: lambda t, _: f"{_is(t)} available, but {t.count_needed} are needed on one node",
}

_REASONS_WITH_EXAMPLES = (Reason.NOT_HEALTHY, Reason.TYPE_MISMATCH, Reason.NOT_ENFORCED, Reason.NO_MIG_PLACE)
"""Reasons that are shown with details of some nodes."""
