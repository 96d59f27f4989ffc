"""Compares four records of one node's devices: the scheduler's, the agent's, kubelet's, and the pods' annotations.
Pure.

Each difference is settled by the component that owns the fact: the agent reports what it holds
(`disputes_to_publish`), the scheduler counts what is reported (`expected_records`), and a pod that was granted too much
is evicted. Differences that last until a pod ends are reported in events. Records that are None are not compared.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from purser.core.grant.disputes import HeldPod, HeldReason, NodeDisputes, RefusedPod, closed_gpus
from purser.core.ledger import Ledger, find_overcommit, pod_usage
from purser.core.model import Device, Grant, NodeInventory
from purser.core.vendors.catalogue import BY_RESOURCE


class PodBook(msgspec.Struct, frozen=True):
    """A live pod of the node as the API server has it."""

    namespace: str
    name: str
    uid: str
    asks: bool = True
    """Whether it asks for GPUs."""
    started: bool = False
    """Whether kubelet took it: before, it holds nothing that it was not granted."""
    grant: Grant | None = None
    """By its annotations, where they count."""
    problem: str = ""
    """Why they do not; empty where they say nothing."""
    record: str = ""
    """Why what another scheduler recorded on it does not count, in one sentence; empty: there is no such record."""
    families: frozenset[str] = frozenset()
    """Of other vendors' devices, those for which it asks, by resource: no agent reports what it holds of them."""

    @property
    def key(self) -> str:
        """As informers key pods."""
        return f"{self.namespace}/{self.name}"


class SchedulerBook(msgspec.Struct, frozen=True):
    """What the scheduler counts of a node."""

    grants: Mapping[str, Grant]
    """By pod uid."""
    closed: Mapping[str, str] = {}
    """GPUs that take no new grants, and why."""


class NodeRecords(msgspec.Struct, frozen=True):
    """Everything that the caller knows of a node."""

    node: str
    devices: Mapping[str, Device]
    pods: tuple[PodBook, ...] = ()
    """Live ones; those that neither ask for devices nor carry a grant may be left out."""
    agent: Mapping[str, Grant] | None = None
    """The agent's book, by pod uid."""
    kubelet: Mapping[str, frozenset[str]] | None = None
    """The GPUs of the ids that kubelet lists, by pod key; none for one that it lists without."""
    disputes: NodeDisputes | None = None
    """What the agent has published."""
    scheduler: SchedulerBook | None = None


class DifferenceKind(StrEnum):
    """In what way books differ; stable strings."""

    GRANT_LOST = "grant-lost"
    NEVER_GRANTED = "never-granted"
    UNREPORTED = "not-reported"
    REFUSED = "refused"
    GRANTED_TWICE = "granted-twice"
    DEVICES_DIFFER = "devices-differ"
    DEVICE_UNKNOWN = "device-unknown"
    AGENT_BEHIND = "agent-behind"
    KUBELET_BEHIND = "kubelet-behind"
    SCHEDULER_BEHIND = "scheduler-behind"
    REPORT_STALE = "report-stale"


SETTLED_BY: Mapping[DifferenceKind, str] = {
    DifferenceKind.GRANT_LOST: "the agent's report is used until the pod ends",
    DifferenceKind.NEVER_GRANTED: "the pod's GPUs are closed to new pods until the pod ends; delete the pod to free "
    "them sooner",
    DifferenceKind.UNREPORTED: "the node's agent will report which devices the pod holds; until then, no new pods are "
    "placed on the node's GPUs",
    DifferenceKind.REFUSED: "the node's agent withdraws its report once the pod has ended",
    DifferenceKind.GRANTED_TWICE: "the scheduler deletes a pod that has not started and that a controller recreates; "
    "otherwise, delete one of the pods",
    DifferenceKind.DEVICES_DIFFER: "delete the pod, because kubelet gave it different devices from those granted",
    DifferenceKind.DEVICE_UNKNOWN: "wait until the GPU is available again, or the pod ends",
    DifferenceKind.AGENT_BEHIND: "the agent adopts the devices that kubelet lists, and releases those of pods that "
    "have ended",
    DifferenceKind.KUBELET_BEHIND: "kubelet releases the device once it learns that the pod has ended",
    DifferenceKind.SCHEDULER_BEHIND: "the scheduler reads the pod and its node again",
    DifferenceKind.REPORT_STALE: "the agent publishes its report again",
}
"""Who settles a difference, and how; for people."""


class BookDifference(msgspec.Struct, frozen=True):
    """One thing on which books do not agree."""

    kind: DifferenceKind
    node: str
    pod: str = ""
    """Its key; empty where a GPU is concerned."""
    uuids: tuple[str, ...] = ()
    detail: str = ""

    @property
    def settled_by(self) -> str:
        """Who settles it, and how."""
        return SETTLED_BY[self.kind]


