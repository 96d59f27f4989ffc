"""Reports processes that exceed their grants in events, and evicts over-users where configured."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from purser.agent.allocation.evictions import Evict, evict_first, is_ending
from purser.agent.allocation.pod_statuses import NodePod
from purser.agent.allocation.pods import NodePods
from purser.agent.monitoring.holders import DeviceHolders
from purser.agent.nvml.driver import Gpu
from purser.agent.reasons import AgentReason
from purser.core.model import Grant
from purser.core.monitoring.accounts import GpuAccount
from purser.core.monitoring.audit import Audit, AuditFinding, FindingKind, find, update_audit
from purser.core.monitoring.compute import PodsCompute, find_compute_overuse, with_reading
from purser.kube.events import EventRecorder
from purser.kube.resources import PODS, node_ref, ref_of

log = structlog.get_logger("purser.agent")

NAMED_PIDS = 5
"""Of a GPU's foreign processes those with the most memory."""

MAX_WAITED_READINGS = 60
"""For an over-user that is about to end, until others are evicted: one that cannot end must not shield them."""

EVICTION_TIMEOUT_S = 5.0
"""The client would be more patient, and nothing is measured meanwhile."""

_REASONS: Mapping[FindingKind, AgentReason] = {
    FindingKind.OVER_MEMORY: AgentReason.GPU_MEMORY_OVERUSED,
    FindingKind.OVER_COMPUTE: AgentReason.GPU_COMPUTE_OVERUSED,
    FindingKind.WITHOUT_GRANT: AgentReason.GPU_USED_WITHOUT_GRANT,
    FindingKind.FOREIGN: AgentReason.GPU_USED_BY_FOREIGN_PROCESS,
}


