"""The agent's events: about its node, about GPUs' health, MPS daemons and disputed GPUs, and on the pods that are
concerned."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from purser.agent.allocation.book import Book
from purser.agent.allocation.pod_statuses import NodePod
from purser.agent.allocation.pods import NodePods
from purser.agent.host.latest import Latest
from purser.agent.kubelet.refusals import AllocationRefused
from purser.agent.metrics import AgentMetrics
from purser.agent.mps.daemon import MpsHooks
from purser.agent.nvml.driver import Gpu
from purser.agent.reasons import AgentReason
from purser.core.grant.disputes import DisputeReason, HeldPod, HeldReason, NodeDisputes, sentence
from purser.core.health.catalogue import describe
from purser.core.health.messages import HealthNews, News
from purser.core.ledger import pod_usage
from purser.core.model import Enforcement, NodeInventory
from purser.kube.events import EventRecorder
from purser.kube.objects import Pod
from purser.kube.resources import PODS, node_ref, ref_of


class NodeEvents:
    """The warnings of one node's agent."""

    def __init__(self, recorder: EventRecorder, node: str, pods: NodePods) -> None:
        self._recorder = recorder
        self._node = node
        self._pods = pods

    def warn(self, reason: AgentReason, message: str) -> None:
        """About the node."""
        self._recorder.event(node_ref(self._node), reason, message, type="Warning")

    def config_problem(self, problem: str) -> None:
        """Of the device plugin's configuration, and what holds instead; empty: it is good again."""
        if problem:
            self.warn(AgentReason.CONFIG_NOT_USABLE, problem)

    def config_partly_applied(self, notes: Iterable[str]) -> None:
        """What of the configuration that holds is not followed to the letter, a sentence each."""
        for note in notes:
            self.warn(AgentReason.CONFIG_IN_PART, note)

    def empty_mig(self, gpu: str) -> None:
        """A GPU, by its name, is in MIG mode without a MIG device."""
        message = (
            f"{gpu} has MIG enabled but no MIG devices, so pods cannot use it. Create MIG devices or disable MIG mode"
        )
        self.warn(AgentReason.MIG_EMPTY, message)

    def refused(self, refusal: AllocationRefused) -> None:
        """kubelet was refused the devices of these pods."""
        for key in refusal.pods:
            pod = self._pods.look_up_pod(key)
            if pod is not None:
                self._recorder.event(ref_of(PODS, pod), refusal.reason, refusal.message, type="Warning")

    def enforcement_changed(self, pod: Pod, message: str) -> None:
        """Something else holds the pod's share than its grant says."""
        self._recorder.event(ref_of(PODS, pod), AgentReason.ENFORCEMENT_CHANGED, message, type="Warning")

    def nics_distant(self, pod: Pod, message: str) -> None:
        """The pod has fewer pairs of GPUs and network devices than its grant was made for."""
        self._recorder.event(ref_of(PODS, pod), AgentReason.NIC_APART, message, type="Warning")


_REASONS: Mapping[News, tuple[AgentReason, AgentReason]] = {
    News.UNHEALTHY: (AgentReason.GPU_UNHEALTHY, AgentReason.HELD_GPU_UNHEALTHY),
    News.DEGRADED: (AgentReason.GPU_DEGRADED, AgentReason.HELD_GPU_DEGRADED),
    News.RECOVERED: (AgentReason.GPU_RECOVERED, AgentReason.HELD_GPU_RECOVERED),
}
"""Of the event on the node, and of those on pods."""

_RECREATE_ADVICE = "If you recreate the pod, the new pod gets another GPU"


def mig_parents(inventory: NodeInventory | None) -> Mapping[str, str]:
    """The GPU of each MIG device, by uuid."""
    devices = () if inventory is None else inventory.devices
    return {device.uuid: device.parent for device in devices if device.parent}


class HealthEvents:
    """The events of one node's GPUs."""

    def __init__(
        self,
        recorder: EventRecorder,
        node: str,
        pods: NodePods,
        book: Book,
        gpus: Callable[[], Mapping[str, Gpu]],
        parents: Callable[[], Mapping[str, str]],
    ) -> None:
        """``gpus`` are those that the driver lists, by uuid; ``parents`` the GPUs of MIG devices, by their uuids."""
        self._recorder = recorder
        self._node = node
        self._pods = pods
        self._book = book
        self._gpus = gpus
        self._parents = parents

    def news(self, uuid: str, news: HealthNews) -> None:
        """A change of a GPU's health: once, because the state machine reports each change once."""
        reason, reason_on_pods = _REASONS[news.news]
        kind = "Normal" if news.news is News.RECOVERED else "Warning"
        self._recorder.event(node_ref(self._node), reason, f"{self.name(uuid)} {news.words}", type=kind)
        message = f"{self.name(uuid)}, which this pod holds, {news.words}"
        for pod in self.holders(uuid):
            advice = f"{message}. {_RECREATE_ADVICE}" if news.news is News.UNHEALTHY else message
            self._recorder.event(ref_of(PODS, pod), reason_on_pods, advice, type=kind)

    def report_program_error(self, uuid: str, xid: int) -> None:
        """An Xid that leaves the GPU as it is: whose program it was, the driver does not say to all who hold it."""
        message = (
            f"A program on {self.name(uuid)} failed: {describe(xid)}. Restart the program if it belongs to this pod"
        )
        for pod in self.holders(uuid):
            self._recorder.event(ref_of(PODS, pod), AgentReason.GPU_PROGRAM_ERROR, message, type="Warning")

    def holders(self, uuid: str) -> Iterator[NodePod]:
        """The pods that were given the GPU, or a MIG device of it."""
        parents = self._parents()
        for booked in self._book.pods.values():
            pod = self._pods.pods.store.by_uid(booked.grant.pod_uid)
            if pod is not None and any(uuid in (held, parents.get(held)) for held in pod_usage(booked.grant)):
                yield pod

    def name(self, uuid: str) -> str:
        """The GPU as messages name it."""
        gpu = self._gpus().get(uuid)
        return f"GPU {uuid}" if gpu is None else gpu.label


