"""A small cluster for upgrades: just enough of DaemonSets, gates, kubelets and budgets, one write at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from purser.core.names import CORDONED_BY_ANNOTATION, POOL_LABEL, UPGRADE_FAILURE_ANNOTATION, UPGRADE_STATE_LABEL
from purser.operator.maintenance import clear_stale_cordon_mark, gpu_pods
from purser.operator.model import (
    Budget,
    DeletePod,
    Evict,
    NodeProgress,
    NodeView,
    NodeWorkload,
    OperandOnNode,
    OperandPod,
    PatchNode,
    PlannedChanges,
    Pool,
    Presence,
    RuntimeKind,
    Template,
    merged,
    patched,
)
from purser.operator.names import UPGRADE_AWAY_SINCE_ANNOTATION
from purser.operator.order import NEEDS, Operand, dependents
from purser.operator.policy.driver import UpgradePolicy
from purser.operator.policy.spec import UpgradeStatus
from purser.operator.upgrade import (
    State,
    UpgradeInputs,
    advance,
    is_under_way,
    pause_of,
    state_of,
    turn,
    upgrade_status,
)
from purser.operator.upgrade.budget import is_unavailable

ENABLED = (Operand.DRIVER, Operand.TOOLKIT, Operand.DEVICE_PLUGIN, Operand.VALIDATOR)
START = 1_000_000.0
DAY_S = 86_400.0

Write = PatchNode | DeletePod | Evict


def workload(name: str, node: str = "", **changes: Any) -> NodeWorkload:
    given = {"namespace": "team", "name": name, "uid": name, "node": node, "uses_gpu": True, "controller": "ReplicaSet"}
    return NodeWorkload(**(given | changes))


def advanced(fleet: UpgradeInputs) -> PlannedChanges:
    """A round of upgrades."""
    return advance(fleet, turn(fleet))


class Cluster:
    """Nodes with a driver of template ``old``; `release` has the policy want another."""

    def __init__(self, *names: str, policy: UpgradePolicy | None = None) -> None:
        self.now = START
        self.policy = policy or UpgradePolicy()
        self.resume = ""
        self.template = "old"
        self.configuration = "old"
        """What the driver of the template is loaded from."""
        self.pools = dict.fromkeys(names, "p")
        self.nodes = {name: NodeView(name=name, uid=name, labels={POOL_LABEL: "p"}) for name in names}
        self.loaded = dict.fromkeys(names, "old")
        """By node: what its driver was loaded from."""
        self.pods: dict[str, OperandPod] = {}
        self.workloads: list[NodeWorkload] = []
        self.budgets: dict[str, Budget] = {}
        self.broken: set[str] = set()
        """Nodes on which the driver of template ``new`` does not come up."""
        self.unwell: set[Operand] = set()
        """Operands that do not become ready."""
        self.applied: str | None = None
        """The template that DaemonSets still have, where it could not be applied yet."""
        self.late: set[str] = set()
        """DaemonSets that are known not to be as the policy says."""
        self.busy: frozenset[str] = frozenset()
        self.obstacles: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        """By node: why nobody knows which driver it is to get."""
        self.foreign_cordons: set[str] = set()
        self.late_home: set[str] = set()
        """Nodes that came back in the middle of their upgrade when they had lost their turn already."""
        self.writes = 0
        self.violations: list[str] = []
        self._made = 0
        for _ in range(4):
            self.live()

    # --- what the operator sees

    def on(self, name: str) -> list[OperandPod]:
        return [pod for pod in self.pods.values() if pod.node == name]

    def pods_by_node(self) -> dict[str, list[OperandPod]]:
        found: dict[str, list[OperandPod]] = {name: [] for name in self.nodes}
        for pod in self.pods.values():
            found[pod.node].append(pod)
        return found

    def progress(self, name: str, there: Iterable[OperandPod] | None = None) -> NodeProgress:
        """``there``: its pods, where they are known."""
        pods = tuple(self.on(name) if there is None else there)
        obstacle, waits = self.obstacles.get(name, ""), self.unknown.get(name, "")
        pool = None if obstacle or waits else self.pool(self.pools[name])
        bare = NodeProgress(
            node=self.nodes[name],
            presence=Presence("present"),
            runtime=RuntimeKind("containerd"),
            pool=pool,
            driver_template=Template(self.template, self.configuration) if pool is not None else Template(),
            obstacle=obstacle,
            waits=waits,
            pods=pods,
        )
        return msgspec.structs.replace(bare, operands={each: _operand(bare, each) for each in self.enabled(name)})

    def enabled(self, name: str) -> tuple[Operand, ...]:
        return ENABLED

    def is_paused(self, name: str, operand: Operand) -> bool:
        return operand in dependents(Operand.DRIVER) and pause_of(self.nodes[name]) is not None

    def decide(self) -> PlannedChanges:
        return self.with_stale_cordon_marks_cleared(advanced(self.fleet()))

    def status(self) -> UpgradeStatus:
        fleet = self.fleet()
        return upgrade_status(fleet, turn(fleet), advanced(fleet))

    def with_stale_cordon_marks_cleared(self, planned: PlannedChanges) -> PlannedChanges:
        """What the kernel writes besides."""
        patches = dict(planned.patches)
        for name, node in self.nodes.items():
            patch = merged(node, [patches.get(name), clear_stale_cordon_mark(patched(node, patches.get(name)))])
            if patch is not None:
                patches[name] = patch
        return msgspec.structs.replace(planned, patches=patches)

    def pool(self, name: str) -> Pool:
        return Pool(
            name=name,
            os_id="ubuntu",
            os_version="22.04",
            kernel="6.8",
            profile="",
            version="570",
        )

    def fleet(self) -> UpgradeInputs:
        return UpgradeInputs(
            now=self.now,
            policy=self.policy,
            resume=self.resume,
            policy_ref=("policy", "uid"),
            node_progress=tuple(self.progress(name, there) for name, there in self.pods_by_node().items()),
            workloads={name: tuple(pod for pod in self.workloads if pod.node == name) for name in self.nodes},
            budgets=tuple(self.budgets.values()),
            busy=self.busy,
            outdated_daemonsets=frozenset(self.late),
        )

    def state(self, name: str) -> State:
        return state_of(self.nodes[name])

    def states(self) -> dict[str, State]:
        return {name: state_of(node) for name, node in self.nodes.items()}

    def failure(self, name: str) -> str:
        return self.nodes[name].annotations.get(UPGRADE_FAILURE_ANNOTATION, "")

    # --- what people do

    def release(self, template: str = "new", *, configuration: str = "") -> None:
        """Another driver; with the configuration of the one before, only its pods are others."""
        self.template = template
        self.configuration = configuration or template

    def change(self, name: str, **changes: Any) -> None:
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], **changes)

    def label(self, name: str, **labels: str) -> None:
        self.change(name, labels=self.nodes[name].labels | labels)

    def join(self, name: str, pool: str = "p") -> None:
        """Another node; its driver is the one that the policy wants."""
        self.pools[name] = pool
        self.loaded[name] = self.configuration
        self.nodes[name] = NodeView(name=name, uid=name, labels={POOL_LABEL: pool})

    def lift(self, name: str) -> None:
        """Whoever cordoned it."""
        self.foreign_cordons.discard(name)
        self.change(name, unschedulable=False)

    def cordon(self, name: str) -> None:
        self.foreign_cordons.add(name)
        self.change(name, unschedulable=True)

    def run_pod(self, pod: NodeWorkload) -> None:
        self.workloads.append(pod)

    # --- what the operator does

    def round(self, killed_after: int | None = None) -> PlannedChanges:
        """One round; the operator dies after so many of its writes. Then the cluster goes on."""
        self._count_turns()
        planned = self.decide()
        for write in [*planned.patches.values(), *planned.deletions, *planned.evictions][:killed_after]:
            self.write(write)
        self.live()
        return planned

    def rounds(self, most: int = 200) -> Iterator[None]:
        """Rounds until nothing changes but time, which is passed then: no more than a day at once."""
        for _ in range(most):
            before = (dict(self.nodes), dict(self.pods), list(self.workloads))
            planned = self.round()
            yield
            if before == (self.nodes, self.pods, self.workloads) and not planned.patches:
                if planned.requeue_after_s is None or planned.requeue_after_s > DAY_S:
                    return
                self.now += max(planned.requeue_after_s, 1.0)

    def run(self, rounds: int = 200, *, until: Callable[[], bool] | None = None) -> None:
        """Rounds until nothing changes any more, or until something holds."""
        if until is not None and until():
            return
        for _ in self.rounds(rounds):
            if until is not None and until():
                return
        assert until is None or until(), f"never came to it: {self.states()}"

    def write(self, write: Write) -> None:
        self.writes += 1
        match write:
            case PatchNode():
                self._patch(write)
            case DeletePod():
                self._delete(write)
            case Evict():
                self._evict(write)

    def _patch(self, patch: PatchNode) -> None:
        before = self.fleet()
        node = self.nodes[patch.node]
        was_unavailable, was_under_way = is_unavailable(self.progress(patch.node), before), is_under_way(node)
        self.nodes[patch.node] = patched(node, patch)
        after = self.nodes[patch.node]
        if patch.unschedulable is False and patch.node in self.foreign_cordons:
            self.violations.append(f"{patch.node}: a foreign cordon was lifted")
        if is_under_way(after) and not was_under_way:
            self._count_turns()
            if not after.ready:
                self.violations.append(f"{patch.node}: begun while NotReady")
        if is_unavailable(self.progress(patch.node), before) and not was_unavailable:
            unavailable = sum(is_unavailable(each, before) for each in self.fleet().node_progress)
            if unavailable > before.max_unavailable:
                self.violations.append(f"{patch.node}: {unavailable} nodes are unavailable")

    def _count_turns(self) -> None:
        """However nodes blink, no more are in an upgrade; but for those that were away for too long."""
        under_way = {name: node for name, node in self.nodes.items() if is_under_way(node)}
        lost = {
            name
            for name, node in under_way.items()
            if self.now
            >= float(node.annotations.get(UPGRADE_AWAY_SINCE_ANNOTATION, "inf")) + self.policy.driver_timeout_seconds
        }
        self.late_home = (self.late_home | lost) & under_way.keys()
        running = [name for name, node in under_way.items() if node.ready and name not in self.late_home]
        if self.policy.max_parallel_upgrades and len(running) > self.policy.max_parallel_upgrades:
            self.violations.append(f"upgrades at a time: {running}")

    def _delete(self, deletion: DeletePod) -> None:
        name = deletion.pod.node
        if deletion.pod.operand == Operand.DRIVER:
            self._driver_goes(name, deletion.pod)
        pod = self.pods.get(deletion.pod.uid)
        if pod is not None:
            self._ended(pod)

    def _driver_goes(self, name: str, driver: OperandPod) -> None:
        if not self.nodes[name].unschedulable:
            self.violations.append(f"{name}: its driver went while it was not cordoned")
        users = self.users(name)
        if f"purser-driver-{self.pools[name]}" in self.late:
            self.violations.append(f"{name}: its driver went for one that cannot come")
        if users and driver.driver_config != self.configuration:
            self.violations.append(f"{name}: its driver went while in use by {users}")

    def users(self, name: str) -> list[str]:
        """What holds the node's driver."""
        users = [pod.name for pod in self.on(name) if pod.operand in dependents(Operand.DRIVER)]
        return users + [pod.name for pod in gpu_pods(pod for pod in self.workloads if pod.node == name)]

    def _evict(self, eviction: Evict) -> None:
        for place, pod in enumerate(self.workloads):
            if pod.uid == eviction.workload.uid and self._budgets_allow(pod):
                self.workloads[place] = msgspec.structs.replace(pod, terminating=True)

    def _budgets_allow(self, pod: NodeWorkload) -> bool:
        for name, budget in self.budgets.items():
            if budget.selector["matchLabels"].items() <= pod.labels.items():
                if not pod.ready and budget.unhealthy_may_go:
                    continue
                if budget.allowed <= 0:
                    return False
                self.budgets[name] = msgspec.structs.replace(budget, allowed=budget.allowed - 1)
        return True

    # --- what the cluster does meanwhile

    def live(self) -> None:
        self.now += 1.0
        for name, there in self.pods_by_node().items():
            if self.nodes[name].ready:
                self._kubelet(name, there)
        for name, there in self.pods_by_node().items():
            self._daemon_sets(name, there)

    def _kubelet(self, name: str, there: Iterable[OperandPod]) -> None:
        """What was asked to go goes; what is there becomes ready."""
        for pod in there:
            if pod.terminating:
                del self.pods[pod.uid]
            elif pod.operand in self.unwell:
                continue
            elif pod.operand != Operand.DRIVER or self._loads(name, pod):
                self.pods[pod.uid] = msgspec.structs.replace(pod, ready=True)
        gone = [pod for pod in self.workloads if pod.node == name and pod.terminating]
        self.workloads = [pod for pod in self.workloads if pod not in gone]
        for pod in gone:
            self._come_back(pod)

    def _loads(self, name: str, pod: OperandPod) -> bool:
        """A driver comes up; one that differs from what is loaded only when nothing holds that."""
        is_broken = pod.template == "new" and name in self.broken
        if is_broken or (pod.driver_config != self.loaded[name] and self.users(name)):
            return False
        self.loaded[name] = pod.driver_config
        return True

    def _come_back(self, pod: NodeWorkload) -> None:
        self._made += 1
        fresh = msgspec.structs.replace(pod, terminating=False, uid=f"{pod.uid}+", name=f"{pod.name}-{self._made}")
        if pod.controller == "DaemonSet":
            if pod_of(self, pod.node, Operand.DEVICE_PLUGIN) is not None:  # without it kubelet offers no GPU
                self.workloads.append(fresh)
        elif pod.controller:
            free = [node.name for node in self.nodes.values() if not node.unschedulable and node.ready]
            for name in free[:1]:
                self.workloads.append(msgspec.structs.replace(fresh, node=name))
                self._give_back(pod)

    def _give_back(self, pod: NodeWorkload) -> None:
        for name, budget in self.budgets.items():
            if budget.selector["matchLabels"].items() <= pod.labels.items():
                self.budgets[name] = msgspec.structs.replace(budget, allowed=budget.allowed + 1)

    def _daemon_sets(self, name: str, there: Iterable[OperandPod]) -> None:
        daemon_set = f"purser-driver-{self.nodes[name].labels[POOL_LABEL]}"
        by_operand: dict[str, list[OperandPod]] = {operand: [] for operand in Operand}
        for pod in there:
            is_misplaced = pod.operand == Operand.DRIVER and pod.daemon_set not in ("", daemon_set)
            if self.is_paused(name, Operand(pod.operand)) or is_misplaced:
                pod = self._ended(pod)
            by_operand[pod.operand].append(pod)
        for operand in self.enabled(name):
            if not by_operand[operand] and self._is_wanted(name, operand, by_operand):
                made = self._made_for(name, operand, daemon_set if operand is Operand.DRIVER else f"purser-{operand}")
                by_operand[operand].append(made)
        driver = _staying(by_operand[Operand.DRIVER])
        for pod in by_operand[Operand.VALIDATOR]:
            if driver is not None and pod.created < driver.created:  # it proves nothing of this driver
                self._ended(pod)

    def _ended(self, pod: OperandPod) -> OperandPod:
        self.pods[pod.uid] = msgspec.structs.replace(pod, terminating=True, ready=False)
        return self.pods[pod.uid]

    def _is_wanted(self, name: str, operand: Operand, there: Mapping[str, Iterable[OperandPod]]) -> bool:
        if operand is Operand.DRIVER:
            return True
        needed = [_staying(there[each]) for each in NEEDS[operand]]
        return not self.is_paused(name, operand) and all(pod is not None and pod.ready for pod in needed)

    def _made_for(self, name: str, operand: Operand, daemon_set: str) -> OperandPod:
        self._made += 1
        uid = f"{operand}-{name}-{self._made}"
        self.pods[uid] = OperandPod(
            namespace="purser-system",
            name=uid,
            uid=uid,
            node=name,
            operand=operand,
            daemon_set=daemon_set,
            template=(self.applied or self.template) if operand is Operand.DRIVER else "t",
            driver_config=(self.applied or self.configuration) if operand is Operand.DRIVER else "",
            created=self.now,
        )
        return self.pods[uid]


