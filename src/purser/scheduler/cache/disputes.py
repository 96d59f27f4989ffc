"""What nodes hold beyond the pods' grants, as their agents report it, and the GPUs that are closed meanwhile.

Three things close a GPU to new grants, each until the records agree again:

- The node's agent reports that a pod holds an unknown amount of it, that a pod still holds it although its status says
  that it has ended, or that it refused a pod for it.
- A pod runs on the node, requests devices and has no grant, and the agent has not reported yet what it holds. A pod
  that kubelet has not admitted holds nothing: creating such pods closes nothing. For another vendor's devices there is
  no agent: such a pod closes its family's until it ends.
- kubelet rejected a pod that was granted it, because of that GPU or for lack of GPUs: other causes of rejection close
  nothing, or the pod's author could close any GPU. The agent's next report on that pod opens it, or takes over. Without
  one, it opens after a pause, which is longer each time it had been open in between: pods that are rejected while it is
  closed were granted it before, as when a kubelet starts without its plugin and rejects all waiting pods. Where kubelet
  says that it reached no agent, all GPUs of the node are closed: until it has told the API server, up to ten seconds
  later, a controller's pods would be bound to one GPU after another. A pod that kubelet had taken before closes GPUs
  that have not been closed lately, and lengthens nothing: a kubelet that has restarted rejects all its pods at once,
  and whoever may write their status could say so of one after the other.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from purser.core.device.resources import MIG_PREFIX
from purser.core.fleet import Fleet
from purser.core.grant.disputes import HeldReason, NodeDisputes, closed_gpus, read_disputes
from purser.core.grant.reconcile import PodBook, closed_devices, counts
from purser.core.model import Grant, GrantState
from purser.core.names import DISPUTES_ANNOTATION, GPU_RESOURCE
from purser.kube.clock import Clock, SystemClock
from purser.kube.objects import Node
from purser.recent import Recent
from purser.scheduler.metrics import SchedulerMetrics

log = structlog.get_logger("purser.scheduler")

INITIAL_GPU_CLOSURE_S = 5.0
"""For how long a GPU is closed whose pod was rejected and whose agent reports nothing: enough time for a report."""

MAX_GPU_CLOSURE_S = 60.0

_MAX_REMEMBERED_PODS_PER_NODE = 512

_NO_AGENT_TEXTS = ("has been stopped", "unregistered device", "no healthy devices present", "code = Unavailable")
"""In kubelet's message where it did not reach the agent (``pkg/kubelet/cm/devicemanager`` of 1.20 to 1.36, gRPC)."""


@dataclass(slots=True)
class _ClosedGpu:
    """One GPU of a node whose pods were rejected."""

    pod: str
    uid: str
    until: float
    """Monotonic seconds."""
    closure_s: float

    def is_forgotten(self, now: float) -> bool:
        """Whether the next rejection is a new story."""
        return now > self.until + MAX_GPU_CLOSURE_S

    def next_closure_s(self, now: float) -> float:
        """For how long the GPU is closed by a rejection now."""
        if now < self.until:
            return self.closure_s
        return INITIAL_GPU_CLOSURE_S if self.is_forgotten(now) else min(2 * self.closure_s, MAX_GPU_CLOSURE_S)