_MPS_ENFORCEMENTS = (Enforcement.MPS, Enforcement.MPS_ADVISORY)


class MpsEvents(MpsHooks):
    """The hooks of one node's agent."""

    def __init__(
        self,
        recorder: EventRecorder,
        node: str,
        pods: NodePods,
        book: Book,
        metrics: AgentMetrics,
        name: Callable[[str], str],
        on_changed: Callable[[], object],
    ) -> None:
        """``name``: a GPU as people know it, by uuid. ``on_changed``: a daemon came or went."""
        self._recorder = recorder
        self._node = node
        self._pods = pods
        self._book = book
        self._metrics = metrics
        self._name = name
        self._on_changed = on_changed

    def changed(self, uuid: str, ready: bool, problem: str) -> None:
        """See `MpsHooks.changed`."""
        self._on_changed()
        if problem:
            self.report_unavailable(uuid, problem)

    def report_unavailable(self, uuid: str, problem: str) -> None:
        """A GPU is not shared by MPS though it is to be."""
        message = f"{self._name(uuid)} is not shared with MPS: {problem}"
        self._recorder.event(node_ref(self._node), AgentReason.MPS_UNAVAILABLE, message, type="Warning")

    def lost(self, uuid: str, why: str) -> None:
        """See `MpsHooks.lost`."""
        self._metrics.mps_daemons_lost.inc()
        self._warn_clients(uuid, f"The MPS daemon of {self._name(uuid)} failed ({why})")

    def server_lost(self, uuid: str, server: int) -> None:
        """See `MpsHooks.server_lost`."""
        self._metrics.mps_servers_lost.inc()
        self._warn_clients(uuid, f"The MPS server of {self._name(uuid)} exited (process {server})")

    def server_in_fault(self, uuid: str, server: int) -> None:
        """See `MpsHooks.server_in_fault`."""
        self._metrics.mps_servers_lost.inc()
        name = self._name(uuid)
        self._warn_clients(
            uuid, f"The MPS server of {name} has a fatal fault (process {server}) and accepts no new clients"
        )

    def _warn_clients(self, uuid: str, what: str) -> None:
        """Every client in the ledger has lost its GPU, whether or not it was using it at the time."""
        message = f"{what}. CUDA programs that used it fail: restart them"
        for booked in self._book.pods.values():
            parts = (
                booked.grant.of(name)
                for name, given in booked.containers.items()
                if given.enforcement in _MPS_ENFORCEMENTS
            )
            pod = self._pods.get(booked.grant.key)
            if pod is not None and any(part is not None and uuid in part.uuids for part in parts):
                self._recorder.event(ref_of(PODS, pod), AgentReason.MPS_CLIENTS_LOST, message, type="Warning")

    def is_used(self, uuid: str) -> bool:
        """Whether the ledger has a grant on the GPU."""
        return any(uuid in pod_usage(booked.grant) for booked in self._book.pods.values())


class DisputeEvents:
    """The events of one node."""

    def __init__(self, recorder: EventRecorder, node: str, pods: NodePods, told: Latest[NodeDisputes | None]) -> None:
        """``told``: the disputes as they are now; None until they are known."""
        self._recorder = recorder
        self._node = node
        self._pods = pods
        self._told = told

    async def run(self) -> None:
        """Report what is new in them until cancelled."""
        about = node_ref(self._node)
        said, on_node, seen = dict[str, str](), "", None
        while True:
            told = seen = await self._told.wait_for_change(seen)
            if told is None:
                continue
            before, said = said, {}
            for held in told.held:
                pod = self._pods.get(held.key)
                if not held.gpus or held.why is HeldReason.ENDED or pod is None:
                    continue
                said[held.uid] = _held_message(held)
                if before.get(held.uid) != said[held.uid]:
                    self._recorder.event(
                        ref_of(PODS, pod), AgentReason.HOLDS_WITHOUT_GRANT, said[held.uid], type="Warning"
                    )
            text = sentence(told)
            if text and text != on_node:
                self._recorder.event(about, DisputeReason.GPU_DISPUTED, text, type="Warning")
            elif on_node and not text:
                self._recorder.event(
                    about, DisputeReason.GPU_DISPUTE_SETTLED, "The records of the node's GPUs are consistent again"
                )
            on_node = text


def _held_message(held: HeldPod) -> str:
    gpus = ", ".join(sorted(held.gpus))
    if held.why is HeldReason.NEVER_GRANTED:
        those = "this GPU" if len(held.gpus) == 1 else "these GPUs"
        return f"The pod holds {gpus} without a grant from Purser: no other pod gets {those} until this pod terminates"
    cause = "The pod's grant annotation was removed"
    if held.why is HeldReason.GRANT_UNTRUSTED:
        cause = "The pod's grant is no longer valid: its annotation was changed, or the key that signed it was revoked"
    return f"{cause}. The pod keeps its share of {gpus} until it terminates, and no other pod gets that share"
