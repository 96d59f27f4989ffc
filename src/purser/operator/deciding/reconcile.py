"""One round: from everything that is there to everything that is to be done about it."""

from collections.abc import Iterator

import msgspec

from purser.core.names import POOL_LABEL
from purser.core.wording import some
from purser.operator.deciding.isolation import decided
from purser.operator.deciding.policies import (
    claim,
    cleanup,
    driver_objects,
    ignored_status,
    invalid_status,
    is_clean,
    leaving_status,
    other_namespace,
    released,
    rivals_status,
    rivals_text,
    with_finalizer,
    without_finalizer,
    write_status,
)
from purser.operator.deciding.status import events_of, gauges_of, status_of
from purser.operator.gates import (
    blocked_removals,
    changes_pool,
    driver_removals,
    gate_patch,
    gone_patch,
    node_assignments,
    node_progress,
    nodes_about_to_lose_gpus,
    outdated_daemonsets,
    ready_deadline,
    stale_validations,
    wanted_pools,
)
from purser.operator.gates import missing_pod_deadline as missing_fails_at
from purser.operator.maintenance import clear_stale_cordon_mark
from purser.operator.manifests import config_keys, object_actions, render
from purser.operator.mig import MigFleet
from purser.operator.mig import advance as advance_mig
from purser.operator.mig import is_under_way as mig_is_under_way
from purser.operator.mig import makes_unavailable as mig_makes_unavailable
from purser.operator.mig import needs_workloads as mig_needs_workloads
from purser.operator.mig import pause_of as mig_pause
from purser.operator.mig import waits_of_changes as mig_waiting_of
from purser.operator.model import (
    Action,
    DeletePod,
    EmitEvent,
    Gauge,
    NodeAssignment,
    NodeProgress,
    ObjectKey,
    PatchNode,
    PlannedChanges,
    Reconciliation,
    RenderedManifest,
    RenderInputs,
    RoundOutcome,
    Snapshot,
    daemon_set_of,
    merged,
    patched,
)
from purser.operator.names import OPENED_BOOT_ANNOTATION, RESUME_UPGRADE_ANNOTATION
from purser.operator.policy import ClusterPolicy
from purser.operator.policy.decoding import (
    MISSING_DEFINITION_MESSAGE,
    ChosenPolicies,
    choose,
    has_finalizer,
    name_of,
    old_status,
    uid_of,
)
from purser.operator.reasons import OperatorReason
from purser.operator.upgrade import UpgradeInputs, blocks_mig, unavailable, upgrade_status
from purser.operator.upgrade import advance as advance_upgrade
from purser.operator.upgrade import needs_workloads as upgrade_needs_workloads
from purser.operator.upgrade import pause_of as upgrade_pause
from purser.operator.upgrade import turn as upgrade_turn

ISOLATED_RETRY_S = 30.0
"""How soon nodes are tried again that were left out of a round."""
OTHER_NAMESPACE_RETRY_S = 60.0
"""How often it is looked whether the namespace of another operator is still there."""


class RoundView(msgspec.Struct, frozen=True, kw_only=True):
    """What a round found out before it decides."""

    snapshot: Snapshot
    policy: ClusterPolicy
    resume: str
    rendered: tuple[RenderedManifest, ...]
    node_progress: tuple[NodeProgress, ...]
    gone: tuple[NodeAssignment, ...]
    """Nodes whose GPUs are gone."""


def reconcile(snapshot: Snapshot) -> RoundOutcome:
    """What to do next. Every action is valid by itself: a crash after some of them does no harm, and the next round
    continues from there. Without change there are no actions.

    Nodes on which this fails, unexpectedly, are left out of it, and named. What fails without them is raised."""
    outcome, decided_by = decided(snapshot, _round)
    if not decided_by.isolated:
        return outcome
    again = min(ISOLATED_RETRY_S, outcome.requeue_after_s or ISOLATED_RETRY_S)
    return msgspec.structs.replace(outcome, isolated=decided_by.isolated, requeue_after_s=again)


