"""What an upgrade would do, before it happens: the machine itself, run over an optimistic copy of the fleet, and the
course that it takes there as a plan and as text.

In the copy every new driver works at once, pods that are asked to leave leave, jobs end, and budgets have room again as
soon as pods are back elsewhere. What does not work out even there is what people have to know beforehand. Of nodes
whose upgrade has begun already, what they wait for is shown as it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from purser.core.names import POOL_LABEL
from purser.core.wording import counted, natural_sort_key
from purser.operator.maintenance import DisruptionLedger, gpu_pods, jobs
from purser.operator.model import NodeProgress, NodeWorkload, OperandOnNode, OperandPod, PlannedChanges, patched
from purser.operator.order import Operand, dependents
from purser.operator.upgrade.budget import fleet_target, has_yet_to_begin, holds_up_others, order, turn
from purser.operator.upgrade.fleet import advance
from purser.operator.upgrade.states import (
    STATES_UNDER_WAY,
    State,
    UpgradeInputs,
    is_due,
    is_managed,
    is_restart_only,
    is_under_way,
    pause_of,
    skip_reason,
    stale_pod,
    state_of,
)
from purser.operator.upgrade.writes import failure_of

# --- the course


NEVER_S = 10**9
"""Later than anything in a plan: plans have no retries."""

LOOKAHEAD_NODES = 4
"""Nodes beyond those that may begin that each step considers: the rest of a long queue cannot be reached yet."""

MAX_ROUNDS_PER_NODE = 40
"""A node takes about ten, and one more per pod of a tight budget."""


class PlannedPod(msgspec.Struct, frozen=True):
    """A pod that an upgrade concerns."""

    namespace: str
    name: str
    how: Literal["evicted", "waited for", "blocking"]
    why: str = ""
    """Of one that is in the way: why it stays."""


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """What happens on one node."""

    name: str
    target: str
    version: str = ""
    """Of the driver that it gets."""
    restart_only: bool = False
    """The driver stays the same: its pod is restarted, and no pod has to leave."""
    pods: tuple[PlannedPod, ...] = ()
    fails: str = ""
    """Why its upgrade would fail; empty: it would not."""
    step: str = ""
    """The state in which it is, of one that is under way; empty: it is not."""
    waits: str = ""
    """Of one that is under way: what it waits for, or what is done next."""


class UpgradeSimulation:
    """The optimistic copy, and what was seen on the way."""

    def __init__(self, fleet: UpgradeInputs) -> None:
        policy = msgspec.structs.replace(
            fleet.policy,
            auto_upgrade=True,
            retry_after_seconds=NEVER_S,
            max_unavailable=fleet.max_unavailable,  # of all nodes, also where only some are looked at
        )
        # Nothing is applied before people have seen the plan.
        self._base = msgspec.structs.replace(fleet, policy=policy, outdated_daemonsets=frozenset())
        self._now = fleet.now
        self._slots = policy.max_parallel_upgrades or len(fleet.node_progress)
        self._workloads = dict(fleet.workloads)
        self._progress = {each.node.name: each for each in fleet.node_progress if _is_always_planned(each, fleet)}
        queue = [each for each in fleet.node_progress if each.node.name not in self._progress and is_due(each)]
        self._queue = sorted(queue, key=lambda each: order(each, fleet), reverse=True)
        self._pods: dict[str, dict[str, PlannedPod]] = {}
        self.waves: list[list[str]] = []

    def fleet(self) -> UpgradeInputs:
        """How it looks now, with those who could be next."""
        waiting = sum(self._could_begin(each) for each in self._progress.values())
        while self._queue and waiting < self._slots + LOOKAHEAD_NODES:
            upcoming = self._queue.pop()
            self._progress[upcoming.node.name] = upcoming
            waiting += self._could_begin(upcoming)
        return msgspec.structs.replace(
            self._base, now=self._now, node_progress=tuple(self._progress.values()), workloads=self._workloads
        )

    def whole_fleet(self) -> UpgradeInputs:
        """How it looks now, with the whole queue."""
        return msgspec.structs.replace(self.fleet(), node_progress=(*self._progress.values(), *self._queue))

    def run(self) -> None:
        """Until nothing happens any more."""
        for _ in range(MAX_ROUNDS_PER_NODE * (len(self._base.node_progress) + 1)):
            fleet = self.fleet()
            planned = advance(fleet, turn(fleet))
            wave = [name for name in planned.patches if self._begins_upgrade(name, planned)]
            if wave:
                self.waves.append(wave)
            changed = self._apply(fleet, planned)
            if not changed:
                if planned.requeue_after_s is None or planned.requeue_after_s > NEVER_S / 2:
                    return
                self._now += max(planned.requeue_after_s, 1.0)

    def planned_node(self, name: str, doing: str = "") -> PlannedNode:
        """What happened on a node. ``doing``: of one that was under way when the plan began."""
        before = next(each for each in self._base.node_progress if each.node.name == name)
        after = self._progress[name].node if name in self._progress else None  # none: it is done
        failed = after is not None and state_of(after) is State.FAILED
        left = self._blocking_pods(name) if after is not None and (failed or is_under_way(after)) else ()
        return PlannedNode(
            name=name,
            target=before.target,
            version=before.pool.version if before.pool is not None else "",
            restart_only=is_restart_only(before),
            pods=(*self._pods.get(name, {}).values(), *left),
            fails=failure_of(after) if after is not None and failed else "",
            step=state_of(before.node) if is_under_way(before.node) else "",
            waits=doing,
        )

    def _could_begin(self, progress: NodeProgress) -> bool:
        return has_yet_to_begin(progress) and progress.node.name not in self._base.busy

    def _begins_upgrade(self, name: str, planned: PlannedChanges) -> bool:
        return State.CORDON.value in planned.patches[name].labels.values()

    def _apply(self, fleet: UpgradeInputs, planned: PlannedChanges) -> bool:
        """Do what was decided, and what a cluster would do then. Whether anything changed."""
        before = (dict(self._progress), dict(self._workloads))
        for name, patch in planned.patches.items():
            progress = self._progress[name]
            self._progress[name] = msgspec.structs.replace(progress, node=patched(progress.node, patch))
        for deletion in planned.deletions:
            progress = self._progress[deletion.pod.node]
            pods = tuple(pod for pod in progress.pods if pod.uid != deletion.pod.uid)
            self._progress[deletion.pod.node] = msgspec.structs.replace(progress, pods=pods)
        for eviction in planned.evictions:
            self._remove_pod(eviction.workload, "evicted")
        for name, progress in list(self._progress.items()):
            state = state_of(progress.node)
            if state is State.JOBS:
                for pod in jobs(self._workloads.get(name, ()), fleet.policy.wait_for_completion.pod_selector):
                    self._remove_pod(pod, "waited for")
            if state in STATES_UNDER_WAY:
                self._end_terminating_pods(name)
                self._progress[name] = _settle_operands(progress, self._now)
            elif (
                name in planned.patches and not _is_always_planned(self._progress[name], fleet) and not is_due(progress)
            ):
                del self._progress[name]  # done
        return before != (self._progress, self._workloads)

    def _remove_pod(self, pod: NodeWorkload, how: Literal["evicted", "waited for"]) -> None:
        self._end_pod(pod)
        self._pods.setdefault(pod.node, {})[pod.uid] = PlannedPod(pod.namespace, pod.name, how)

    def _end_pod(self, pod: NodeWorkload) -> None:
        self._workloads[pod.node] = tuple(each for each in self._workloads[pod.node] if each.uid != pod.uid)

    def _end_terminating_pods(self, name: str) -> None:
        """Pods that were asked to leave before the plan began."""
        for pod in [each for each in self._workloads.get(name, ()) if each.terminating]:
            if pod.uses_gpu:
                self._remove_pod(pod, "evicted")
            else:
                self._end_pod(pod)

    def _blocking_pods(self, name: str) -> Iterable[PlannedPod]:
        rules, ledger = self._base.rules, DisruptionLedger(self._base.budgets)
        for pod in gpu_pods(self._workloads.get(name, ())):
            why = rules.eviction_obstacle(pod) or ledger.try_evict(pod)
            if why:
                yield PlannedPod(pod.namespace, pod.name, "blocking", why)


def _is_always_planned(progress: NodeProgress, fleet: UpgradeInputs) -> bool:
    """Whether the plan is about it all the time, and not only once its turn is near. A failed one is tried again at
    once, or stays as it is."""
    return holds_up_others(progress, fleet) or state_of(progress.node) is State.FAILED


def _settle_operands(progress: NodeProgress, now: float) -> NodeProgress:
    """What becomes of operands on a node that is under way: paused ones leave, others come back and are ready."""
    swapping = state_of(progress.node) is State.RESTART
    paused = dependents(Operand.DRIVER) if pause_of(progress.node) else ()
    pods = {pod.operand: pod for pod in progress.pods if pod.operand not in paused and not pod.terminating}
    is_moved = progress.pool is not None and progress.node.labels.get(POOL_LABEL) == progress.pool.name
    driver = pods.get(Operand.DRIVER)
    if swapping and driver is not None and is_moved and driver.daemon_set != _daemon_set(progress, Operand.DRIVER):
        del pods[Operand.DRIVER]
    operands = {}
    for operand, there in progress.operands.items():  # the driver comes before those that need it
        if there.state == "excluded" or operand in paused:
            operands[operand] = there
            continue
        pods[operand] = _final_pod(progress, operand, pods.get(operand), pods.get(Operand.DRIVER), now)
        operands[operand] = OperandOnNode(operand=operand, state="ready")
    return msgspec.structs.replace(progress, pods=tuple(pods.values()), operands=operands)


def _final_pod(
    progress: NodeProgress, operand: Operand, pod: OperandPod | None, driver: OperandPod | None, now: float
) -> OperandPod:
    """An operand's pod as it will be: ready, and the validator's not older than the driver's."""
    is_stale = pod is not None and driver is not None and pod.created < driver.created
    if pod is None or (operand is Operand.VALIDATOR and is_stale):
        return _new_pod(progress, operand, now)
    return msgspec.structs.replace(pod, ready=True)