def pod_of(cluster: Cluster, name: str, operand: Operand) -> OperandPod | None:
    return _staying(pod for pod in cluster.on(name) if pod.operand == operand)


def _staying(pods: Iterable[OperandPod]) -> OperandPod | None:
    return next((pod for pod in pods if not pod.terminating), None)


def _operand(progress: NodeProgress, operand: Operand) -> OperandOnNode:
    pod = progress.pod_of(operand)
    return OperandOnNode(operand=operand, state="ready" if pod is not None and pod.ready else "progressing")


def marks(node: NodeView) -> set[str]:
    """What an upgrade left on a node, beside the label and annotations that say how it ended."""
    return {
        key
        for key in node.annotations
        if key == CORDONED_BY_ANNOTATION
        or "unschedulable" in key
        or "start-time" in key
        or "left" in key
        or "away" in key
    }


def names(count: int) -> list[str]:
    return [f"n{number:02}" for number in range(count)]


def all_done(cluster: Cluster, among: Iterable[str] | None = None) -> bool:
    return all(
        cluster.nodes[name].labels.get(UPGRADE_STATE_LABEL) == State.DONE
        and (pod := pod_of(cluster, name, Operand.DRIVER)) is not None
        and pod.template == cluster.template
        for name in among or cluster.nodes
    )
