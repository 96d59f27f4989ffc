"""Whether pods keep to the compute that they were granted, on average over a window. Pure.

The driver measures time: in which part of it a process had a kernel running. A limit of MPS is one of threads, which a
process may use all the time, so that this does not tell whether it is kept.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from purser.core.model import WHOLE_PERCENT, Enforcement, Grant
from purser.core.monitoring.accounts import GpuAccount, PodContainer
from purser.core.monitoring.audit import AuditFinding, FindingKey, FindingKind
from purser.core.pod.phases import phases

WINDOW_READINGS = 30
"""Readings that are averaged, five minutes of them: a share of compute is one of time, and programs compute in
bursts."""

TOLERATED_PERCENT = 10
"""Tolerated compute beyond a pod's grant, in percent of the GPU: HAMi-core steers by measuring, and is beyond its limit
at times."""

PodsCompute: TypeAlias = Mapping[tuple[str, PodContainer], tuple[int, ...]]
"""By the GPU's uuid and the pod (its container left empty): percent of the GPU's compute by reading, oldest first."""

_THREAD_LIMITS = (Enforcement.MPS, Enforcement.MPS_ADVISORY)


def with_reading(before: PodsCompute, accounts: Iterable[GpuAccount], *, listed: Collection[str]) -> PodsCompute:
    """After one more reading of some GPUs; ``listed`` are those that there are. A pod that did nothing in a reading
    used 0 in it, and is forgotten once that is all that is left."""
    after = {key: its for key, its in before.items() if key[0] in listed}
    for gpu in accounts:
        if any(use.sm_percent is None for use in gpu.containers if use.device == gpu.uuid):
            continue  # the driver does not report it now
        used = _by_pod(gpu)
        for key in {*used, *(key for key in after if key[0] == gpu.uuid)}:
            after[key] = (*after.get(key, ()), used.get(key, 0))[-WINDOW_READINGS:]
    return {key: its for key, its in after.items() if any(its)}


def find_compute_overuse(
    used: PodsCompute, grants: Mapping[str, Grant], unlimited: Collection[str] = ()
) -> dict[FindingKey, AuditFinding]:
    """The pods that used more than they were granted, of those seen for a whole window. ``grants`` and ``unlimited`` as
    with `purser.core.monitoring.audit.find`."""
    found = {}
    for (uuid, pod), readings in used.items():
        grant = grants.get(pod.pod_uid)
        limit = 0 if grant is None or uuid in unlimited else _limit(grant, uuid)
        mean = sum(readings) // len(readings)
        if limit and len(readings) == WINDOW_READINGS and mean > limit + TOLERATED_PERCENT:
            key = FindingKey(FindingKind.OVER_COMPUTE, uuid, pod.pod_uid)
            found[key] = AuditFinding(key, pod.namespace, pod.pod, used_percent=mean, granted_percent=limit)
    return found


def _by_pod(gpu: GpuAccount) -> dict[tuple[str, PodContainer], int]:
    found: dict[tuple[str, PodContainer], int] = {}
    for use in gpu.containers:
        if use.device == gpu.uuid:  # not a MIG device
            key = gpu.uuid, PodContainer(use.owner.namespace, use.owner.pod, use.owner.pod_uid)
            found[key] = found.get(key, 0) + (use.sm_percent or 0)
    return found


def _limit(grant: Grant, uuid: str) -> int:
    """Percent of the GPU's compute that the pod may use; 0: as much as it likes, or nobody can tell."""
    holding = [part for part in grant.containers if uuid in part.uuids]
    if any(part.enforcement in _THREAD_LIMITS for part in holding):
        return 0
    if any(share.cores_percent == 0 for part in holding for share in part.shares if share.uuid == uuid):
        return 0
    together = (
        sum(share.cores_percent for part in phase for share in part.shares if share.uuid == uuid)
        for phase in phases(grant.containers)
    )
    most = max(together, default=0)
    return 0 if most >= WHOLE_PERCENT else most