def _daemon_set(progress: NodeProgress, operand: Operand) -> str:
    is_driver = operand is Operand.DRIVER and progress.pool is not None
    return progress.pool.daemon_set if is_driver and progress.pool is not None else f"purser-{operand}"


def _new_pod(progress: NodeProgress, operand: Operand, now: float) -> OperandPod:
    return OperandPod(
        namespace="",
        name=f"{operand}-new",
        uid=f"{operand}-new-{now}",
        node=progress.node.name,
        operand=operand,
        daemon_set=_daemon_set(progress, operand),
        template=progress.driver_template.hash,
        driver_config=progress.driver_template.configuration,
        ready=True,
        created=now,
    )


# --- the plan


class UpgradePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade would do."""

    target: str
    waves: tuple[tuple[PlannedNode, ...], ...] = ()
    """Nodes that begin together, in order."""
    under_way: tuple[PlannedNode, ...] = ()
    """Nodes whose upgrade has begun, ordered by name."""
    skipped: dict[str, str] = {}
    """By node that needs an upgrade and is left out: why."""
    waiting: dict[str, str] = {}
    """By node that needs one and never gets its turn: why."""
    unmanaged: dict[str, str] = {}
    """By node whose driver the operator does not replace: why."""
    current: int = 0
    """How many nodes have their driver already."""
    off: bool = False
    """Automatic upgrades are off: none of it would happen by itself."""


def plan(fleet: UpgradeInputs) -> UpgradePlan:
    """What the upgrade of this fleet would do, once its DaemonSets are as the policy says. ``fleet.workloads`` has the
    pods of every node that needs one."""
    simulation = UpgradeSimulation(fleet)
    under_way = sorted(
        (each.node.name for each in fleet.node_progress if is_under_way(each.node)), key=natural_sort_key
    )
    first = simulation.fleet()
    doing = _current_steps(advance(first, turn(first)))
    simulation.run()
    final = turn(simulation.whole_fleet())
    begun = {name for wave in simulation.waves for name in wave}.union(under_way)
    due = [each for each in fleet.node_progress if is_due(each) and each.node.name not in begun]
    return UpgradePlan(
        target=fleet_target(fleet.node_progress),
        waves=tuple(tuple(simulation.planned_node(name) for name in wave) for wave in simulation.waves),
        under_way=tuple(simulation.planned_node(name, doing.get(name, "")) for name in under_way),
        skipped={each.node.name: why for each in due if (why := skip_reason(each))},
        waiting={each.node.name: _wait_reason(each, final.waiting) for each in due if not skip_reason(each)},
        unmanaged={each.node.name: why for each in fleet.node_progress if (why := each.obstacle or each.waits)},
        current=sum(_is_current(each) for each in fleet.node_progress),
        off=not fleet.policy.auto_upgrade,
    )


def _wait_reason(progress: NodeProgress, reasons_by_node: Mapping[str, str]) -> str:
    if progress.node.name in reasons_by_node:
        return reasons_by_node[progress.node.name]
    if why := failure_of(progress.node):
        return f"retried later: {why}"
    return "queued behind nodes whose upgrades last longer than this plan covers"


def _is_current(progress: NodeProgress) -> bool:
    has_driver = progress.pod_of(Operand.DRIVER) is not None and stale_pod(progress) is None
    return has_driver and is_managed(progress) and not is_under_way(progress.node)


def _current_steps(planned: PlannedChanges) -> dict[str, str]:
    """By node: what it waits for, or what is done next."""
    return {name: patch.why for name, patch in planned.patches.items()} | planned.waits


# --- as text


def plan_lines(plan: UpgradePlan) -> list[str]:
    """For people: who is under way, then wave by wave, then who is left out and why."""
    return list(_lines(plan))


def _lines(plan: UpgradePlan) -> Iterator[str]:
    yield f"target: {plan.target or 'none (the operator does not manage a driver)'}"
    if plan.off:
        yield "automatic upgrades are off (spec.driver.upgradePolicy.autoUpgrade): the plan applies once they are on"
    for node in plan.under_way:
        yield from _node(node)
    if not plan.waves and not plan.under_way:
        yield "no node would be upgraded"
    for number, wave in enumerate(plan.waves, 1):
        yield f"wave {number}: {counted(len(wave), 'node')}"
        for node in wave:
            yield from _node(node)
    yield from _reason_lines("skipped", plan.skipped)
    yield from _reason_lines("waiting", plan.waiting)
    yield from _reason_lines("no driver", plan.unmanaged)
    yield f"{counted(plan.current, 'node')} {'has' if plan.current == 1 else 'have'} the target driver"


def _node(node: PlannedNode) -> Iterator[str]:
    how = " (driver pod restart only, no pods are evicted)" if node.restart_only else ""
    begun, now = ("under way: ", f", {node.step}: {node.waits}") if node.step else ("  ", "")
    fails = f" WOULD FAIL: {node.fails}" if node.fails else ""
    yield f"{begun}{node.name}: driver {node.version or 'of an unknown version'}{how}{now}{fails}"
    for pod in node.pods:
        yield f"    {pod.how}: pod {pod.namespace}/{pod.name}{f' ({pod.why})' if pod.why else ''}"


def _reason_lines(what: str, reasons_by_node: Mapping[str, str]) -> Iterator[str]:
    for name, why in sorted(reasons_by_node.items(), key=lambda each: natural_sort_key(each[0])):
        yield f"{what}: {name}: {why}"
