"""Whether processes keep to what was granted: what is found at one moment, and what of that lasts. Pure.

A pod is judged by GPU, not by container or process: its containers may have of each other's what they like.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from purser.core.kubernetes.quantities import MIB
from purser.core.ledger import pod_usage
from purser.core.model import Grant
from purser.core.monitoring.accounts import ContainerUse, GpuAccount

TOLERATED_PERCENT = 10
"""Tolerated memory beyond a pod's grant, in percent of the grant; the larger of this and `TOLERATED_MIB` counts."""

TOLERATED_MIB = 512
"""Tolerated memory beyond a pod's grant: a context of CUDA takes some hundred MiB, which only HAMi-core counts as the
program's."""

TOLERATED_UNGRANTED_MIB = 100
"""Tolerated memory of processes without a grant: less than a context of CUDA, more than display servers and MPS
take."""

LASTING_READINGS = 3
"""Readings in a row until a finding begins or ends: pods start and end, and pids are reused."""

MAX_FINDINGS = 256
"""Findings at a time, of a node."""


class FindingKind(StrEnum):
    """What is wrong."""

    OVER_MEMORY = "over-memory"
    """A pod has more of a GPU's memory than it was granted."""
    OVER_COMPUTE = "over-compute"
    """A pod uses more of a GPU's compute than it was granted (`purser.core.monitoring.compute`)."""
    WITHOUT_GRANT = "without-grant"
    """A pod uses a GPU of which it was granted nothing."""
    FOREIGN = "foreign"
    """Processes of no pod use a GPU."""


class FindingKey(msgspec.Struct, frozen=True, order=True):
    """What a finding is about."""

    kind: FindingKind
    uuid: str
    """Of the GPU."""
    pod_uid: str = ""
    """Empty: of no pod."""


class AuditFinding(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    key: FindingKey
    namespace: str
    pod: str
    """Empty: of no pod."""
    used_mib: int = 0
    granted_mib: int = 0
    pids: tuple[int, ...] = ()
    """Of no pod: those with the most memory first."""
    used_percent: int = 0
    """Of the GPU's compute, as the two of memory: 0 where the finding is not about it."""
    granted_percent: int = 0


class Audit(msgspec.Struct, frozen=True):
    """What the readings so far came to."""

    streaks: Mapping[FindingKey, int] = {}
    """Readings in a row that say otherwise than `current`."""
    current: Mapping[FindingKey, AuditFinding] = {}
    """What is wrong, as of the last reading that showed it."""


class AuditChanges(msgspec.Struct, frozen=True):
    """What one more reading changed."""

    audit: Audit
    began: tuple[AuditFinding, ...] = ()
    ended: tuple[AuditFinding, ...] = ()


HeldDevices: TypeAlias = Collection[tuple[str, str, str]]
"""Namespace and name of a pod, and the uuid of a device that kubelet gave it."""


def find(
    accounts: Iterable[GpuAccount],
    grants: Mapping[str, Grant],
    held: HeldDevices = (),
    unlimited: Collection[str] = (),
) -> dict[FindingKey, AuditFinding]:
    """Whose memory is wrong at this moment. ``grants`` are those that count, by pod uid. Containers that hold a device
    without a grant are found elsewhere. ``unlimited``: uuids of GPUs whose shares do not limit memory."""
    found: dict[FindingKey, AuditFinding] = {}
    granted = {
        uid: {u: 0 if u in unlimited else usage.memory_mib for u, usage in pod_usage(grant).items()}
        for uid, grant in grants.items()
    }
    for gpu in accounts:
        for uses in _by_pod(gpu.containers).values():
            finding = _finding_of(gpu.uuid, uses, granted.get(uses[0].owner.pod_uid, {}))
            if finding is not None and not (finding.key.kind is FindingKind.WITHOUT_GRANT and _are_held(uses, held)):
                found[finding.key] = finding
        used_mib = sum(process.memory or 0 for process in gpu.foreign) // MIB
        if used_mib > TOLERATED_UNGRANTED_MIB:
            by_memory = sorted(gpu.foreign, key=lambda process: (-(process.memory or 0), process.pid))
            key = FindingKey(FindingKind.FOREIGN, gpu.uuid)
            found[key] = AuditFinding(key, "", "", used_mib, 0, tuple(process.pid for process in by_memory))
    return found


def update_audit(
    audit: Audit, found: Mapping[FindingKey, AuditFinding], *, read: Collection[str], listed: Collection[str]
) -> AuditChanges:
    """What is wrong after one more reading: ``read`` are the GPUs that answered, ``listed`` those that there are. Of
    one that did not answer all stays as it is, and what concerned one that is gone is forgotten."""
    streaks = {key: count for key, count in audit.streaks.items() if key.uuid in listed}
    current = {key: finding for key, finding in audit.current.items() if key.uuid in listed}
    began, ended = [], []
    for key in sorted({*found, *current, *streaks}):
        if key.uuid not in read:
            continue
        if (key in found) == (key in current):
            streaks.pop(key, None)
            if key in found:
                current[key] = found[key]
            continue
        streaks[key] = streaks.get(key, 0) + 1
        if streaks[key] < LASTING_READINGS or (key in found and len(current) >= MAX_FINDINGS):
            continue
        del streaks[key]
        if key in found:
            current[key] = found[key]
            began.append(found[key])
        else:
            ended.append(current.pop(key))
    return AuditChanges(Audit(streaks, current), tuple(began), tuple(ended))


def _by_pod(uses: Iterable[ContainerUse]) -> dict[str, list[ContainerUse]]:
    found: dict[str, list[ContainerUse]] = {}
    for use in uses:
        found.setdefault(use.owner.pod_uid, []).append(use)
    return found


def _are_held(uses: Iterable[ContainerUse], held: HeldDevices) -> bool:
    return all((use.owner.namespace, use.owner.pod, use.device) in held for use in uses)


def _finding_of(uuid: str, uses: list[ContainerUse], granted: Mapping[str, int]) -> AuditFinding | None:
    owner, used_mib = uses[0].owner, sum(use.memory or 0 for use in uses) // MIB
    of_devices = [granted[device] for device in {uuid, *(use.device for use in uses)} if device in granted]
    granted_mib = sum(of_devices)
    if 0 in of_devices:  # the grant does not limit memory
        return None
    if not of_devices:
        kind, tolerated_mib = FindingKind.WITHOUT_GRANT, TOLERATED_UNGRANTED_MIB
    else:
        kind = FindingKind.OVER_MEMORY
        tolerated_mib = granted_mib + max(TOLERATED_MIB, granted_mib * TOLERATED_PERCENT // 100)
    if used_mib <= tolerated_mib:
        return None
    return AuditFinding(FindingKey(kind, uuid, owner.pod_uid), owner.namespace, owner.pod, used_mib, granted_mib)
