"""Events on GPU health: on the node for changes, on pods for errors that ended their programs."""

from collections.abc import Callable, Mapping

from purser.agent.book import Book
from purser.agent.nvml.driver import Gpu
from purser.agent.pods import NodePods
from purser.agent.reasons import AgentReason
from purser.core.health.catalogue import describe
from purser.core.health.messages import HealthNews, News
from purser.core.ledger import pod_usage
from purser.kube.events import EventRecorder
from purser.kube.resources import PODS, node_ref, ref_of

_REASONS: Mapping[News, AgentReason] = {
    News.UNHEALTHY: AgentReason.GPU_UNHEALTHY,
    News.DEGRADED: AgentReason.GPU_DEGRADED,
    News.RECOVERED: AgentReason.GPU_RECOVERED,
}


class HealthEvents:
    """The events of one node's GPUs."""

    def __init__(
        self,
        recorder: EventRecorder,
        node: str,
        pods: NodePods,
        book: Book,
        gpus: Callable[[], Mapping[str, Gpu]],
    ) -> None:
        """``gpus`` are those that the driver lists, by uuid."""
        self._recorder = recorder
        self._node = node
        self._pods = pods
        self._book = book
        self._gpus = gpus

    def news(self, uuid: str, news: HealthNews) -> None:
        """A change of a GPU's health: once, because the state machine reports each change once."""
        reason = _REASONS[news.news]
        kind = "Normal" if news.news is News.RECOVERED else "Warning"
        self._recorder.event(node_ref(self._node), reason, f"{self._name(uuid)} {news.words}", type=kind)

    def program_error(self, uuid: str, xid: int) -> None:
        """An Xid that leaves the GPU as it is: whose program it was, the driver does not say to all who hold it."""
        message = f"A program on {self._name(uuid)} failed: {describe(xid)}. Restart it if it belongs to this pod"
        for booked in self._book.pods.values():
            pod = self._pods.get(booked.grant.key)
            if uuid in pod_usage(booked.grant) and pod is not None:
                self._recorder.event(ref_of(PODS, pod), AgentReason.GPU_PROGRAM_ERROR, message, type="Warning")

    def _name(self, uuid: str) -> str:
        gpu = self._gpus().get(uuid)
        return f"GPU {uuid}" if gpu is None else gpu.label
