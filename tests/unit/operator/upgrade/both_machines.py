"""The small cluster with GPUs that can MIG: both machines at work on it, as one round of the kernel has them."""

from collections.abc import Iterable

import msgspec
from tests.unit.operator.upgrade.fleets import ENABLED, Cluster, advanced, pod_of

from purser.core.names import MIG_CONFIG_LABEL, MIG_RESULT_ANNOTATION, MIG_STATE_LABEL, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigRequest, MigResult, decode_request, decode_result
from purser.operator.maintenance import gpu_pods
from purser.operator.mig import GPU_CLIENTS, MigFleet, makes_unavailable
from purser.operator.mig import advance as advance_mig
from purser.operator.mig import is_under_way as mig_is_under_way
from purser.operator.mig import pause_of as mig_pause
from purser.operator.model import NodeProgress, OperandPod, PatchNode, PlannedChanges, merged, patched
from purser.operator.names import MIG_STEP_ANNOTATION
from purser.operator.order import Operand
from purser.operator.policy.driver import UpgradePolicy
from purser.operator.policy.sections import MigManagerSpec
from purser.operator.upgrade import State, UpgradeInputs, blocks_mig, is_under_way, state_of, unavailable

OFF = "all-disabled"


class BothMachines(Cluster):
    """Every node's GPUs can MIG. Of some nodes the worker hangs while it applies a layout."""

    def __init__(self, *names: str, policy: UpgradePolicy | None = None) -> None:
        self.layouts: dict[str, str] = {}
        self.spec = MigManagerSpec()
        self.hanging: set[str] = set()
        self.at_work: dict[str, str] = {}
        """By node: uid of the manager's pod that applies a layout and has not answered."""
        super().__init__(*names, policy=policy)

    # --- what people do

    def want(self, name: str, profile: str) -> None:
        self.label(name, **{MIG_CONFIG_LABEL: profile})

    # --- what the operator sees and does

    def enabled(self, name: str) -> tuple[Operand, ...]:
        return (*ENABLED, Operand.MIG_MANAGER)

    def progress(self, name: str, there: Iterable[OperandPod] | None = None) -> NodeProgress:
        return msgspec.structs.replace(super().progress(name, there), mig_capable=True)

    def is_paused(self, name: str, operand: Operand) -> bool:
        is_client = operand in GPU_CLIENTS and mig_pause(self.nodes[name]) is not None
        return is_client or super().is_paused(name, operand)

    def fleet(self) -> UpgradeInputs:
        nodes = self.nodes.values()
        busy = frozenset(node.name for node in nodes if mig_is_under_way(node))
        held = frozenset(node.name for node in nodes if makes_unavailable(node))
        return msgspec.structs.replace(super().fleet(), busy=busy, held=held)

    def decide(self) -> PlannedChanges:
        fleet = self.fleet()
        upgrades = advanced(fleet)
        after = (patched(node, upgrades.patches.get(node.name)) for node in self.nodes.values())
        migs = advance_mig(
            MigFleet(
                now=self.now,
                spec=self.spec,
                policy=self.policy,
                node_progress=fleet.node_progress,
                workloads=fleet.workloads,
                budgets=fleet.budgets,
                busy=frozenset(node.name for node in after if blocks_mig(node)),
                unavailable=unavailable(fleet, upgrades),
            )
        )
        return self.with_stale_cordon_marks_cleared(_together(self, upgrades, migs))

    def _patch(self, patch: PatchNode) -> None:
        super()._patch(patch)
        node = self.nodes[patch.node]
        if makes_unavailable(node) and is_under_way(node) and state_of(node) is not State.VALIDATION:
            self.violations.append(f"{patch.node}: two machines are at it")
        if not makes_unavailable(node) and patch.node in self.at_work:
            self.violations.append(f"{patch.node}: given back while its worker is at it")

    # --- what the cluster does meanwhile

    def live(self) -> None:
        super().live()
        self.at_work = {name: uid for name, uid in self.at_work.items() if uid in self.pods}
        for name, node in self.nodes.items():
            manager = pod_of(self, name, Operand.MIG_MANAGER)
            if node.ready and manager is not None and manager.ready:
                self._worker(name, manager.uid)

    def _loads(self, name: str, pod: object) -> bool:
        before = self.loaded[name]
        is_up = super()._loads(name, pod)  # type: ignore[arg-type]
        if self.loaded[name] != before:
            self.layouts[name] = OFF  # MIG devices do not outlive a driver
        return is_up

    def _worker(self, name: str, uid: str) -> None:
        there = self.nodes[name].annotations
        request, result = (
            decode_request(there.get(MIG_WANTED_ANNOTATION)),
            decode_result(there.get(MIG_RESULT_ANNOTATION)),
        )
        if request is None or (result is not None and result.attempt == request.attempt):
            return
        if not request.check_only and name in self.hanging:
            self.at_work[name] = uid
            return
        self.at_work.pop(name, None)
        self.change(name, annotations=there | {MIG_RESULT_ANNOTATION: encode(self._answer(name, request))})

    def _answer(self, name: str, request: MigRequest) -> MigResult:
        if request.check_only:
            differs = self.layouts.get(name, OFF) != request.profile
            return MigResult(request.profile, request.attempt, differs=differs)
        users = [pod.name for pod in self.on(name) if pod.operand in GPU_CLIENTS]
        users += [pod.name for pod in gpu_pods(pod for pod in self.workloads if pod.node == name)]
        if users or not self.nodes[name].unschedulable:
            self.violations.append(f"{name}: a layout was applied while in use by {users}")
        self.layouts[name] = request.profile
        return MigResult(request.profile, request.attempt)


def _together(cluster: BothMachines, upgrades: PlannedChanges, migs: PlannedChanges) -> PlannedChanges:
    patches = {}
    for name, node in cluster.nodes.items():
        patch = merged(node, [upgrades.patches.get(name), migs.patches.get(name)])
        if patch is not None:
            patches[name] = patch
    times = [each for each in (upgrades.requeue_after_s, migs.requeue_after_s) if each is not None]
    return PlannedChanges(
        patches=patches,
        deletions=(*upgrades.deletions, *migs.deletions),
        evictions=(*upgrades.evictions, *migs.evictions),
        events=(*upgrades.events, *migs.events),
        requeue_after_s=min(times, default=None),
    )


def mig_is_settled(cluster: BothMachines) -> bool:
    """Every node has the layout that it is to have, and nothing is left of the change."""
    return all(
        MIG_STEP_ANNOTATION not in node.annotations
        and node.labels.get(MIG_STATE_LABEL) == "success"
        and cluster.layouts.get(name, OFF) == node.labels[MIG_CONFIG_LABEL]
        for name, node in cluster.nodes.items()
        if MIG_CONFIG_LABEL in node.labels
    )
