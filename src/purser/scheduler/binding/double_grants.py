"""Resolves GPUs that were granted twice: the later of the two grants is removed.

It happens at a change of leaders: a Binding of the previous leader is carried out after the next one has read the
cluster and given the GPU to another pod. The node's agent serves the pod that asks first and refuses the other, so
nothing is overcommitted; but a pod that waits on its node for devices it will never get must not keep them in the
ledger. Once one of the pods runs, the others that kubelet has not admitted, and for which there is no room, are deleted
if a controller recreates them. Any other pod gets an event. A pod that kubelet admitted is left alone.
"""

from collections.abc import Callable

import structlog

from purser.core.ledger import NO_USAGE, Usage, find_overcommit, pod_usage
from purser.core.model import Grant, GrantState
from purser.core.wording import pods_text
from purser.kube.client import Client
from purser.kube.errors import ConflictError, KubeError, NotFoundError
from purser.kube.events import EventRecorder
from purser.kube.objects import Pod
from purser.kube.pods import controller_of, has_started
from purser.kube.resources import NODES, PODS, key_of, node_ref, ref_of
from purser.kube.workqueue import WorkQueue, run_workers
from purser.scheduler.cache import ClusterCache
from purser.scheduler.leadership_gate import INACTIVE_RECHECK_PERIOD_S
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.reasons import SchedulerReason

log = structlog.get_logger("purser.scheduler")


class DoubleGrants:
    """Looks at nodes whose book is overdrawn, whenever a pod there changes."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        events: EventRecorder,
        metrics: SchedulerMetrics,
        is_active: Callable[[], bool],
    ) -> None:
        """``is_active``: whether this replica is the one that acts."""
        self._client = client
        self._cache = cache
        self._events = events
        self._metrics = metrics
        self._is_active = is_active
        self._queue: WorkQueue[str] = WorkQueue()
        self._reported: dict[str, str] = {}
        """By uid: what was said of the pod last."""

    async def run(self) -> None:
        """See to overdrawn nodes until cancelled."""
        self._cache.bound_grants.on_overdrawn = self._queue.add
        for node in {violation.node for violation in self._cache.ledger.violations()}:
            self._queue.add(node)
        failed = self._client.failures.failed
        await run_workers(
            self._queue, self._check_node, on_failure=lambda node, error: failed(NODES, node_ref(node), error)
        )

    async def _check_node(self, node: str) -> None:
        state = self._cache.fleet.node(node)
        if state is None:
            return
        if not self._is_active():
            self._queue.add_after(node, INACTIVE_RECHECK_PERIOD_S)
            return
        devices = {each.device.uuid: each.device for each in state.devices}
        running = [grant for grant in self._cache.ledger.grants(node) if self._runs(grant)]
        held: dict[str, Usage] = {}
        for grant in running:
            for uuid, usage in pod_usage(grant).items():
                held[uuid] = held.get(uuid, NO_USAGE) + usage
        failure: KubeError | None = None
        for grant in list(self._cache.ledger.grants(node)):
            if self._cache.ledger.state(grant.pod_uid) is not GrantState.BOUND:
                continue
            overcommitted = [
                uuid
                for uuid, usage in pod_usage(grant).items()
                if uuid in held and uuid in devices and find_overcommit(devices[uuid], held[uuid] + usage)
            ]
            pod = self._cache.pod_by_uid(grant.pod_uid)
            if overcommitted and pod is not None and not (has_started(pod) or pod.metadata.deletion_timestamp):
                rivals = sorted(rival.key for rival in running if set(overcommitted) & pod_usage(rival).keys())
                with self._client.failures.guard(PODS, pod):
                    try:
                        await self._delete_or_report(pod, overcommitted, rivals)
                    except KubeError as error:
                        failure = error
        if failure is not None:
            raise failure  # so that the node is looked at again, after those whose turn it is

    def _runs(self, grant: Grant) -> bool:
        return self._cache.ledger.state(grant.pod_uid) is GrantState.RUNNING

    async def _delete_or_report(self, pod: Pod, uuids: list[str], rivals: list[str]) -> None:
        meta, uid = pod.metadata, pod.metadata.uid
        owner = controller_of(pod)
        was, has = ("was", "has") if len(uuids) == 1 else ("were", "have")
        runs = "runs" if len(rivals) == 1 else "run"
        others = pods_text(meta.namespace, rivals)
        gpus = ", ".join(sorted(uuids))
        what = f"{gpus} {was} also granted to {others}, which already {runs}, and {has} no room for this pod"
        before = self._reported.get(uid)
        if before != what:
            kept = {
                each: message for each, message in self._reported.items() if self._cache.pod_by_uid(each) is not None
            }
            self._reported = {**kept, uid: what}
            if before is None:
                self._metrics.granted_twice()
            log.warning("A GPU was granted twice", pod=key_of(pod), uuids=uuids, rivals=rivals)
            remedy = "delete and recreate this pod"
            if owner:
                remedy = f"this pod is deleted, and {owner.kind} {owner.name} recreates it"
            self._events.event(ref_of(PODS, pod), SchedulerReason.GRANTED_TWICE, f"{what}: {remedy}", type="Warning")
        if owner is None:
            return
        try:
            await self._client.delete(PODS, meta.name, meta.namespace, uid=uid, resource_version=meta.resource_version)
        except (NotFoundError, ConflictError):  # one that kubelet took meanwhile stays
            log.debug("The pod was already gone or changed", pod=key_of(pod))
