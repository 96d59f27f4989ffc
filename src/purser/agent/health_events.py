"""Events on GPU health: on the node for changes, and on the pods that hold the GPU, also for errors that ended their
programs."""

from collections.abc import Callable, Iterator, Mapping

from purser.agent.book import Book
from purser.agent.nvml.driver import Gpu
from purser.agent.pod_statuses import NodePod
from purser.agent.pods import NodePods
from purser.agent.reasons import AgentReason
from purser.core.health.catalogue import describe
from purser.core.health.messages import HealthNews, News
from purser.core.ledger import pod_usage
from purser.core.model import NodeInventory
from purser.kube.events import EventRecorder
from purser.kube.resources import PODS, node_ref, ref_of

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