class Auditor:
    """The audit of one node: an event when something begins and when it ends."""

    def __init__(
        self,
        recorder: EventRecorder,
        node: str,
        pods: NodePods,
        gpus: Callable[[], Mapping[str, Gpu]],
        evict: Evict | None,
    ) -> None:
        """``gpus`` are those that the driver lists, by uuid. ``evict`` None: no eviction."""
        self._recorder = recorder
        self._node = node
        self._pods = pods
        self._gpus = gpus
        self._evict = evict
        self._audit = Audit()
        self._compute: PodsCompute = {}
        self._waited: dict[str, int] = {}
        """By uid of an over-user that is about to end: readings since."""

    @property
    def findings(self) -> tuple[AuditFinding, ...]:
        """Current findings: those that events were posted for and that have not ended."""
        return tuple(self._audit.current.values())

    async def take(
        self,
        accounts: Collection[GpuAccount],
        grants: Iterable[Grant],
        holders: DeviceHolders,
        unlimited: Collection[str] = (),
    ) -> None:
        """Evaluate one reading, of some GPUs or all. ``holders`` by kubelet: a pod without a grant that was given its
        devices by kubelet is not reported here, but as disputed (`purser.agent.reporting.disputes`). ``unlimited``: see
        `find`."""
        held = {(holder.namespace, holder.pod, uuid) for uuid, gpu_holders in holders.items() for holder in gpu_holders}
        by_uid, listed = {grant.pod_uid: grant for grant in grants}, self._gpus().keys()
        self._compute = with_reading(self._compute, accounts, listed=listed)
        found = find(accounts, by_uid, held, unlimited) | find_compute_overuse(self._compute, by_uid, unlimited)
        news = update_audit(self._audit, found, read={account.uuid for account in accounts}, listed=listed)
        self._audit = news.audit
        for finding in news.began:
            self._emit_event(finding, _REASONS[finding.key.kind], self._sentence(finding), "Warning")
        for finding in news.ended:
            self._emit_event(finding, AgentReason.GPU_USE_SETTLED, self._settled_sentence(finding), "Normal")
        if self._evict is not None:
            lasting = [each for key, each in found.items() if key in news.audit.current]
            try:
                async with asyncio.timeout(EVICTION_TIMEOUT_S):
                    await self._evict_one(self._evict, lasting)
            except TimeoutError:
                log.warning("The API server does not answer eviction requests", timeout_s=EVICTION_TIMEOUT_S)

    def _emit_event(self, finding: AuditFinding, reason: AgentReason, message: str, kind: str) -> None:
        log.info("A finding of the GPU usage audit changed", reason=reason.value, message=message, pod=finding.pod)
        if finding.key.kind is FindingKind.FOREIGN:
            self._recorder.event(node_ref(self._node), reason, message, type=kind)
        elif (pod := self._pod_of(finding)) is not None:
            self._recorder.event(ref_of(PODS, pod), reason, message, type=kind)

    async def _evict_one(self, evict: Evict, lasting: Iterable[AuditFinding]) -> None:
        """One pod at a time, the one that is most beyond its grant and that no disruption budget keeps; the next one
        once that is gone."""
        over = [each for each in lasting if each.key.kind is FindingKind.OVER_MEMORY]
        pods = [(finding, pod) for finding in over if (pod := self._pod_of(finding)) is not None]
        ending = {pod.metadata.uid for _, pod in pods if is_ending(pod)}
        self._waited = {uid: self._waited.get(uid, 0) + 1 for uid in ending}
        if any(count <= MAX_WAITED_READINGS for count in self._waited.values()):
            return
        left = [each for each in pods if each[1].metadata.uid not in ending]
        ranked = sorted(left, key=lambda each: (each[0].granted_mib - each[0].used_mib, each[0].key))
        evicted = await evict_first(evict, ranked, "a pod that uses more GPU memory than granted")
        if evicted is not None:
            finding, pod = evicted
            message = f"Evicted by Purser: {self._sentence(finding)}"
            self._recorder.event(ref_of(PODS, pod), AgentReason.OVER_USER_EVICTED, message, type="Warning")

    def _pod_of(self, finding: AuditFinding) -> NodePod | None:
        return self._pods.pods.store.by_uid(finding.key.pod_uid)

    def _sentence(self, finding: AuditFinding) -> str:
        gpu, used = self._name(finding), f"{finding.used_mib} MiB"
        if finding.key.kind is FindingKind.FOREIGN:
            shown = ", ".join(map(str, finding.pids[:NAMED_PIDS]))
            more = len(finding.pids) - NAMED_PIDS
            pids = f"{shown} and {more} more" if more > 0 else shown
            if len(finding.pids) == 1:
                return f"A process that belongs to no pod uses {used} of memory on {gpu}: PID {pids}"
            return f"Processes that belong to no pod use {used} of memory on {gpu}: PIDs {pids}"
        if finding.key.kind is FindingKind.WITHOUT_GRANT:
            return f"The pod uses {used} of memory on {gpu}, which it was not granted"
        if finding.key.kind is FindingKind.OVER_COMPUTE:
            granted = f"{finding.granted_percent}%"
            return f"The pod uses {finding.used_percent}% of the compute of {gpu} on average but was granted {granted}"
        return f"The pod uses {used} of memory on {gpu} but was granted {finding.granted_mib} MiB"

    def _settled_sentence(self, finding: AuditFinding) -> str:
        if finding.key.kind is FindingKind.FOREIGN:
            return f"Processes that belong to no pod no longer use {self._name(finding)}"
        if finding.key.kind is FindingKind.WITHOUT_GRANT:
            return f"The pod no longer uses {self._name(finding)} without a grant for this GPU"
        if finding.key.kind is FindingKind.OVER_COMPUTE:
            return f"The pod no longer uses more compute on {self._name(finding)} than it was granted"
        return f"The pod no longer uses more memory on {self._name(finding)} than it was granted"

    def _name(self, finding: AuditFinding) -> str:
        gpu = self._gpus().get(finding.key.uuid)
        return f"GPU {finding.key.uuid}" if gpu is None else gpu.label
