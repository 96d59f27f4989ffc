"""One round: from everything that is there to everything that is to be done about it."""

from collections.abc import Iterable, Iterator

import msgspec

from purser.operator.kernel.active import Chosen, choose, has_finalizer, name_of
from purser.operator.kernel.facts import runtime_of
from purser.operator.kernel.gates import changes_pool, gate_patch, gone_patch, stale_validations
from purser.operator.kernel.leaving import cleanup, is_clean
from purser.operator.kernel.objects import object_actions
from purser.operator.kernel.others import (
    ignored_status,
    invalid_status,
    leaving_status,
    released,
    with_finalizer,
    without_finalizer,
    write_status,
)
from purser.operator.kernel.pools import labelled_pool
from purser.operator.kernel.standing import Place, fails_at, places, standings
from purser.operator.kernel.status import status_of
from purser.operator.kernel.telling import NO_POLICY, NOT_READY, events_of, gauges_of
from purser.operator.merging import merged, patched
from purser.operator.mig import MigFleet
from purser.operator.mig import advance as advance_mig
from purser.operator.mig import is_under_way as mig_is_under_way
from purser.operator.mig import needs_workloads as mig_needs_workloads
from purser.operator.mig import pause_of as mig_pause
from purser.operator.model import (
    Action,
    DeletePod,
    Moves,
    NodeView,
    ObjectKey,
    Outcome,
    PatchNode,
    Pool,
    Rendered,
    Snapshot,
    Standing,
    Wanted,
)
from purser.operator.names import POOL_LABEL, RESUME_UPGRADE_ANNOTATION
from purser.operator.operands import render
from purser.operator.policy import ClusterPolicy
from purser.operator.upgrade import Fleet, bars_mig, upgrade_status
from purser.operator.upgrade import advance as advance_upgrade
from purser.operator.upgrade import needs_workloads as upgrade_needs_workloads
from purser.operator.upgrade import pause_of as upgrade_pause


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a round found out before it decides."""

    snapshot: Snapshot
    policy: ClusterPolicy
    resume: str
    places: tuple[Place, ...]
    rendered: tuple[Rendered, ...]
    standings: tuple[Standing, ...]


def reconcile(snapshot: Snapshot) -> Outcome:
    """What to do next. Every action is valid by itself: whoever does some of them and dies has done no harm, and the
    next round goes on from there. Without change there are no actions."""
    chosen = choose(snapshot.policies)
    if chosen.raw is None:
        return _leave(snapshot, chosen)
    if chosen.policy is None:
        return _without_decision(snapshot, chosen)
    if not has_finalizer(chosen.raw):
        return Outcome(actions=(with_finalizer(chosen.raw), *_about_others(snapshot, chosen)))
    return _decide(view_of(snapshot, chosen.policy, chosen.raw["metadata"].get("annotations") or {}), chosen)


def nodes_to_look_into(nodes: Iterable[NodeView]) -> frozenset[str]:
    """Nodes whose pods a round has to know, besides operands."""
    return frozenset(node.name for node in nodes if upgrade_needs_workloads(node) or mig_needs_workloads(node))


def upgrade_fleet(snapshot: Snapshot) -> Fleet | str:
    """The fleet as the upgrade sees it; or in a sentence why there is none."""
    chosen = choose(snapshot.policies)
    if chosen.raw is None:
        return "there is no ClusterPolicy"
    if chosen.policy is None:
        return f"ClusterPolicy {name_of(chosen.raw)}: {chosen.problem}"
    return _fleet(view_of(snapshot, chosen.policy, chosen.raw["metadata"].get("annotations") or {}))


def view_of(snapshot: Snapshot, policy: ClusterPolicy, annotations: dict[str, str]) -> View:
    """Everything that is found out about a snapshot under a policy."""
    found = places(snapshot, policy.spec)
    rendered = render(
        Wanted(
            policy=policy,
            namespace=snapshot.namespace,
            purser_image=snapshot.purser_image,
            pools=wanted_pools(found, policy),
            runtimes=tuple(sorted({runtime_of(each.node) for each in found if each.presence.state != "gone"})),
            service_monitors=snapshot.service_monitors,
        )
    )
    return View(
        snapshot=snapshot,
        policy=policy,
        resume=annotations.get(RESUME_UPGRADE_ANNOTATION, ""),
        places=found,
        rendered=rendered,
        standings=standings(snapshot, policy.spec, found, rendered),
    )


def wanted_pools(found: Iterable[Place], policy: ClusterPolicy) -> tuple[Pool, ...]:
    """Pools of nodes, and those that nodes still carry: their drivers run until an upgrade moves them."""
    driver = policy.spec.driver
    pools: dict[str, Pool] = {}
    for place in found:
        carried = labelled_pool(place.node, driver) if driver.enabled and place.presence.state != "gone" else None
        pools |= {pool.name: pool for pool in (place.pool, carried) if pool is not None}
    return tuple(pools[name] for name in sorted(pools))


def _decide(view: View, chosen: Chosen) -> Outcome:
    """A round under a policy that can be read."""
    snapshot, raw = view.snapshot, chosen.raw
    assert raw is not None
    fleet = _fleet(view)
    upgrades = advance_upgrade(fleet)
    migs = advance_mig(_mig_fleet(view, upgrades))
    status = status_of(snapshot, view.policy, view.standings, upgrade_status(fleet))
    applies, deletes = object_actions(snapshot, view.rendered, _kept(view))
    return Outcome(
        actions=(
            *applies,
            *_node_patches(view, upgrades, migs),
            *_unique_deletions(view, upgrades, migs),
            *upgrades.evictions,
            *migs.evictions,
            *deletes,
            *write_status(raw, status),
            *_about_others(snapshot, chosen),
        ),
        events=(*upgrades.events, *migs.events, *events_of(view.policy, status, view.standings)),
        gauges={**upgrades.gauges, **migs.gauges, **gauges_of(snapshot, view.standings, status)},
        look_again_s=_soonest(view, upgrades, migs),
    )


def _fleet(view: View) -> Fleet:
    meta, sets = view.policy.metadata, _live_sets(view.snapshot)
    return Fleet(
        now=view.snapshot.now,
        policy=view.policy.spec.driver.upgrade_policy,
        resume=view.resume,
        policy_ref=(meta.name, meta.uid),
        standings=view.standings,
        workloads=view.snapshot.workloads,
        budgets=view.snapshot.budgets,
        busy=frozenset(
            each.node.name for each in view.standings if mig_is_under_way(each.node) or changes_pool(each, sets)
        ),
    )


def _mig_fleet(view: View, upgrades: Moves) -> MigFleet:
    """The upgrade has been asked first: where it begins in this very round, MIG does not."""
    nodes = (patched(each.node, upgrades.patches.get(each.node.name)) for each in view.standings)
    return MigFleet(
        now=view.snapshot.now,
        spec=view.policy.spec.mig_manager,
        standings=view.standings,
        workloads=view.snapshot.workloads,
        budgets=view.snapshot.budgets,
        busy=frozenset(node.name for node in nodes if bars_mig(node)),
    )


def _node_patches(view: View, upgrades: Moves, migs: Moves) -> Iterator[PatchNode]:
    """One write per node: what the state machines want, and the operands' labels that follow from it."""
    sets = _live_sets(view.snapshot)
    by_name = {standing.node.name: standing for standing in view.standings}
    for place in view.places:
        node, standing = place.node, by_name.get(place.node.name)
        moves = [upgrades.patches.get(node.name), migs.patches.get(node.name)]
        if standing is None:
            patch = merged(node, [gone_patch(node)])
        else:
            after = patched(node, merged(node, moves))
            pause = upgrade_pause(after) or mig_pause(after)
            patch = merged(node, [gate_patch(standing, place.presence, pause, sets, view.snapshot.now), *moves])
        if patch is not None:
            yield patch