def differences(books: NodeRecords) -> tuple[BookDifference, ...]:
    """All that differs, in stable order."""
    found = (
        *_pod_differences(books),
        *_ended_differences(books),
        *_gpu_differences(books),
        *_scheduler_differences(books),
    )
    return tuple(sorted(set(found), key=lambda each: (each.kind, each.pod, each.uuids, each.detail)))


def disputes_to_publish(
    books: NodeRecords, refused: Iterable[RefusedPod] = (), ended: Iterable[HeldPod] = ()
) -> NodeDisputes:
    """What the agent, which knows kubelet's book and its own, has to publish. ``ended``: what pods hold that are said
    to have ended."""
    held = (each for pod in books.pods if (each := _unannotated_holding(pod, books)) is not None)
    order = sorted([*held, *ended], key=lambda each: each.uid)
    return NodeDisputes(books.node, tuple(order), tuple(sorted(refused, key=lambda each: each.uid)))


def expected_records(
    node: str, devices: Mapping[str, Device], pods: Iterable[PodBook], disputes: NodeDisputes | None
) -> SchedulerBook:
    """What the scheduler has to count. ``devices``: the node's, by uuid."""
    live: set[str] = set()
    grants: dict[str, Grant] = {}
    closed: dict[str, str] = {}
    words = {} if disputes is None else {each.uid: each for each in disputes.held}
    for pod in pods:
        live.add(pod.uid)
        counted = counts(pod, words.get(pod.uid), node)
        if isinstance(counted, Grant):
            grants[pod.uid] = counted
        closed |= closed_devices(pod, counted, devices)
    if disputes is not None:
        closed |= closed_gpus(disputes, live.__contains__)
    return SchedulerBook(grants, closed)


def counts(pod: PodBook, word: HeldPod | None, node: str) -> Grant | str:
    """What counts for a live pod: its grant, or its agent's word; else why all GPUs of its node are in doubt, which is
    empty where they are not. See `closed_devices`."""
    if pod.grant is not None:
        return pod.grant
    if word is not None:
        return Grant(pod.uid, pod.namespace, pod.name, node, word.containers) if word.containers else ""
    if not may_hold_ungranted_gpus(pod):
        return ""
    why = f" ({pod.record})" if pod.record else ""
    lead = f"pod {pod.key} runs without a valid grant"
    return f"{lead}, and the node's agent has not reported which devices the pod holds{why}"


def closed_devices(pod: PodBook, counted: Grant | str, devices: Mapping[str, Device]) -> dict[str, str]:
    """Devices of its node that take no new grants for what a live pod may hold of them, by uuid, and why.

    A pod that kubelet may have served without a grant closes all GPUs until the agent has reported what it holds, and
    all devices of another vendor's family until it ends; one that kubelet has not admitted holds nothing.
    ``counted``: what `counts` says of it.
    """
    why = {}
    if isinstance(counted, str) and counted:
        why[""] = counted
    if pod.grant is None and pod.started:
        problem = f"pod {pod.key} runs without a valid grant, and no agent reports which devices the pod holds"
        why |= dict.fromkeys(pod.families, problem)
    if not why:
        return {}
    families = {uuid: device.resource if device.resource in BY_RESOURCE else "" for uuid, device in devices.items()}
    return {uuid: why[family] for uuid, family in families.items() if family in why}


def may_hold_ungranted_gpus(pod: PodBook) -> bool:
    """Whether a pod may hold GPUs that are not in its annotations."""
    return pod.grant is None and pod.asks and pod.started


def _unannotated_holding(pod: PodBook, books: NodeRecords) -> HeldPod | None:
    """What a pod holds beyond its annotations."""
    if pod.grant is not None:
        return None
    booked = (books.agent or {}).get(pod.uid)
    why = HeldReason.GRANT_UNTRUSTED if pod.problem else HeldReason.GRANT_MISSING
    if booked is not None:
        return HeldPod(pod.namespace, pod.name, pod.uid, why, booked.containers)
    gpus = (books.kubelet or {}).get(pod.key, frozenset())
    if gpus:
        return HeldPod(pod.namespace, pod.name, pod.uid, HeldReason.NEVER_GRANTED, uuids=tuple(sorted(gpus)))
    return HeldPod(pod.namespace, pod.name, pod.uid, why) if may_hold_ungranted_gpus(pod) else None