def _round(snapshot: Snapshot) -> RoundOutcome:
    _select_for_inspection(snapshot)  # a failure on a node has to be reported, too
    chosen = choose(snapshot.policies)
    if snapshot.other_namespace:
        return _other_operator(snapshot, chosen)
    if chosen.raw is None:
        return _remove_everything(snapshot, chosen)
    if snapshot.rivals or chosen.policy is None:
        return _blocked_outcome(snapshot, chosen)
    if not has_finalizer(chosen.raw):
        return RoundOutcome(actions=(with_finalizer(chosen.raw), *_actions_for_other_policies(snapshot, chosen)))
    if old_status(chosen.raw).namespace != snapshot.namespace:
        return RoundOutcome(
            actions=(claim(chosen.raw, snapshot.namespace), *_actions_for_other_policies(snapshot, chosen))
        )
    return _decide(view_of(snapshot, chosen), chosen)


def nodes_to_inspect(snapshot: Snapshot) -> frozenset[str]:
    """Nodes whose pods a round has to know, besides operands; by a snapshot without these pods: nodes that are being
    emptied, those whose driver is to leave, and those whose GPUs are about to count as gone."""
    return decided(snapshot, _select_for_inspection)[0]


def _select_for_inspection(snapshot: Snapshot) -> frozenset[str]:
    emptied = (node.name for node in snapshot.nodes if upgrade_needs_workloads(node) or mig_needs_workloads(node))
    chosen = choose(snapshot.policies)
    leaving = (name for name, each in driver_removals(snapshot, chosen).items() if not each.terminating)
    return frozenset((*emptied, *leaving, *nodes_about_to_lose_gpus(snapshot, chosen)))


def upgrade_fleet(snapshot: Snapshot) -> UpgradeInputs | str:
    """The fleet as the upgrade sees it; or in a sentence why there is none."""
    return decided(snapshot, _upgrade_fleet)[0]


def _upgrade_fleet(snapshot: Snapshot) -> UpgradeInputs | str:
    chosen = choose(snapshot.policies)
    if snapshot.other_namespace:
        return other_namespace(snapshot)
    if chosen.raw is None:
        return "no ClusterPolicy exists" if snapshot.defined else MISSING_DEFINITION_MESSAGE
    if chosen.policy is None:
        return f"ClusterPolicy {name_of(chosen.raw)}: {chosen.problem}"
    if snapshot.rivals:
        return rivals_text(snapshot)
    return _fleet(view_of(snapshot, chosen))


def view_of(snapshot: Snapshot, chosen: ChosenPolicies) -> RoundView:
    """Everything that is found out about a snapshot under a policy that can be read."""
    raw, policy = chosen.raw, chosen.policy
    assert raw is not None and policy is not None
    annotations = raw["metadata"].get("annotations") or {}
    found = node_assignments(snapshot, policy.spec)
    rendered = render(
        RenderInputs(
            policy=policy,
            namespace=snapshot.namespace,
            purser_image=snapshot.purser_image,
            pools=wanted_pools(found, policy),
            runtimes=tuple(sorted({each.runtime for each in found if each.presence.state != "gone"})),
            service_monitors=snapshot.service_monitors,
            node_features=snapshot.node_features,
            config_keys=config_keys(snapshot),
        )
    )
    return RoundView(
        snapshot=snapshot,
        policy=policy,
        resume=annotations.get(RESUME_UPGRADE_ANNOTATION, ""),
        rendered=rendered,
        node_progress=node_progress(snapshot, policy.spec, found, rendered, driver_removals(snapshot, chosen)),
        gone=tuple(each for each in found if each.presence.state == "gone"),
    )


def _decide(view: RoundView, chosen: ChosenPolicies) -> RoundOutcome:
    """A round under a policy that can be read."""
    snapshot, raw = view.snapshot, chosen.raw
    assert raw is not None
    fleet = _fleet(view)
    turn = upgrade_turn(fleet)
    upgrades = advance_upgrade(fleet, turn)
    mig_fleet = _mig_fleet(view, fleet, upgrades)
    migs = advance_mig(mig_fleet)
    status = status_of(
        snapshot,
        view.policy,
        view.node_progress,
        upgrade_status(fleet, turn, upgrades),
        mig_waiting_of(mig_fleet, migs),
    )
    applies, deletes = object_actions(snapshot, view.rendered, _kept_daemon_sets(view))
    new, known = _node_patches(view, upgrades, migs)
    return RoundOutcome(
        actions=(
            *new,
            *applies,
            *known,
            *_unique_deletions(view, upgrades, migs),
            *upgrades.evictions,
            *migs.evictions,
            *deletes,
            *write_status(raw, status),
            *_actions_for_other_policies(snapshot, chosen),
        ),
        events=(*upgrades.events, *migs.events, *events_of(view.policy, status, view.node_progress)),
        gauges={**upgrades.gauges, **migs.gauges, **gauges_of(snapshot, view.node_progress, status)},
        requeue_after_s=_next_requeue(view, upgrades, migs),
    )


