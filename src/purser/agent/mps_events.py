"""What the agent does about MPS daemons: the inventory follows them, and people hear of those that are away."""

from collections.abc import Callable

from purser.agent.book import Book
from purser.agent.metrics import AgentMetrics
from purser.agent.mps.daemon import MpsHooks
from purser.agent.pods import NodePods
from purser.agent.reasons import AgentReason
from purser.core.ledger import pod_usage
from purser.core.model import Enforcement
from purser.kube.events import EventRecorder
from purser.kube.resources import PODS, node_ref, ref_of

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