def _pod_differences(books: NodeRecords) -> Iterator[BookDifference]:
    words = {} if books.disputes is None else {each.uid: each for each in books.disputes.held}
    has_records = books.agent is not None and books.kubelet is not None
    for pod in books.pods:
        word = words.get(pod.uid)
        if pod.grant is not None:
            yield from _grant_differences(pod, pod.grant, books)
            if word is not None:
                yield BookDifference(DifferenceKind.REPORT_STALE, books.node, pod.key, detail="the grant exists")
            continue
        truth = _unannotated_holding(pod, books) if has_records else word
        if truth is not None and truth.gpus:
            lost = DifferenceKind.NEVER_GRANTED if truth.why is HeldReason.NEVER_GRANTED else DifferenceKind.GRANT_LOST
            detail = pod.problem or ("" if lost is DifferenceKind.NEVER_GRANTED else "its grant annotation was removed")
            yield BookDifference(lost, books.node, pod.key, tuple(sorted(truth.gpus)), detail)
        if word is None and (truth is not None or may_hold_ungranted_gpus(pod)):
            yield BookDifference(DifferenceKind.UNREPORTED, books.node, pod.key, detail=pod.problem)
        elif has_records and word != truth:
            yield BookDifference(
                DifferenceKind.REPORT_STALE, books.node, pod.key, detail="it no longer matches what the pod holds"
            )
    for each in () if books.disputes is None else books.disputes.refused:
        detail = each.reason + (f", blocked by {', '.join(each.in_the_way)}" if each.in_the_way else "")
        yield BookDifference(DifferenceKind.REFUSED, books.node, each.key, each.uuids, detail)


def _grant_differences(pod: PodBook, grant: Grant, books: NodeRecords) -> Iterator[BookDifference]:
    gpus = grant.uuids
    listed = (books.kubelet or {}).get(pod.key, frozenset())
    if listed - gpus:
        yield BookDifference(DifferenceKind.DEVICES_DIFFER, books.node, pod.key, tuple(sorted(listed - gpus)))
    elif listed and books.agent is not None and books.agent.get(pod.uid) != grant:
        yield BookDifference(DifferenceKind.AGENT_BEHIND, books.node, pod.key, tuple(sorted(listed)))
    if unknown := gpus - books.devices.keys():
        yield BookDifference(DifferenceKind.DEVICE_UNKNOWN, books.node, pod.key, tuple(sorted(unknown)))


def _ended_differences(books: NodeRecords) -> Iterator[BookDifference]:
    """What some book has of pods that are no more."""
    uids, keys = {pod.uid for pod in books.pods}, {pod.key for pod in books.pods}
    for uid, grant in (books.agent or {}).items():
        if uid not in uids:
            yield BookDifference(DifferenceKind.AGENT_BEHIND, books.node, grant.key, detail="the pod has ended")
    for key, gpus in (books.kubelet or {}).items():
        if gpus and key not in keys:
            yield BookDifference(
                DifferenceKind.KUBELET_BEHIND, books.node, key, tuple(sorted(gpus)), "the pod has ended"
            )
    for each in () if books.disputes is None else books.disputes.held:
        if each.uid in uids:
            continue
        if each.why is not HeldReason.ENDED or (books.kubelet is not None and not books.kubelet.get(each.key)):
            yield BookDifference(DifferenceKind.REPORT_STALE, books.node, each.key, detail="the pod has ended")
        elif books.kubelet is None:
            yield BookDifference(DifferenceKind.KUBELET_BEHIND, books.node, each.key, each.uuids, "the pod has ended")


def _gpu_differences(books: NodeRecords) -> Iterator[BookDifference]:
    """GPUs of which the grants that count are more than there is."""
    words = {} if books.disputes is None else {each.uid: each for each in books.disputes.held}
    ledger = Ledger()
    ledger.set_inventory(NodeInventory(books.node, tuple(books.devices.values())))
    for pod in books.pods:
        counted = counts(pod, words.get(pod.uid), books.node)
        if isinstance(counted, Grant):
            ledger.adopt(counted)
    for uuid, usage in ledger.usage(books.node).items():
        device = books.devices.get(uuid)
        problem = "" if device is None else find_overcommit(device, usage)
        if problem:
            holders = sorted(grant.key for grant in ledger.grants() if uuid in pod_usage(grant))
            detail = f"{problem}: {', '.join(holders)}"
            yield BookDifference(DifferenceKind.GRANTED_TWICE, books.node, uuids=(uuid,), detail=detail)


def _scheduler_differences(books: NodeRecords) -> Iterator[BookDifference]:
    if books.scheduler is None:
        return
    wanted = expected_records(books.node, books.devices, books.pods, books.disputes)
    of_pod = {pod.uid: pod.key for pod in books.pods}
    for uid in sorted(wanted.grants.keys() | books.scheduler.grants.keys()):
        if wanted.grants.get(uid) != (counted := books.scheduler.grants.get(uid)):
            key = of_pod.get(uid) or (counted.key if counted else "")
            yield BookDifference(DifferenceKind.SCHEDULER_BEHIND, books.node, key)
    for uuid in sorted(wanted.closed.keys() ^ books.scheduler.closed.keys()):
        detail = wanted.closed.get(uuid) or "the scheduler still treats the GPU as disputed"
        yield BookDifference(DifferenceKind.SCHEDULER_BEHIND, books.node, uuids=(uuid,), detail=detail)
