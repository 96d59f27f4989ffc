"""One node whose GPUs can MIG, with gates, kubelet and a worker in miniature; one write at a time."""

from typing import Any

import msgspec
from tests.unit.operator.upgrade.fleets import workload

from purser.core.names import MIG_CONFIG_LABEL, MIG_RESULT_ANNOTATION, MIG_STATE_LABEL, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigResult, decode_request, decode_result
from purser.operator.mig import GPU_CLIENTS, MigFleet, advance, is_under_way, pause_of
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
    Presence,
    RuntimeKind,
    patched,
)
from purser.operator.order import Operand
from purser.operator.policy.driver import UpgradePolicy
from purser.operator.policy.sections import MigManagerSpec, PluginConfig

HERE = (Operand.DRIVER, Operand.DEVICE_PLUGIN, Operand.VALIDATOR, Operand.MIG_MANAGER)
LAYOUTS = ("all-disabled", "all-1g.10gb", "all-balanced")


class Node:
    """A node with MIG off, and everything that happens to it."""

    def __init__(self, profile: str = "", *, default: str = "", name: str = "a") -> None:
        self.name = name
        self.policy = UpgradePolicy()
        self.now = 1_000_000.0
        self.spec = MigManagerSpec(config=PluginConfig(default=default))
        self.node = NodeView(name=name, uid=name, boot_id="boot", labels={MIG_CONFIG_LABEL: profile} if profile else {})
        self.layout = "all-disabled"
        """What the GPUs are."""
        self.worker = "well"
        """Or ``away``: its pod is there and does nothing; or ``unable``: it answers with an error."""
        self.remakes_manager = True
        self.hangs = False
        """Pods do not go."""
        self.driver = "driver-1"
        self.pods = {operand: self._pod(operand) for operand in HERE}
        self.workloads: list[NodeWorkload] = []
        self.budgets: tuple[Budget, ...] = ()
        self.busy = False
        self.capable = True
        self.taken_up_by = ""
        """Uid of the manager's pod that applies a layout and has not answered."""
        self.untouched: tuple[str, ...] = ()
        """Uuids of GPUs that no layout changes, as the worker says."""
        self.deleted: list[str] = []
        self.writes = 0
        self.violations: list[str] = []

    @property
    def state(self) -> str | None:
        return self.node.labels.get(MIG_STATE_LABEL)

    @property
    def result(self) -> MigResult | None:
        return decode_result(self.node.annotations.get(MIG_RESULT_ANNOTATION))

    @property
    def offers_gpus(self) -> bool:
        return Operand.DEVICE_PLUGIN in self.pods and not self.node.unschedulable

    def change(self, **changes: Any) -> None:
        self.node = msgspec.structs.replace(self.node, **changes)

    def want(self, profile: str) -> None:
        self.change(labels=self.node.labels | {MIG_CONFIG_LABEL: profile})

    def run_pod(self, name: str, **changes: Any) -> None:
        self.workloads.append(workload(name, self.name, **changes))

    def progress(self) -> NodeProgress:
        operands = {
            operand: OperandOnNode(operand=operand, state="ready" if operand in self.pods else "waiting")
            for operand in HERE
        }
        return NodeProgress(
            node=self.node,
            presence=Presence("present"),
            runtime=RuntimeKind("containerd"),
            operands=operands,
            pods=tuple(self.pods.values()),
            mig_capable=self.capable,
        )

    def fleet(self) -> MigFleet:
        return MigFleet(
            now=self.now,
            spec=self.spec,
            node_progress=(self.progress(),),
            policy=self.policy,
            workloads={self.name: tuple(self.workloads)},
            budgets=self.budgets,
            busy=frozenset({self.name}) if self.busy else frozenset(),
            unavailable=frozenset({self.name}) if self.node.unschedulable else frozenset(),
        )

    def round(self, killed_after: int | None = None) -> PlannedChanges:
        planned = advance(self.fleet())
        for write in [*planned.patches.values(), *planned.deletions, *planned.evictions][:killed_after]:
            self.write(write)
        self.live()
        return planned

    def run(self, rounds: int = 60) -> None:
        """Until nothing changes but time, which is passed then."""
        for _ in range(rounds):
            before = (self.node, dict(self.pods), list(self.workloads), self.layout)
            planned = self.round()
            if before == (self.node, self.pods, self.workloads, self.layout):
                if planned.requeue_after_s is None:
                    return
                self.now += max(planned.requeue_after_s, 1.0)

    def write(self, write: PatchNode | DeletePod | Evict) -> None:
        self.writes += 1
        if isinstance(write, DeletePod):
            self.deleted.append(write.pod.uid)
            self.terminating(write.pod.uid)
            return
        if isinstance(write, Evict):
            self.workloads = [pod for pod in self.workloads if pod.uid != write.workload.uid]
            if write.workload.controller == "DaemonSet" and Operand.DEVICE_PLUGIN in self.pods:
                self.workloads.append(write.workload)  # its controller puts it there again
            return
        self.node = patched(self.node, write)
        if pause_of(self.node) is None and self.taken_up_by in {pod.uid for pod in self.pods.values()}:
            self.violations.append("the node was given back while its worker may be at it")
        if not is_under_way(self.node) and MIG_WANTED_ANNOTATION in self.node.annotations:
            self.violations.append("a request outlives its change")

    def terminating(self, uid: str) -> None:
        """A pod was asked to go."""
        for operand, pod in self.pods.items():
            if pod.uid == uid:
                self.pods[operand] = msgspec.structs.replace(pod, terminating=True, ready=False)

    def live(self) -> None:
        """Gates, kubelet and the worker."""
        self.now += 1.0
        manager = self.pods.get(Operand.MIG_MANAGER)
        if manager is not None and manager.terminating and not self.hangs:
            del self.pods[Operand.MIG_MANAGER]
        elif manager is None and self.spec.enabled and self.remakes_manager:
            self.pods[Operand.MIG_MANAGER] = self._pod(Operand.MIG_MANAGER)
        paused = pause_of(self.node) is not None
        for operand in GPU_CLIENTS:
            if paused:
                self.pods.pop(operand, None)
            elif operand in HERE and operand not in self.pods:
                self.pods[operand] = self._pod(operand)
        self._work()

    def _work(self) -> None:
        request = decode_request(self.node.annotations.get(MIG_WANTED_ANNOTATION))
        manager = self.pods.get(Operand.MIG_MANAGER)
        if request is None or manager is None or (self.result and self.result.attempt == request.attempt):
            return
        if self.worker == "away":
            self.taken_up_by = self.taken_up_by if request.check_only else manager.uid
            return
        if self.worker == "unable":
            answer = MigResult(request.profile, request.attempt, "the GPU says no")
        elif request.profile not in LAYOUTS:
            answer = MigResult(request.profile, request.attempt, f"layout {request.profile} does not exist")
        elif request.check_only:
            differs = request.profile != self.layout
            answer = MigResult(request.profile, request.attempt, differs=differs, untouched=self.untouched)
        else:
            if self.workloads_on_gpus() or any(operand in self.pods for operand in GPU_CLIENTS):
                self.violations.append("a layout was applied while GPUs were in use")
            if not self.node.unschedulable:
                self.violations.append("a layout was applied on a node that is not cordoned")
            self.layout = request.profile
            self.taken_up_by = ""
            answer = MigResult(request.profile, request.attempt)
        self.change(annotations=self.node.annotations | {MIG_RESULT_ANNOTATION: encode(answer)})

    def workloads_on_gpus(self) -> list[str]:
        kept = frozenset(self.untouched)
        return [pod.name for pod in self.workloads if pod.uses_gpu and not (pod.devices and pod.devices <= kept)]

    def _pod(self, operand: Operand) -> OperandPod:
        uid = self.driver if operand is Operand.DRIVER else f"{operand}-{self.now}"
        return OperandPod(
            namespace="purser-system",
            name=str(operand),
            uid=uid if self.name == "a" else f"{self.name}-{uid}",
            node=self.name,
            operand=operand,
            daemon_set=f"purser-{operand}",
            ready=True,
        )
