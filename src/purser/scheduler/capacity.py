"""The cluster's GPUs and their use, as metrics of the replica that places pods.

Everything is recounted every few seconds, some nodes and grants at a time: kube-scheduler's requests go first.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypeAlias

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from purser.core.dialects.policies import node_policy_word
from purser.core.fleet.totals import OTHER_NAMESPACES, GpuUse, HeldBy, Totals, merge_namespaces
from purser.core.kubernetes.quantities import MIB
from purser.core.model import WHOLE_MILLI, WHOLE_PERCENT
from purser.scheduler.cache import ClusterCache
from purser.scheduler.extender import KubeExtender
from purser.scheduler.pending import PendingTotals

COUNT_PERIOD_S = 15.0
"""As often as Prometheus scrapes in most clusters."""

MAX_NAMESPACES = 500
"""Namespaces with series of their own, those that hold and want most; the others are one."""

_CHECK_PERIOD_S = 2.0
"""A replica that places no pods, whether it does by now."""

_NODES_AT_ONCE = 16
_GRANTS_AT_ONCE = 256
"""Between two turns of the event loop."""

_HELD_BY = HeldBy._fields

_Waiting: TypeAlias = tuple[str, str]
"""Namespace and policy."""


class CapacityMetrics:
    """Sums over the cluster. A replica that places no pods has none: else each would count for all."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, help_text: str, *labels: str) -> Gauge:
            made = Gauge(name, help_text, labels, registry=registry)
            self._gauges.append(made)
            return made

        self._gauges: list[Gauge] = []
        self._gpus = gauge(
            "purser_cluster_gpus",
            "GPUs by state. Each GPU, whole or partitioned into MIG devices, is in exactly one state.",
            "model",
            "state",
        )
        self._memory = gauge("purser_cluster_memory_bytes", "Memory of all GPUs, partitioned or not.", "model")
        self._granted_memory = gauge("purser_cluster_granted_memory_bytes", "GPU memory allocated to pods.", *_HELD_BY)
        self._granted_cores = gauge(
            "purser_cluster_granted_cores_ratio",
            "Compute allocated to pods, in GPUs. MIG devices count by their slices, shares without a compute limit "
            "as 0.",
            *_HELD_BY,
        )
        self._granted_gpus = gauge("purser_cluster_granted_gpus", "GPUs and GPU shares allocated to pods.", *_HELD_BY)
        self._default_policy = gauge(
            "purser_cluster_default_policy",
            "1 for the scheduler's node policy, which applies to pods that do not set one.",
            "policy",
        )
        self._idle = gauge(
            "purser_cluster_idle_gpus",
            "Idle GPUs and parts of GPUs, by what prevents expected pods from using them (usable: nothing does).",
            "model",
            "cause",
        )
        self._pending = gauge(
            "purser_cluster_pending_pods",
            "Pending pods that request GPUs, by the reason that applies to most nodes (docs/reasons.md).",
            "namespace",
            "reason",
            "policy",
        )
        self._pending_gpus = gauge(
            "purser_cluster_pending_gpus", "GPUs and GPU shares requested by pending pods.", "namespace", "policy"
        )

    def clear(self) -> None:
        """Another replica places pods."""
        for gauge in self._gauges:
            gauge.clear()

    def show(
        self,
        totals: Totals,
        idle_milli: Mapping[tuple[str, str], float],
        pending: Mapping[_Waiting, PendingTotals],
        default_policy: str,
    ) -> None:
        """Replace all series: sums over the fleet, idle thousandths of GPUs by model and cause, and what waits."""
        self.clear()
        self._default_policy.labels(default_policy).set(1)
        for model, mib in totals.memory_mib.items():
            self._memory.labels(model).set(mib * MIB)
            for state in GpuUse:  # those that there are none of, too: a series that ends is looked up for minutes
                self._gpus.labels(model, state.value).set(totals.gpus[model, state])
        kept = _largest(totals.granted_memory_mib, pending)
        for held_by, mib in merge_namespaces(totals.granted_memory_mib, kept).items():
            self._granted_memory.labels(*held_by).set(mib * MIB)
        for held_by, percent in merge_namespaces(totals.granted_cores_percent, kept).items():
            self._granted_cores.labels(*held_by).set(percent / WHOLE_PERCENT)
        for held_by, count in merge_namespaces(totals.granted_gpus, kept).items():
            self._granted_gpus.labels(*held_by).set(count)
        for (model, cause), milli in idle_milli.items():
            self._idle.labels(model, cause).set(milli / WHOLE_MILLI)
        for (namespace, policy), waiting in _merge_namespaces(pending, kept).items():
            for reason, count in waiting.pods.items():
                self._pending.labels(namespace, reason, policy).set(count)
            self._pending_gpus.labels(namespace, policy).set(waiting.gpus)


class CapacityCounter:
    """Counts, and counts again."""

    def __init__(self, cache: ClusterCache, extender: KubeExtender, registry: CollectorRegistry) -> None:
        self._cache = cache
        self._extender = extender
        self._metrics = CapacityMetrics(registry)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._extender.places_pods:
                await self.count()
                await self._cache.clock.sleep(COUNT_PERIOD_S)
            else:
                self._metrics.clear()
                await self._cache.clock.sleep(_CHECK_PERIOD_S)

    async def count(self) -> None:
        """Once."""
        totals = Totals()
        for place, node in enumerate(list(self._cache.fleet)):
            totals.add_node(node)
            if place % _NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
        ledger = self._cache.ledger
        for place, uid in enumerate(ledger.uids()):
            grant = ledger.grant(uid)
            if grant is not None:  # else it was released in between
                totals.add_pod(grant.namespace, self._policy_of(uid), ledger.held(uid))
            if place % _GRANTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        idle: Counter[tuple[str, str]] = Counter()
        for by_model in self._extender.idle_gpus(_NODES_AT_ONCE):
            for model, causes in by_model.items():
                idle.update({(model, cause): milli for cause, milli in msgspec.structs.asdict(causes).items()})
            await asyncio.sleep(0)
        default = node_policy_word({}, self._extender.default_policy)
        self._metrics.show(totals, idle, self._extender.pending.totals(), default)

    def _policy_of(self, uid: str) -> str:
        pod = self._cache.pod_by_uid(uid)
        return node_policy_word({} if pod is None else pod.metadata.annotations, self._extender.default_policy)


def _largest(granted: Counter[HeldBy], pending: Mapping[_Waiting, PendingTotals]) -> frozenset[str]:
    """The namespaces that hold most memory, and those with most pods that wait: half of each."""
    held: Counter[str] = Counter()
    for held_by, amount in granted.items():
        held[held_by.namespace] += amount
    waiting: Counter[str] = Counter()
    for (namespace, _), each in pending.items():
        waiting[namespace] += each.pods.total()
    return frozenset(name for each in (held, waiting) for name, _ in each.most_common(MAX_NAMESPACES // 2))


def _merge_namespaces(
    pending: Mapping[_Waiting, PendingTotals], kept: Collection[str]
) -> dict[_Waiting, PendingTotals]:
    """As `merge_namespaces`: the namespaces that are not kept are one."""
    found: dict[_Waiting, PendingTotals] = {}
    for (namespace, policy), each in pending.items():
        found.setdefault((namespace if namespace in kept else OTHER_NAMESPACES, policy), PendingTotals()).add(each)
    return found