def _fleet(view: RoundView) -> UpgradeInputs:
    meta, sets = view.policy.metadata, view.snapshot.daemon_sets
    return UpgradeInputs(
        now=view.snapshot.now,
        policy=view.policy.spec.driver.upgrade_policy,
        resume=view.resume,
        policy_ref=(meta.name, meta.uid),
        node_progress=view.node_progress,
        workloads=view.snapshot.workloads,
        budgets=view.snapshot.budgets,
        busy=frozenset(
            each.node.name for each in view.node_progress if mig_is_under_way(each.node) or changes_pool(each, sets)
        ),
        held=frozenset(each.node.name for each in view.node_progress if mig_makes_unavailable(each.node)),
        outdated_daemonsets=outdated_daemonsets(view.node_progress, sets),
        isolated=view.snapshot.isolated,
    )


def _mig_fleet(view: RoundView, fleet: UpgradeInputs, upgrades: PlannedChanges) -> MigFleet:
    """The upgrade has been asked first: where it begins in this very round, MIG does not."""
    nodes = (patched(each.node, upgrades.patches.get(each.node.name)) for each in view.node_progress)
    return MigFleet(
        now=view.snapshot.now,
        spec=view.policy.spec.mig_manager,
        policy=fleet.policy,
        node_progress=view.node_progress,
        workloads=view.snapshot.workloads,
        budgets=view.snapshot.budgets,
        busy=frozenset(node.name for node in nodes if blocks_mig(node)),
        unavailable=unavailable(fleet, upgrades),
    )


def _node_patches(
    view: RoundView, upgrades: PlannedChanges, migs: PlannedChanges
) -> tuple[list[PatchNode], list[PatchNode]]:
    """One write per node. Those where Purser has not been yet come apart, to be written first: labels that another
    operator left behind must be gone before there are DaemonSets that select them."""
    nodes = (assignment.node for assignment in (*view.node_progress, *view.gone))
    new = {node.name for node in nodes if OPENED_BOOT_ANNOTATION not in node.annotations}
    versions = view.snapshot.versions
    patches = [
        msgspec.structs.replace(patch, resource_version=versions.get(patch.node, ""))
        for patch in _patches(view, upgrades, migs)
        if patch is not None
    ]
    return [each for each in patches if each.node in new], [each for each in patches if each.node not in new]


def _patches(view: RoundView, upgrades: PlannedChanges, migs: PlannedChanges) -> Iterator[PatchNode | None]:
    """What the state machines want of each node, and the operands' labels that follow from it."""
    sets = view.snapshot.daemon_sets
    for progress in view.node_progress:
        node = progress.node
        planned = [upgrades.patches.get(node.name), migs.patches.get(node.name)]
        after = patched(node, merged(node, planned))
        pause = upgrade_pause(after) or mig_pause(after)
        gate = gate_patch(progress, pause, sets, view.snapshot.now)
        yield merged(node, [gate, *planned, clear_stale_cordon_mark(after)])
    for assignment in view.gone:
        yield merged(assignment.node, [gone_patch(assignment.node)])


def _unique_deletions(view: RoundView, *planned: PlannedChanges) -> Iterator[DeletePod]:
    """A pod that two want gone is deleted once."""
    wanted = [*(each for move in planned for each in move.deletions), *stale_validations(view.node_progress)]
    unique = {each.pod.uid: each for each in reversed(wanted)}
    yield from sorted(unique.values(), key=lambda each: (each.pod.node, each.pod.name))


