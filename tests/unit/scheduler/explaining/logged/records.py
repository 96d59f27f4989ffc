"""A cluster's decision on pod ``p`` as a decision log, and what a change is to its records.

The records are changed as the scheduler would have written them in another cluster: nothing here asks how a change is
tried when it is searched for.
"""

import io
from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec
from msgspec.structs import replace
from tests.unit.core.decisions.scheduling_world import as_file
from tests.unit.scheduler.explained import Raw, cluster

from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.notes import DecisionInputs
from purser.core.decisions.recording import Recording
from purser.core.decisions.records import (
    GrantTaken,
    InventoryTaken,
    KubeletPodsTaken,
    KubeletTaken,
    NodesJudged,
    Record,
    RequestSeen,
    SchedulingStart,
)
from purser.core.decisions.scheduling import SchedulingReplay
from purser.core.decisions.transcript import Transcript
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, grant_demand, remaining_quota
from purser.core.kubelet.config import TopologyPolicy
from purser.core.kubelet.pod import qos_class
from purser.core.kubernetes.quantities import MIB
from purser.core.model import DeviceRequest, GpuNic, PodRequest
from purser.scheduler.explaining import ChangeKind, Explanation, LogFile, SuggestedChange, explain_from_log
from purser.scheduler.explaining.judging import Judgement
from purser.scheduler.explaining.known import KnownCluster

DEVICE_FIELDS = {
    "gpus": "count",
    "gpuMemoryMiB": "memory_mib",
    "gpuMemoryPercent": "memory_percent",
    "gpuCoresPercent": "cores_percent",
}


def recorded(objects: Sequence[Raw], names: LoggedNames | None = None) -> tuple[list[Record], Judgement]:
    """The log of one decision, and the decision; no records where Purser is not asked."""
    known = KnownCluster(cluster(*objects))
    pod = known.pod("default", "p")
    assert pod is not None
    judged = known.judge(pod, scored=True)
    if judged.request is None or judged.objection:
        return [], judged
    names = names or LoggedNames()
    recording = Recording(known.fleet, known._evaluator, known._cache.arrivals.mix)
    notes = recording.start(1000.0, is_anonymous=names.are_hashed)
    asked = [name for name in known.nodes if name not in judged.rejections]
    left = known.quota_left(judged.request)
    evaluation = known._feasibility.evaluate(judged.request, asked)
    notes += recording.judged(1000.0, DecisionInputs(judged.request, left, {}), evaluation, "filter")
    return list(Transcript(names).records(notes)), judged


def file_of(data: bytes, name: str = "d.log") -> LogFile:
    return LogFile(name, lambda: io.BytesIO(data))


def explained(records: Sequence[Record], pod: str = "p") -> Explanation:
    return explain_from_log([file_of(as_file(records))], "default", pod)


def fits(records: Sequence[Record]) -> tuple[str, ...]:
    """The nodes that take the pod, by the last record, decided anew from the log."""
    start, *others, last = records
    assert isinstance(start, SchedulingStart) and isinstance(last, NodesJudged)
    replay = SchedulingReplay(start)
    for each in others:
        replay.follow(each)
    return tuple(replay.evaluate(replay.asked(last), replay.candidates(last)).fits)


def request_of(records: Sequence[Record]) -> PodRequest:
    return next(each.request for each in records if isinstance(each, RequestSeen))


def with_request(records: Sequence[Record], request: PodRequest) -> list[Record]:
    return [RequestSeen(request) if isinstance(each, RequestSeen) else each for each in records]


def applied(records: Sequence[Record], kind: ChangeKind, change: SuggestedChange) -> list[Record]:
    """The log as it would have been."""
    match kind:
        case ChangeKind.AMOUNT:
            return with_amount(records, change.container, change.resource, _whole(change))
        case ChangeKind.ANNOTATION:
            return wider(records, change.field)
        case ChangeKind.QUOTA:
            return with_left(records, change.quota_left)
        case ChangeKind.UNCORDON_GPU:
            return uncordoned(records, change.node, change.gpus)
        case ChangeKind.KUBELET:
            return unaligned(records, change.node)
        case ChangeKind.END:
            return without(records, {uid for uid, key in keys(records).items() if key in change.pods})
    raise AssertionError(kind)


def _whole(change: SuggestedChange) -> int:
    amount = change.amount
    if change.resource == "cpu":
        return int(amount[:-1]) if amount.endswith("m") else int(amount) * 1000
    return int(amount.removesuffix("Mi"))


def with_amount(records: Sequence[Record], container: str, what: str, value: int) -> list[Record]:
    request = request_of(records)
    if what in ("cpu", "memory"):
        return with_request(records, _for_kubelet(request, container, what, value * (MIB if what == "memory" else 1)))
    part = next(each for each in request.containers if each.name == container)
    devices = _devices(part.devices, what, value)
    parts = tuple(replace(e, devices=devices) if e.name == container else e for e in request.containers)
    changed = replace(request, containers=parts)
    return with_request(records, _for_kubelet(changed, container, devices.resource, devices.count))


