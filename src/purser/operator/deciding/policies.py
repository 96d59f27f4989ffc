"""Where nothing is decided by a ClusterPolicy: younger ones, ones that leave, and an active one that cannot be read or
has another operator beside it. What their status says, when they may go, and what goes with the last one: objects,
labels and annotations of nodes, cordons of Purser's."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from purser.core.names import CORDONED_BY_ANNOTATION, NODE_FACTS_ANNOTATION, POOL_LABEL
from purser.core.wording import natural_sort_key, some
from purser.operator.deciding.status import DEGRADED, PROGRESSING, READY, condition
from purser.operator.gates import NO_POLICY, driver_removals, is_marked, removal_patch
from purser.operator.maintenance import is_cordoned_by_purser
from purser.operator.manifests import removals
from purser.operator.mig import is_under_way as mig_is_under_way
from purser.operator.mig import makes_unavailable as mig_makes_unavailable
from purser.operator.model import (
    Delete,
    DriverRemoval,
    NodeView,
    ObjectKey,
    PatchNode,
    Raw,
    SetFinalizer,
    Snapshot,
    WriteStatus,
    merged,
)
from purser.operator.names import FINALIZER, MIG_STEP_ANNOTATION, OPERAND_LABEL
from purser.operator.order import Operand
from purser.operator.policy import ClusterPolicyStatus
from purser.operator.policy.decoding import (
    ChosenPolicies,
    choose,
    finalizers_of,
    generation_of,
    has_finalizer,
    name_of,
    old_status,
    uid_of,
)
from purser.operator.reasons import OperatorReason
from purser.operator.upgrade import is_under_way as upgrade_is_under_way

# --- writes


def write_status(raw: Raw, status: ClusterPolicyStatus) -> Iterator[WriteStatus]:
    """Only if it differs from what is there."""
    if not raw.get("status") or status != old_status(raw):
        yield WriteStatus(name_of(raw), status)


def claim(raw: Raw, namespace: str) -> WriteStatus:
    """The policy is this operator's: of two that meet a new one at once, in two namespaces, one gets a conflict."""
    return WriteStatus(name_of(raw), msgspec.structs.replace(old_status(raw), namespace=namespace), _version(raw))


def with_finalizer(raw: Raw) -> SetFinalizer:
    """The active policy does not go before the operator has cleaned up."""
    return SetFinalizer(name_of(raw), _version(raw), (*finalizers_of(raw), FINALIZER))


def without_finalizer(raw: Raw) -> SetFinalizer:
    """The operator needs this policy no longer."""
    rest = tuple(each for each in finalizers_of(raw) if each != FINALIZER)
    return SetFinalizer(name_of(raw), _version(raw), rest)


def _version(raw: Raw) -> str:
    return str(raw["metadata"].get("resourceVersion", ""))


# --- policies that are not active


def ignored_status(snapshot: Snapshot, raw: Raw, active: str) -> ClusterPolicyStatus:
    """Of a policy that is not the active one."""
    message = (
        f"the policy is ignored because the older ClusterPolicy {active} is active: keep one and delete the others"
    )
    old, generation = old_status(raw), generation_of(raw)
    ready = condition(READY, False, OperatorReason.IGNORED, message, old=old, generation=generation, now=snapshot.now)
    return ClusterPolicyStatus(
        state="ignored", namespace=snapshot.namespace, observed_generation=generation, conditions=(ready,)
    )


def leaving_status(snapshot: Snapshot, raw: Raw, message: str) -> ClusterPolicyStatus:
    """Of a policy that was asked to go: what it waits for."""
    old, generation = old_status(raw), generation_of(raw)
    ready = condition(READY, False, OperatorReason.LEAVING, message, old=old, generation=generation, now=snapshot.now)
    return ClusterPolicyStatus(
        state="notReady", namespace=snapshot.namespace, observed_generation=generation, conditions=(ready,)
    )


def released(snapshot: Snapshot, chosen: ChosenPolicies) -> Iterator[SetFinalizer]:
    """Policies that are not the active one may go once nothing belongs to them: with its owner, an object would go."""
    owners = owner_uids(snapshot.objects)
    for raw in (*chosen.leaving, *chosen.ignored):
        if has_finalizer(raw) and uid_of(raw) not in owners:
            yield without_finalizer(raw)


def owner_uids(objects: dict[ObjectKey, Raw]) -> frozenset[str]:
    """Uids of all owners."""
    references: Iterable[Raw] = (
        owner for obj in objects.values() for owner in obj["metadata"].get("ownerReferences") or ()
    )
    return frozenset(str(owner.get("uid", "")) for owner in references)


# --- a blocked active policy


def invalid_status(snapshot: Snapshot, raw: Raw, problem: str) -> ClusterPolicyStatus:
    """Of an active policy that cannot be read: everything stays as it was, and the rest of the status, too."""
    message = f"{problem}. The operator changes nothing until the spec is fixed{_interrupted_nodes(snapshot)}"
    return _paused_status(snapshot, raw, OperatorReason.INVALID_SPEC, message)


def rivals_status(snapshot: Snapshot, raw: Raw) -> ClusterPolicyStatus:
    """Of an active policy while NVIDIA's operator is at work: two that write the same labels would undo each other."""
    message = f"{rivals_text(snapshot)}{_interrupted_nodes(snapshot)}"
    return _paused_status(snapshot, raw, OperatorReason.ANOTHER_OPERATOR, message)


