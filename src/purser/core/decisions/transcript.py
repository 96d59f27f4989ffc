"""Records of notes: each node is compared with what the log has of it, so that what changed back costs nothing.

In the thread that writes: no request waits for it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.decisions.digest import digest, node_keys
from purser.core.decisions.masks import without_wide_masks
from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.notes import ChangesNote, DecisionInputs, Held, JudgedNote, NodeNote, Note, PlacedNote
from purser.core.decisions.records import (
    CandidatesSeen,
    CpuLists,
    DisputesTaken,
    FreeResourcesTaken,
    GrantReleased,
    GrantTaken,
    HeldForOthers,
    InventoryTaken,
    KubeletPodsTaken,
    KubeletTaken,
    MixLearnt,
    Moment,
    NodeGone,
    NodeOrder,
    NodeSeen,
    NodesJudged,
    PodKey,
    PodPlaced,
    Record,
    RequestSeen,
)
from purser.core.fleet import FreeResources
from purser.core.fleet.arrays import Rows
from purser.core.fleet.free_resources import NO_LIMIT
from purser.core.fleet.kubelet_snapshot import KubeletPods, ReportedKubelet
from purser.core.kubelet.cpuset import format_cpuset
from purser.core.kubelet.state import CpuState
from purser.core.kubernetes.times import parsed
from purser.core.ledger import least_advanced
from purser.core.model import Grant, NodeInventory, PodRequest
from purser.core.placement import Placement, Reason, Refusal
from purser.core.placement.mix import Mix
from purser.core.placement.reasons import nodes_by_reason

_NO_PODS = KubeletPods()


@dataclass(slots=True)
class _Logged:
    """What the log has of one node."""

    inventory: NodeInventory
    free: FreeResources = NO_LIMIT
    disputes: Mapping[str, str] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    report: ReportedKubelet | None = None
    pods: KubeletPods = _NO_PODS


class Transcript:
    """One file's records, of one `Recording`'s notes in their order."""

    def __init__(self, names: LoggedNames) -> None:
        self._names = names
        self._numbers: dict[str, int] = {}
        self._nodes: dict[str, _Logged] = {}
        self._mix: Mix | None = None
        self._requests: dict[bytes, int] = {}
        self._candidates: dict[bytes, int] = {}
        self._of_rows = _Rows((), self._numbers)
        self._asked: tuple[_Rows | None, Rows | None, int] = (None, None, -1)
        """What was asked about last, and its number among the candidates."""

    def records(self, notes: Iterable[Note]) -> Iterator[Record]:
        """What is written of them."""
        for note in notes:
            match note:
                case ChangesNote():
                    yield from self._record_changes(note)
                case JudgedNote():
                    yield from self._record_judged(note)
                case PlacedNote():
                    yield from self._record_placed(note)
                case _:
                    yield note

    def _record_changes(self, note: ChangesNote) -> list[Record]:
        found: list[Record] = [NodeGone(self._forget_node(name)) for name in note.gone]
        came = [each.name for each in note.nodes if each.name not in self._nodes]
        for each in sorted(note.nodes, key=lambda each: each.name):
            self._node(each, found)
        if self._names.are_hashed and (note.gone or came):
            found.append(NodeOrder(tuple(self._numbers[name] for name in sorted(self._nodes))))
        if note.mix is not self._mix:
            self._mix = note.mix
            found.append(MixLearnt(note.mix))
        return [Moment(note.at), *found] if found or note.is_moment else found

    def _record_judged(self, note: JudgedNote) -> list[Record]:
        records: list[Record] = []
        pod, request = self._pod(note.asked), self._request(note.asked.request, records)
        if self._of_rows.names is not note.names:
            self._of_rows = _Rows(note.names, self._numbers)
        candidates = self._candidates_of(note.rows, records)
        best, score = self._best(note)
        bits = digest(self._of_rows.keys[note.fitting], note.scores)
        refusals = counted_reasons(note.refusals)
        left, held = note.asked.left, self._held(note.asked.held)
        decided = (len(note.scores), bits, best, score, refusals)
        records.append(NodesJudged(pod, request, candidates, *decided, left, held, note.clock, note.verb))
        return records

    def _record_placed(self, note: PlacedNote) -> list[Record]:
        records: list[Record] = []
        asked, found, number = note.asked, note.found, self._numbers.get(note.node)
        request = self._request(asked.request, records)
        if number is None:  # a node without inventory takes nothing
            return records
        containers, pools = (found.containers, found.pools) if isinstance(found, Placement) else ((), ())
        refusal = tuple((str(r), n) for r, n in found.counts) if isinstance(found, Refusal) else ()
        inputs = (asked.left, self._held(asked.held), note.clock, note.is_early)
        records.append(PodPlaced(self._pod(asked), request, number, containers, refusal, *inputs, pools))
        return records

    def _forget_node(self, name: str) -> int:
        del self._nodes[name]
        return self._numbers[name]

    def _node(self, node: NodeNote, found: list[Record]) -> None:
        """What is different of one node."""
        name = node.name
        if name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            found.append(NodeSeen(self._names.node(name)))
        number, known = self._numbers[name], self._nodes.get(name)
        if known is None or known.inventory is not node.inventory:
            found.append(InventoryTaken(number, self._names.inventory(node.inventory)))
        if known is None:
            known = self._nodes[name] = _Logged(node.inventory)
        known.inventory = node.inventory
        if node.free != known.free:
            known.free = node.free
            found.append(FreeResourcesTaken(number, node.free))
        if node.disputes != known.disputes:
            known.disputes = node.disputes
            found.append(DisputesTaken(number, self._names.disputes(node.disputes)))
        self._grants(node, number, known, found)
        self._kubelet(node, number, known, found)

    def _grants(self, node: NodeNote, number: int, known: _Logged, found: list[Record]) -> None:
        """Released ones first; those that are new in the order in which they were entered."""
        now = {grant.pod_uid: grant for grant, _ in node.grants}
        if now == known.grants:
            return  # most are the very same objects, which costs no comparison
        stays = {uid for uid, grant in known.grants.items() if now.get(uid) == grant}
        found += [GrantReleased(number, uid) for uid in known.grants if uid not in stays]
        for grant, states in node.grants:
            if grant.pod_uid not in stays:
                found.append(GrantTaken(number, self._names.grant(grant), least_advanced(states)))
        known.grants = now

    def _kubelet(self, node: NodeNote, number: int, known: _Logged, found: list[Record]) -> None:
        if node.report is not known.report:
            known.report = node.report
            found.append(_kubelet_taken(number, node.report))
        if node.pods != known.pods:
            known.pods = node.pods
            found.append(KubeletPodsTaken(number, node.pods))

    def _pod(self, asked: DecisionInputs) -> PodKey:
        request, names = asked.request, self._names
        created = parsed(asked.created) or 0.0
        return PodKey(request.uid, names.namespace(request.namespace), names.pod(request.name), created)

    def _request(self, request: PodRequest, records: list[Record]) -> int:
        """The number of what is asked for; pods of one workload ask for the same."""
        kubelet = request.kubelet_pod and msgspec.structs.replace(request.kubelet_pod, uid="")
        anonymous = msgspec.structs.replace(request, uid="", namespace="", name="", kubelet_pod=kubelet)
        key = msgspec.msgpack.encode(anonymous)
        if key not in self._requests:
            self._requests[key] = len(self._requests)
            records.append(RequestSeen(anonymous))
        return self._requests[key]

    def _candidates_of(self, rows: Rows, records: list[Record]) -> int:
        of_rows, asked, number = self._asked
        if of_rows is self._of_rows and asked is rows:
            return number
        mask = np.zeros(len(self._numbers), np.bool_)
        mask[self._of_rows.numbers[rows[rows >= 0]]] = True
        nodes = np.packbits(mask).tobytes()
        if nodes not in self._candidates:
            self._candidates[nodes] = len(self._candidates)
            records.append(CandidatesSeen(nodes))
        self._asked = self._of_rows, rows, self._candidates[nodes]
        return self._candidates[nodes]

    def _best(self, note: JudgedNote) -> tuple[int, float]:
        if not len(note.scores):
            return -1, 0.0
        score = note.scores.max()
        rows = note.fitting[note.scores == score]
        row = rows[note.order[rows].argmin()]
        return int(self._of_rows.numbers[row]), float(score)

    def _held(self, held: Held) -> tuple[HeldForOthers, ...]:
        return tuple(
            HeldForOthers(self._numbers[node], kept.usage, tuple((*key, n) for key, n in sorted(kept.pools.items())))
            for node, kept in held.items()
            if node in self._numbers
        )


class _Rows:
    """What the log has of the rows of the evaluator's arrays."""

    def __init__(self, names: tuple[str, ...], numbers: Mapping[str, int]) -> None:
        self.names = names
        self.numbers: npt.NDArray[np.int64] = np.array([numbers.get(name, -1) for name in names], np.int64)
        self.keys = node_keys(self.numbers)


def counted_reasons(refusals: Mapping[str, Refusal]) -> tuple[tuple[str, int], ...]:
    """Of nodes where none fits: of how many each reason was found, of those that have an inventory."""
    reasons = nodes_by_reason(refusals.values())
    return tuple(sorted((str(r), n) for r, n in reasons.items() if r is not Reason.UNREGISTERED))


def _kubelet_taken(number: int, report: ReportedKubelet | None) -> KubeletTaken:
    if report is None:
        return KubeletTaken(number, None)
    counted = None if report.counted is None else tuple(sorted(report.counted))
    state, masks = without_wide_masks(msgspec.structs.replace(report.state, cpus=None))
    return KubeletTaken(number, report.node, state, _cpu_lists(report.state.cpus), counted, masks)


def _cpu_lists(cpus: CpuState | None) -> CpuLists | None:
    if cpus is None:
        return None
    exclusive = tuple((uid, name, format_cpuset(held)) for (uid, name), held in cpus.exclusive.items())
    return CpuLists(format_cpuset(cpus.default), format_cpuset(cpus.reserved), exclusive)