class DisputeBook:
    """Keeps the ledger and the fleet what agents' reports make of them."""

    def __init__(
        self,
        fleet: Fleet,
        is_live: Callable[[str], bool],
        metrics: SchedulerMetrics,
        clock: Clock | None = None,
    ) -> None:
        """``is_live``: whether a pod, by uid, is known and has not ended."""
        self._fleet = fleet
        self._is_live = is_live
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._texts: dict[str, str] = {}
        self._disputes: dict[str, NodeDisputes] = {}
        self._pods: dict[str, dict[str, tuple[PodBook, GrantState]]] = {}
        self._closures: dict[str, dict[str, _ClosedGpu]] = {}
        self._refused_by_agent: dict[str, Recent[str, None]] = {}
        """By node: the uids of pods that its own agent spoke of."""
        self._closed: dict[str, dict[str, str]] = {}
        self.on_closed: Callable[[str, str], None] = lambda node, text: None
        """Called with a node's name and the obstacles there, when they begin or change."""

    def put_node(self, node: Node) -> None:
        """Take an agent's report, where it changed."""
        name, text = node.metadata.name, node.metadata.annotations.get(DISPUTES_ANNOTATION, "")
        if self._texts.get(name, "") == text:
            return
        self._texts[name] = text
        disputes = read_disputes(text, name)
        if text and disputes is None:
            log.warning("A node's disputes annotation is invalid, so it is ignored", node=name)
        if disputes is None:
            self._disputes.pop(name, None)
        else:
            self._disputes[name] = disputes
            for each in disputes.refused:
                self._note_refusal(name, each.uid)
        for uid in list(self._pods.get(name, ())):
            self._count(name, uid)
        self.update_fleet(name)

    def remove_node(self, name: str) -> None:
        """The node is gone."""
        for kept in (self._texts, self._disputes, self._closures, self._closed, self._refused_by_agent):
            kept.pop(name, None)
        self._fleet.set_disputes(name, {})

    def put_ungranted(self, node: str, pod: PodBook, state: GrantState) -> None:
        """A live pod that asks for devices carries no grant that counts."""
        self._pods.setdefault(node, {})[pod.uid] = (pod, state)
        self._count(node, pod.uid)
        self.update_fleet(node)

    def put_granted(self, node: str, uid: str) -> None:
        """A live pod carries its grant."""
        self._forget(node, uid)

    def remove_pod(self, node: str, uid: str) -> None:
        """A pod has ended."""
        self._forget(node, uid)

    def rejected(self, key: str, grant: Grant, message: str, *, was_admitted: bool = False) -> None:
        """kubelet rejected a pod that was granted devices, with a message that repeats what the agent said.
        ``was_admitted``: it had admitted the pod before."""
        self._metrics.rejected_by_node()
        uuids = grant.uuids
        if not any(resource in message for resource in (GPU_RESOURCE, MIG_PREFIX)):
            uuids = frozenset(uuid for uuid in uuids if f"device {uuid} " in message)
        elif any(text in message for text in _NO_AGENT_TEXTS) and (node := self._fleet.node(grant.node)) is not None:
            uuids |= {each.device.uuid for each in node.devices}
        if not uuids or grant.pod_uid in self._refused_by_agent.get(grant.node, ()):
            return
        now, closures = self._clock.monotonic(), self._closures.setdefault(grant.node, {})
        for uuid in uuids:
            before = closures.get(uuid)
            if was_admitted and before is not None and not before.is_forgotten(now):
                continue
            closure_s = INITIAL_GPU_CLOSURE_S if before is None else before.next_closure_s(now)
            closures[uuid] = _ClosedGpu(key, grant.pod_uid, now + closure_s, closure_s)
        self.update_fleet(grant.node)

    def tick(self) -> None:
        """Open what has rested."""
        now = self._clock.monotonic()
        for name, closures in list(self._closures.items()):
            for uuid in [uuid for uuid, each in closures.items() if each.is_forgotten(now)]:
                del closures[uuid]
            if not closures:
                del self._closures[name]
            self.update_fleet(name)

    def closed(self, node: str) -> dict[str, str]:
        """Why GPUs of a node take no new grants, by uuid."""
        return dict(self._closed.get(node, {}))

    def is_reported(self, node: str, uid: str) -> bool:
        """Whether the node's agent says that a pod without a grant has ids of kubelet's."""
        disputes = self._disputes.get(node)
        return disputes is not None and any(
            each.uid == uid and each.why is HeldReason.NEVER_GRANTED for each in disputes.held
        )

    def update_fleet(self, name: str) -> None:
        """Update the closed GPUs of a node in the fleet; called again when its devices changed."""
        closed = self._closed_gpus(name)
        if closed == self._closed.get(name, {}):
            return
        if closed:
            self._closed[name] = closed
        else:
            del self._closed[name]
        self._fleet.set_disputes(name, closed)
        self._metrics.disputed_gpus(sum(map(len, self._closed.values())))
        text = "; ".join(f"GPU {uuid}: {why}" for uuid, why in sorted(closed.items()))
        log.warning("Disputed GPUs changed", node=name, closed=text or "none")
        if text:
            self.on_closed(name, text)

    def _closed_gpus(self, name: str) -> dict[str, str]:
        now, closed = self._clock.monotonic(), {}
        for uuid, closure in self._closures.get(name, {}).items():
            if now < closure.until:
                closed[uuid] = f"the node rejected pod {closure.pod} and has not reported why"
        pods, disputes = self._pods.get(name), self._disputes.get(name)
        if pods:
            reports = {} if disputes is None else {each.uid: each for each in disputes.held}
            node = self._fleet.node(name)
            devices = {} if node is None else {state.device.uuid: state.device for state in node.devices}
            for uid, (pod, _) in pods.items():
                found = closed_devices(pod, counts(pod, reports.get(uid), name), devices)
                closed |= {uuid: why for uuid, why in found.items() if uuid not in closed}
        return closed if disputes is None else closed | closed_gpus(disputes, self._is_live)

    def _count(self, node: str, uid: str) -> None:
        """Enter what the agent says of a pod, or nothing."""
        pod, state = self._pods[node][uid]
        disputes = self._disputes.get(node)
        report = None if disputes is None else next((each for each in disputes.held if each.uid == uid), None)
        counted = counts(pod, report, node)
        if isinstance(counted, Grant):
            self._fleet.ledger.adopt(counted, state)
        else:
            self._fleet.ledger.release(uid)

    def _forget(self, node: str, uid: str) -> None:
        pods, disputes = self._pods.get(node), self._disputes.get(node)
        was_known = pods is not None and pods.pop(uid, None) is not None
        if pods is not None and not pods:
            del self._pods[node]
        if was_known or (disputes is not None and any(each.uid == uid for each in disputes.held)):
            self.update_fleet(node)

    def _note_refusal(self, node: str, uid: str) -> None:
        """The agent speaks of a pod that it refused: from now on its report counts."""
        self._refused_by_agent.setdefault(node, Recent(_MAX_REMEMBERED_PODS_PER_NODE)).put(uid, None)
        for closure in self._closures.get(node, {}).values():
            if closure.uid == uid:
                closure.until = self._clock.monotonic()
