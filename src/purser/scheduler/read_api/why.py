"""The document on why one pod waits: decided on the scheduler's own cache when somebody asks, of the pod as the API
server has it.

Its readers are those of one namespace: it names no other pod, and nodes only to those who may list them.
"""

from collections.abc import Callable
from typing import Protocol

from purser.core.decoding import brief
from purser.core.explaining.grouping import ReasonCount
from purser.core.state import PodWhy, WhyReason, WhyState, WhySuggestion
from purser.kube import Client
from purser.kube.errors import NotFoundError
from purser.kube.objects import Pod
from purser.kube.pod_details import SCHEDULED_PODS
from purser.kube.pods import is_terminal
from purser.scheduler.cache import ClusterCache
from purser.scheduler.explaining import SearchedPod, Suggestion
from purser.scheduler.pending import PendingPods
from purser.scheduler.read_api.documents import EncodedState
from purser.scheduler.read_api.page import Scope
from purser.scheduler.read_api.reads import SharedReads, read_in_time


class Search(Protocol):
    """`PodSearch.search`."""

    async def __call__(self, pod: Pod, *, names_taints: bool) -> SearchedPod:
        """What is found of a pod."""
        ...


_PLACES_NO_PODS = (
    "this replica of the scheduler does not place pods, so it does not know what kube-scheduler was told or which "
    "nodes it asked about: all nodes with GPUs were checked"
)


class WhyPage:
    """Requests for the same pod share the answer."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        pending: PendingPods,
        search: Search,
        places_pods: Callable[[], bool],
        reads: SharedReads,
    ) -> None:
        """``places_pods``: whether this replica does."""
        self._client, self._cache, self._pending = client, cache, pending
        self._search, self._places_pods, self._reads = search, places_pods, reads

    async def of(self, name: str, scope: Scope, user: str) -> EncodedState | None:
        """A pod's, for the namespace's readers; None: there is no such pod that holds or wants GPUs. Raises
        `purser.kube.KubeError`, `TooManyReadsError` and `NoTurnError`."""
        known = self._cache.pod(scope.namespace, name)
        if known is None or not self._cache.readings.of(known).asks_for_devices:
            return None
        uid = known.metadata.uid

        async def read() -> PodWhy | None:
            try:
                pod = await read_in_time(self._client.get(SCHEDULED_PODS, name, scope.namespace))
            except NotFoundError:
                return None
            return await self._explain(pod, scope) if pod.metadata.uid == uid else None  # another pod has the name

        return await self._reads.answer(("why", scope.namespace, name, uid, str(scope.has_all_nodes)), read, user)

    async def _explain(self, pod: Pod, scope: Scope) -> PodWhy:
        meta, spec = pod.metadata, pod.spec
        scheduler = spec.scheduler_name or "default-scheduler"
        head = (meta.namespace, meta.name, meta.uid, scheduler)
        if is_terminal(pod):
            ended = brief(": ".join(filter(None, (pod.status.reason, pod.status.message))))
            return PodWhy(*head, WhyState.ENDED, spec.node_name, objection=ended)
        if spec.node_name:
            return PodWhy(*head, WhyState.PLACED, spec.node_name)
        names_nodes = scope.has_all_nodes
        found = await self._search(pod, names_taints=names_nodes)
        return PodWhy(
            *head,
            WhyState.WAITING,
            nodes=found.nodes,
            fits=len(found.fits),
            objection=found.objection,
            reasons=tuple(_reason(each, names_nodes=names_nodes) for each in found.reasons),
            further_reasons=tuple(_reason(each, names_nodes=names_nodes) for each in found.further_reasons),
            suggestions=tuple(_suggestion(each, names_nodes=names_nodes) for each in found.suggestions),
            ended_early=found.is_cut_short,
            message=self._pending.message(meta.uid),
            last_message=found.last_message,
            notes=() if self._places_pods() else (_PLACES_NO_PODS,),
        )


def _reason(found: ReasonCount, *, names_nodes: bool) -> WhyReason:
    examples = found.examples if names_nodes else ()
    return WhyReason(found.by, found.reason, found.nodes, found.gpus, found.text, examples)


def _suggestion(found: Suggestion, *, names_nodes: bool) -> WhySuggestion:
    return WhySuggestion(str(found.kind), found.text, found.fits, found.examples if names_nodes else ())