def rivals_text(snapshot: Snapshot) -> str:
    """That NVIDIA's operator is at work, in one sentence with what to do."""
    return (
        "NVIDIA's operator manages the GPU nodes: Purser changes nothing until NVIDIA's ClusterPolicy is deleted"
        f" (kubectl delete clusterpolicies.nvidia.com {' '.join(snapshot.rivals)})"
    )


def other_namespace(snapshot: Snapshot) -> str:
    """That the policies are another operator's, in one sentence with what to do."""
    there = snapshot.other_namespace
    return (
        f"the ClusterPolicy belongs to the operator in namespace {there},"
        f" so the operator in namespace {snapshot.namespace} does nothing: use --namespace {there},"
        f" or remove the other operator with purser operator uninstall --namespace {there}"
    )


def _interrupted_nodes(snapshot: Snapshot) -> str:
    """Nodes that stay where they are in a change, as the end of a sentence."""
    names = [
        node.name
        for node in snapshot.nodes
        if is_cordoned_by_purser(node) or upgrade_is_under_way(node) or mig_is_under_way(node)
    ]
    if not names:
        return ""
    return f"; nodes left cordoned or paused in the middle of a change: {some(sorted(names, key=natural_sort_key))}"


def _paused_status(snapshot: Snapshot, raw: Raw, reason: OperatorReason, message: str) -> ClusterPolicyStatus:
    """Nothing is decided for now; what is known of operands and nodes stays as it was found last."""
    old, generation = old_status(raw), generation_of(raw)
    states = ((READY, False), (PROGRESSING, False), (DEGRADED, True))
    conditions = tuple(
        condition(kind, holds, reason, message, old=old, generation=generation, now=snapshot.now)
        for kind, holds in states
    )
    return msgspec.structs.replace(
        old, state="notReady", namespace=snapshot.namespace, observed_generation=generation, conditions=conditions
    )


# --- once there is none


DISCOVERY = "gpu-discovery"
"""Operand label of Purser's discovery."""


def cleanup(snapshot: Snapshot) -> tuple[PatchNode | Delete, ...]:
    """What remains to be done until the operator left nothing behind; nothing, if that is so or only time is missing:
    where a driver is in use, it stays with its label until it is not."""
    found = driver_removals(snapshot, choose(snapshot.policies))
    in_use = bool(snapshot.isolated) or any(each.stays for each in found.values())
    kept = driver_objects(snapshot) if in_use else frozenset()
    unwanted = (key for key in snapshot.objects if key not in kept)
    return (*_nodes(snapshot, found), *removals(snapshot, unwanted, NO_POLICY))


def driver_objects(snapshot: Snapshot) -> frozenset[ObjectKey]:
    """Live DaemonSets of drivers, and what their pods need."""
    objects = snapshot.objects.items()
    return frozenset(
        key for key, obj in objects if (obj["metadata"].get("labels") or {}).get(OPERAND_LABEL) == Operand.DRIVER
    )


def is_clean(snapshot: Snapshot) -> bool:
    """Whether nothing is left: no object, no pod that could still write (one of a dead node cannot), no label."""
    alive = snapshot.alive
    return (
        not snapshot.isolated
        and not snapshot.objects
        and not cleanup(snapshot)
        and not any(pod.node in alive for pod in snapshot.pods)
    )


def _drop_postponed(
    patch: PatchNode, node: NodeView, operands: Collection[str], removal: DriverRemoval | None
) -> PatchNode:
    """The same, without what has to wait: a driver that is in use, and the cordon of a node whose GPUs the MIG
    manager may be cutting this moment. Its request goes at once, so that it stops."""
    labels, annotations, unschedulable = dict(patch.labels), dict(patch.annotations), patch.unschedulable
    if removal is not None and removal.stays:
        for label in (Operand.DRIVER.deploy_label, POOL_LABEL):
            labels.pop(label, None)
    if mig_makes_unavailable(node) and Operand.MIG_MANAGER in operands:
        unschedulable = None
        annotations.pop(MIG_STEP_ANNOTATION, None)
        if is_cordoned_by_purser(node):  # otherwise the mark is void, and a cordon that comes is not Purser's
            annotations.pop(CORDONED_BY_ANNOTATION, None)
    return msgspec.structs.replace(patch, labels=labels, annotations=annotations, unschedulable=unschedulable)


def _nodes(snapshot: Snapshot, found: Mapping[str, DriverRemoval]) -> Iterator[PatchNode]:
    """Discovery would rewrite its facts, so that they stay as long as it runs there. Pods on a node that is NotReady do
    not write any more."""
    operands: dict[str, set[str]] = {}
    for pod in snapshot.pods:
        operands.setdefault(pod.node, set()).add(pod.operand)
    for node in sorted(snapshot.nodes, key=lambda node: natural_sort_key(node.name)):
        there = operands.get(node.name, set()) if node.ready else set()
        patches = []
        if is_marked(node):
            gone = removal_patch(node, has_rivals=bool(snapshot.rivals))
            patches.append(_drop_postponed(gone, node, there, found.get(node.name)))
        if DISCOVERY not in there:
            patches.append(PatchNode(node=node.name, annotations={NODE_FACTS_ANNOTATION: None}, why=NO_POLICY))
        patch = merged(node, patches)
        if patch is not None:
            yield msgspec.structs.replace(patch, resource_version=snapshot.versions.get(node.name, ""))