def _live_sets(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(key.name for key in snapshot.objects if key.kind == "DaemonSet")


def _unique_deletions(view: View, *moves: Moves) -> Iterator[DeletePod]:
    """A pod that two want gone is deleted once."""
    wanted = [*(each for move in moves for each in move.deletions), *stale_validations(view.standings)]
    unique = {each.pod.uid: each for each in reversed(wanted)}
    yield from sorted(unique.values(), key=lambda each: (each.pod.node, each.pod.name))


def _kept(view: View) -> frozenset[ObjectKey]:
    """Driver DaemonSets of pools that nodes carry and that the policy no longer knows: a profile that is gone, another
    operating system. They stay as they are until an upgrade has moved their nodes."""
    if not view.policy.spec.driver.enabled:
        return frozenset()
    carried = {place.node.labels.get(POOL_LABEL) for place in view.places if place.presence.state != "gone"}
    names = {f"purser-driver-{name}" for name in carried if name}
    return frozenset(key for key in view.snapshot.objects if key.kind == "DaemonSet" and key.name in names)


def _soonest(view: View, upgrades: Moves, migs: Moves) -> float | None:
    """When time alone will have changed something: never sooner than in a second."""
    now = view.snapshot.now
    times = [each.presence.gone_at - now for each in view.places if each.presence.gone_at is not None]
    for standing in view.standings:
        times += [fails_at(pod) - now for pod in standing.pods if not pod.ready and fails_at(pod) > now]
    times += [each for each in (upgrades.look_again_s, migs.look_again_s) if each is not None]
    return max(1.0, min(times)) if times else None


def _about_others(snapshot: Snapshot, chosen: Chosen) -> Iterator[Action]:
    """Younger policies say so, and those that leave may go once everything belongs to the active one."""
    active = name_of(chosen.raw) if chosen.raw is not None else ""
    for raw in chosen.ignored:
        yield from write_status(raw, ignored_status(snapshot, raw, active))
    for raw in chosen.leaving:
        yield from write_status(
            raw, leaving_status(snapshot, raw, f"it goes once ClusterPolicy {active} has taken over")
        )
    yield from released(snapshot, chosen)


def _without_decision(snapshot: Snapshot, chosen: Chosen) -> Outcome:
    """The active policy cannot be read: it says so, and nothing else changes."""
    raw = chosen.raw
    assert raw is not None
    status = invalid_status(snapshot, raw, chosen.problem)
    actions = (*write_status(raw, status), *_about_others(snapshot, chosen))
    return Outcome(actions=actions, gauges={"reconciliation_status": NOT_READY})


def _leave(snapshot: Snapshot, chosen: Chosen) -> Outcome:
    """No policy is left: everything goes, and at last the finalizers of those that wait for that."""
    told = "it goes once nothing of the stack is left: neither objects, nor their pods, nor labels of nodes"
    statuses = [each for raw in chosen.leaving for each in write_status(raw, leaving_status(snapshot, raw, told))]
    actions: tuple[Action, ...] = (*cleanup(snapshot), *statuses)
    if is_clean(snapshot):
        actions = tuple(without_finalizer(raw) for raw in chosen.leaving)
    return Outcome(actions=actions, gauges={"reconciliation_status": NO_POLICY, "gpu_nodes_total": 0.0})