def _kept_daemon_sets(view: RoundView) -> frozenset[ObjectKey]:
    """Driver DaemonSets of pools that nodes carry and that the policy no longer knows: a profile that is gone, another
    operating system. They stay as they are until an upgrade has moved their nodes. Where the policy has no driver any
    more, all that is the driver's stays as long as one of them is in use."""
    if view.snapshot.isolated:  # whatever they have may be of a kind that no other node has
        return frozenset(view.snapshot.objects)
    if not view.policy.spec.driver.enabled:
        in_use = any(each.driver_removal is not None and each.driver_removal.stays for each in view.node_progress)
        return driver_objects(view.snapshot) if in_use else frozenset()
    pools = {progress.node.labels.get(POOL_LABEL) for progress in view.node_progress}
    names = {daemon_set_of(name) for name in pools if name}
    return frozenset(key for key in view.snapshot.objects if key.kind == "DaemonSet" and key.name in names)


def _next_requeue(view: RoundView, upgrades: PlannedChanges, migs: PlannedChanges) -> float | None:
    """When time alone will have changed something: never sooner than in a second."""
    now = view.snapshot.now
    times = [each.presence.gone_at - now for each in view.node_progress if each.presence.gone_at is not None]
    for progress in view.node_progress:
        times += [ready_deadline(pod) - now for pod in progress.pods if not pod.ready and ready_deadline(pod) > now]
        if any(each.reason == OperatorReason.NO_POD and each.state != "failing" for each in progress.operands.values()):
            times.append(missing_fails_at(progress.node, now) - now)
    times += [each for each in (upgrades.requeue_after_s, migs.requeue_after_s) if each is not None]
    return max(1.0, min(times)) if times else None


def _actions_for_other_policies(snapshot: Snapshot, chosen: ChosenPolicies) -> Iterator[Action]:
    """Younger policies say so, and those that leave may go once everything belongs to the active one."""
    active = name_of(chosen.raw) if chosen.raw is not None else ""
    for raw in chosen.ignored:
        yield from write_status(raw, ignored_status(snapshot, raw, active))
    for raw in chosen.leaving:
        yield from write_status(
            raw,
            leaving_status(snapshot, raw, f"this policy will be removed once ClusterPolicy {active} has taken over"),
        )
    yield from released(snapshot, chosen)


def _blocked_outcome(snapshot: Snapshot, chosen: ChosenPolicies) -> RoundOutcome:
    """The active policy cannot be read, or another operator is at work: it says so, and nothing else changes."""
    raw = chosen.raw
    assert raw is not None
    status = rivals_status(snapshot, raw) if snapshot.rivals else invalid_status(snapshot, raw, chosen.problem)
    actions = (*write_status(raw, status), *_actions_for_other_policies(snapshot, chosen))
    return RoundOutcome(actions=actions, gauges={Gauge.RECONCILIATION: Reconciliation.NOT_READY})


def _other_operator(snapshot: Snapshot, chosen: ChosenPolicies) -> RoundOutcome:
    """The policies are those of an operator in another namespace: not even a status is written, or two would fight."""
    raw, *_ = (each for each in (chosen.raw, *chosen.leaving) if each is not None)
    message = other_namespace(snapshot)
    return RoundOutcome(
        events=(
            EmitEvent(
                "ClusterPolicy", name_of(raw), uid_of(raw), OperatorReason.ANOTHER_NAMESPACE, message, warning=True
            ),
        ),
        gauges={Gauge.RECONCILIATION: Reconciliation.NOT_READY},
        requeue_after_s=OTHER_NAMESPACE_RETRY_S,
        blocked=message,
    )


def _remove_everything(snapshot: Snapshot, chosen: ChosenPolicies) -> RoundOutcome:
    """No policy is left: everything goes, and at last the finalizers of those that wait for that."""
    message = "waiting for all of the stack's objects, pods and node labels to be removed"
    if held := blocked_removals(snapshot):
        message = f"drivers are removed last, and pods are not evicted; waiting for {some(held, 'node', named=1)}"
    statuses = [each for raw in chosen.leaving for each in write_status(raw, leaving_status(snapshot, raw, message))]
    actions: tuple[Action, ...] = (*cleanup(snapshot), *statuses)
    if is_clean(snapshot):
        actions = tuple(without_finalizer(raw) for raw in chosen.leaving)
    gauges = {Gauge.RECONCILIATION: Reconciliation.NO_POLICY, Gauge.GPU_NODES: 0.0}
    return RoundOutcome(actions=actions, gauges=gauges)