def _devices(asked: DeviceRequest, what: str, value: int) -> DeviceRequest:
    """Whole GPUs become shares of them."""
    if what == "gpuMemoryMiB" and asked.memory_percent:
        cores = 0 if asked.is_plain else asked.cores_percent
        return replace(asked, memory_percent=None, memory_mib=value, cores_percent=cores)
    return replace(asked, **{DEVICE_FIELDS[what]: value})


def _for_kubelet(request: PodRequest, container: str, resource: str, value: int) -> PodRequest:
    pod = request.kubelet_pod
    if pod is None:
        return request
    parts = []
    for each in pod.containers:
        limits, requests = dict(each.limits), dict(each.requests)
        for amounts in (limits, requests) if each.name == container else ():
            if resource in amounts:
                amounts[resource] = value
        parts.append(replace(each, limits=limits, requests=requests))
    return replace(request, kubelet_pod=replace(pod, containers=tuple(parts), qos=qos_class(tuple(parts))))


def wider(records: Sequence[Record], field: str) -> list[Record]:
    request = request_of(records)
    if field == "gpu_policy":
        return with_request(records, replace(request, gpu_policy=()))
    if field == "gpu_nic":
        return with_request(records, replace(request, gpu_nic=GpuNic.PREFERRED))
    default = next(each.default for each in msgspec.structs.fields(DeviceRequest) if each.name == field)
    parts = tuple(replace(e, devices=replace(e.devices, **{field: default})) for e in request.containers)
    return with_request(records, replace(request, containers=parts))


def with_left(records: Sequence[Record], raised: dict[str, int]) -> list[Record]:
    *others, last = records
    assert isinstance(last, NodesJudged)
    memory = raised.get("gpuMemoryMiB", last.quota.memory_mib)
    return [*others, replace(last, quota=QuotaLimits(memory, raised.get("gpuCoresPercent", last.quota.cores_percent)))]


def uncordoned(records: Sequence[Record], node: str, gpus: Sequence[str]) -> list[Record]:
    def changed(each: Record) -> Record:
        if not isinstance(each, InventoryTaken) or each.inventory.node != node:
            return each
        left = tuple(uuid for uuid in each.inventory.cordoned if uuid not in gpus)
        return replace(each, inventory=replace(each.inventory, cordoned=left))

    return list(map(changed, records))


def unaligned(records: Sequence[Record], node: str) -> list[Record]:
    number = next(e.node for e in records if isinstance(e, InventoryTaken) and e.inventory.node == node)

    def changed(each: Record) -> Record:
        if not isinstance(each, KubeletTaken) or each.node != number or each.kubelet is None:
            return each
        config = replace(each.kubelet.config, topology_policy=TopologyPolicy.NONE)
        return replace(each, kubelet=replace(each.kubelet, config=config))

    return list(map(changed, records))


def keys(records: Sequence[Record]) -> dict[str, str]:
    """The pods that hold GPUs: by uid their names."""
    return {each.grant.pod_uid: each.grant.key for each in records if isinstance(each, GrantTaken)}


def node_numbers(records: Sequence[Record]) -> dict[str, int]:
    return {each.grant.pod_uid: each.node for each in records if isinstance(each, GrantTaken)}


def without(records: Sequence[Record], gone: "set[str] | frozenset[str]") -> list[Record]:
    *others, last = records
    assert isinstance(last, NodesJudged)
    left = last.quota
    ended = [each.grant for each in others if isinstance(each, GrantTaken) and each.grant.pod_uid in gone]
    for grant in ended if left != UNLIMITED else ():
        if (grant.namespace, grant.family) == ("default", request_of(records).family):
            left = remaining_quota(left, Demand() - grant_demand(grant))

    def changed() -> Iterator[Record]:
        for each in others:
            if isinstance(each, KubeletPodsTaken):
                pods = each.pods
                kept = tuple(pod for pod in pods.pods if pod.uid not in gone)
                yield replace(each, pods=replace(pods, pods=kept, started=pods.started - gone, taken=pods.taken - gone))
            elif not isinstance(each, GrantTaken) or each.grant.pod_uid not in gone:
                yield each

    return [*changed(), replace(last, quota=left)]


def fewest_ends(records: Sequence[Record]) -> int | None:
    """How many pods of one node have to end, or of several where there is a quota; None: it does not help."""
    nodes = node_numbers(records)
    last = records[-1]
    assert isinstance(last, NodesJudged)
    sets = [([uid for uid, each in nodes.items() if each == number], len(nodes)) for number in set(nodes.values())]
    if last.quota != UNLIMITED:
        sets.append((list(nodes), 3))
    for many in range(1, len(nodes) + 1):
        for uids, most in sets:
            for gone in combinations(uids, many) if many <= most else ():
                if fits(without(records, set(gone))):
                    return many
    return None


def fewest_uncordoned(records: Sequence[Record]) -> int | None:
    inventories = [each.inventory for each in records if isinstance(each, InventoryTaken)]
    for many in range(1, max((len(each.cordoned) for each in inventories), default=0) + 1):
        for inventory in inventories:
            for gone in combinations(inventory.cordoned, many):
                if fits(uncordoned(records, inventory.node, gone)):
                    return many
    return None
