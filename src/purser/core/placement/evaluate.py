"""One pod on many nodes: which it fits, how good each of them is, and why not the others; then on the chosen one: which
devices it gets there.

Nodes are judged all at once, from the fleet as arrays (`verdicts`, `table`). What the arrays do not show is evaluated
node by node (`place`), only where the arrays leave it open, and once for all nodes in equal state: pods with several
containers, devices on one NUMA node, percentages of memory under a quota, and nodes whose kubelet may reject a pod that
has room.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import compress

import msgspec
import numpy as np

from purser.core.consistency import InvariantViolation
from purser.core.fleet import NO_NOMINATED_USAGE, Fleet, NodeState, NominatedUsage
from purser.core.fleet.arrays import FleetArrays, Rows
from purser.core.fleet.consistency import sweep
from purser.core.fleet.live import LiveArrays
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits
from purser.core.model import DeviceRequest, GpuNic, GpuPolicy, Grant, PodRequest
from purser.core.placement.by_class import Verdict, VerdictCache, asked_shape
from purser.core.placement.fragments import Causes, Fragments
from purser.core.placement.granted import DeviceAssignment, Placement, placement_of
from purser.core.placement.kernels.arguments import Bools, Floats
from purser.core.placement.mix import Mix, MixSource
from purser.core.placement.place import decide, place
from purser.core.placement.policies import ArrayPolicy, Setting
from purser.core.placement.policies import policy as array_policy
from purser.core.placement.policies.purser import Planner
from purser.core.placement.preference import ArrayPreference
from purser.core.placement.reasons import UNREGISTERED, Refusal
from purser.core.placement.shape import (
    can_read_from_arrays,
    container_shape,
    depends_on_combination,
    largest_shape,
    shape_of,
    view,
)
from purser.core.placement.table import ShapeTable
from purser.core.placement.verdicts import Quota, VerdictKey, Verdicts
from purser.core.policy.settings import DEFAULT_POLICIES, PolicySettings
from purser.core.policy.words import ARRAY_WORDS
from purser.recent import Recent

PAIR_SCORE = 1000
"""Of each pair of a GPU and a network device: more than any policy gives a node."""

_NO_ROWS: Rows = np.zeros(0, np.intp)

_MAX_VERDICTS = 128
"""Verdicts kept: each costs some 40 bytes a node."""

_MAX_TRIAL_VERDICTS = 8
"""The same, of what is only tried."""

_MAX_TABLES = 8
"""Policies of which scores are kept: pods may weigh them in any way."""


class Evaluation(msgspec.Struct, frozen=True):
    """The verdict on each of the nodes asked about."""

    fits: list[str]
    """In the order in which they were asked about."""
    scores: Floats
    """Of those that fit, higher is better; minus infinity where the policy sees no room (of CPU, which is
    kube-scheduler's to judge)."""
    refusals: Mapping[str, Refusal]
    rows: Rows = _NO_ROWS
    """Of the evaluator's arrays, of those that fit, until the fleet changes; empty where they are not known."""
    asked: Rows = _NO_ROWS
    """The same of all nodes asked about, -1 of one without inventory. To be read only, as are the other arrays."""
    pairs: Mapping[str, int] = {}
    """By node that fits and has any: how many pairs of a GPU and a network device are a part of its score."""


@dataclass(slots=True)
class _Question:
    """One pod and the nodes asked about, and what is known so far: by place among the nodes."""

    request: PodRequest
    names: list[str]
    rows: Rows
    """Of the arrays; -1 for a node without inventory."""
    left: QuotaLimits
    fits: Bools
    refusals: dict[str, Refusal]
    pairs: dict[int, int] = field(default_factory=dict)
    """Of nodes where it has any: how many of the pod's GPUs have a network device of its own near them."""

    def refuse(self, place: int, refusal: Refusal) -> None:
        """A node does not fit."""
        self.fits[place], self.refusals[self.names[place]] = False, refusal


class Evaluator:
    """Judges pods on one fleet. What was computed is kept, and renewed where the fleet changed."""

    def __init__(
        self,
        fleet: Fleet,
        policy: PolicySettings = DEFAULT_POLICIES,
        mix: MixSource | None = None,
        planner: Planner | None = None,
    ) -> None:
        """``planner``: one that plans for the same mix, otherwise than of its own accord."""
        self.policy = policy
        self._fleet = fleet
        self._live = LiveArrays(fleet)
        mix = mix if mix is not None else Mix()
        self.planner = planner if planner is not None else Planner(mix)
        """Of the policies that plan."""
        self._setting = Setting(mix, planner=self.planner)
        self._fragments = Fragments(mix)
        self._tables: Recent[tuple[str, str], ShapeTable] = Recent(_MAX_TABLES)
        self._verdicts: Recent[VerdictKey, Verdicts] = Recent(_MAX_VERDICTS)
        self._judged = VerdictCache()

    def for_trials(self) -> "Evaluator":
        """One that decides alike, of the same arrays, and keeps its verdicts apart: those on what pods could ask for
        instead do not displace those on what pods ask for."""
        other = copy(self)
        other._verdicts, other._judged = Recent(_MAX_TRIAL_VERDICTS), VerdictCache()
        return other

    @property
    def largest_gpu_mib(self) -> int:
        """The memory of the largest GPU, as of the last decision or `refresh`; 0: there is none."""
        return int(self._live.arrays.memory_mib.max(initial=0))

    def refresh(self) -> None:
        """Take in what changed of the fleet, and plan for the pods to expect: else the next decision does."""
        self._table_of(self.policy.node, self.policy.gpu)  # the policy of pods that name none says whether it plans
        self.planner.plan_ahead(self._live.refresh())

    @property
    def arrays(self) -> FleetArrays:
        """The fleet's, as of the last decision or `refresh`; for reading."""
        return self._live.arrays

    def rows(self, names: list[str]) -> Rows:
        """The row of each of these nodes in `arrays`, -1 for one without inventory; for reading."""
        return self._live.rows(names)

    def lists(self, uuid: str) -> bool:
        """Whether any node has a device, as of the last decision or `refresh`."""
        return self._live.lists(uuid)

    def rank_nodes(self, names: Sequence[str]) -> None:
        """From now on nodes are in this order, and not in that of their names."""
        self._live.rank_nodes(names)

    def sweep(self) -> Iterator[tuple[InvariantViolation, ...]]:
        """See `purser.core.fleet.consistency.sweep`."""
        return sweep(self._fleet, self._live)

    def idle_gpus(self, nodes_at_once: int) -> Iterator[dict[str, Causes]]:
        """What of all idle GPUs keeps the pods to expect from using it, by model, so many nodes at a time."""
        self._live.refresh()
        rows = self._live.arrays.live.nonzero()[0]
        for start in range(0, len(rows), nodes_at_once):
            yield self._fragments.causes_by_model(self._live.arrays, rows[start : start + nodes_at_once])

    def evaluate(
        self,
        request: PodRequest,
        names: Sequence[str],
        left: QuotaLimits = UNLIMITED,
        own: Grant | None = None,
        *,
        scored: bool = True,
    ) -> Evaluation:
        """The verdict on every named node. ``left`` is what the namespace's quota leaves; ``own`` is what the pod holds
        already, which must not stand in its way. Not ``scored``: all scores are 0.
        """
        found = self._open_question(request, names, left, own)
        if not found.fits.any():
            return Evaluation([], np.zeros(0), found.refusals, asked=found.rows)
        if not scored:
            fits = list(compress(found.names, found.fits.tolist()))
            return Evaluation(fits, np.zeros(len(fits)), found.refusals)
        rows = found.rows[found.fits]
        scores = self._table(request).scores(largest_shape(request))[rows]
        if found.pairs:
            scores = scores + PAIR_SCORE * np.array([found.pairs.get(at, 0) for at in found.fits.nonzero()[0].tolist()])
        fits = found.names if found.fits.all() else list(compress(found.names, found.fits.tolist()))
        pairs = {found.names[at]: count for at, count in found.pairs.items() if found.fits[at]}
        return Evaluation(fits, scores, found.refusals, rows, found.rows, pairs)

    def fits_any(
        self, request: PodRequest, names: Sequence[str], left: QuotaLimits = UNLIMITED, own: Grant | None = None
    ) -> bool:
        """Whether any of these nodes fits; see `evaluate`."""
        return bool(self._open_question(request, names, left, own).fits.any())

    def place(
        self, name: str, request: PodRequest, left: QuotaLimits = UNLIMITED, held: NominatedUsage = NO_NOMINATED_USAGE
    ) -> Placement | Refusal:
        """Where the pod would go on a node: decided as by `evaluate` of this node alone, with the devices that the
        policy likes best. ``held`` is what is kept of it for others, beside what is taken of it."""
        node = self._fleet.node(name)
        if node is None:
            return UNREGISTERED
        if held is not NO_NOMINATED_USAGE:  # the arrays do not show it
            return place(node.plus(held), request, self.policy, left)
        if self._can_choose_from_arrays(node, request, left):
            return self._place_from_arrays(node, request, left)
        row = self._live.refresh().rows[name]
        chosen = place(node, request, self.policy, left, self._preference(request, row))
        if isinstance(chosen, Refusal):  # kubelet's choice is searched for from the devices that are preferred
            return place(node, request, self.policy, left)
        return chosen

    def why(self, request: PodRequest, placement: Placement) -> str:
        """What the policy says for a placement that is not yet in the ledger, in a sentence; empty: nothing.

        It speaks of the container that asks for the most.
        """
        shape, row = largest_shape(request), self._live.refresh().rows[placement.node]
        pairs = zip(request.containers, placement.containers, strict=True)
        held = next(part for asked, part in pairs if container_shape(asked.devices, request) == shape)
        there = self._live.places(share.uuid for share in held.shares)
        gpus = [place for found_in, place in there if found_in == row]
        found = view(self._live.arrays, shape, np.array([row], np.intp))
        is_predicted = found.fits[0] and found.takes[gpus, 0].all()
        if any(share.mig is not None for share in held.shares):
            return "leaves the most room for other GPU instances"
        return self._table(request).policy.why(found, tuple(gpus)) if is_predicted else ""

    def _open_question(
        self, request: PodRequest, names: Sequence[str], left: QuotaLimits, own: Grant | None
    ) -> _Question:
        self._live.refresh()
        asked = list(names)
        rows = self._live.rows(asked)
        question = _Question(request, asked, rows, left, rows >= 0, {})
        self._ask_arrays(question)
        self._judge(question, self._unsettled_nodes(question))
        if own is not None and own.node in asked:
            self._judge_own_node(own, question)
        return question

    def _ask_arrays(self, question: _Question) -> None:
        """Refusals that the arrays show: container by container, each as if it were alone."""
        for absent in (~question.fits).nonzero()[0].tolist():
            question.refuse(absent, UNREGISTERED)
        if self._depends_on_device(question.request, question.left):
            return
        idle_only = GpuPolicy.MUTEX in self.policy.gpu_policy(question.request)
        for container in question.request.containers:
            if container.devices.joins:  # they would miss compute that it need not have
                continue
            verdicts = self._verdict(_ask(question, container.devices, idle_only))
            refused = (question.fits & ~verdicts.fits[question.rows]).nonzero()[0]
            if len(refused):
                names = map(question.names.__getitem__, refused.tolist())
                question.refusals.update(zip(names, verdicts.refusals(question.rows[refused], container), strict=True))
                question.fits[refused] = False

    def _depends_on_device(self, request: PodRequest, left: QuotaLimits) -> bool:
        """Whether it takes the devices themselves to know what the quota holds: percentages, and GPU instances, are of
        the size that there is."""
        in_percent = any(container.devices.memory_percent for container in request.containers)
        return left != UNLIMITED and (in_percent or self._live.arrays.has_partitioned_gpus)

    def _unsettled_nodes(self, question: _Question) -> list[int]:
        """The places of the nodes of which the arrays do not know enough."""
        candidates = question.fits
        if _is_single_size(question.request) and not self._depends_on_device(question.request, question.left):
            can_kubelet_refuse = question.request.kubelet_pod is not None
            examined = (
                self._live.has_known_kubelet[question.rows]
                if can_kubelet_refuse
                else np.zeros(len(candidates), np.bool_)
            )
            if question.request.gpu_nic is GpuNic.REQUIRED:
                examined = np.ones(len(candidates), np.bool_)
            elif question.request.gpu_nic is not None:
                examined = examined | self._live.has_pools[question.rows]
            # Nor do they show which shares a device takes none but alike ones of, and what is a MIG device.
            examined = examined | self._live.has_restricted_shares[question.rows]
            if question.request.containers[0].devices.count > 1:
                examined = examined | self._live.lists_mig_and_gpus_as_one_resource[question.rows]
            candidates = candidates & examined
        places: list[int] = candidates.nonzero()[0].tolist()
        return places

    def _judge(self, question: _Question, places: list[int]) -> None:
        """Judge some nodes by all rules."""
        if places:
            verdicts = self._verdicts_one_by_one(question, [question.names[place] for place in places])
            for place_, verdict in zip(places, verdicts, strict=True):
                if isinstance(verdict, Refusal):
                    question.refuse(place_, verdict)
                elif verdict.pairs:
                    question.pairs[place_] = verdict.pairs

    def _verdicts_one_by_one(self, question: _Question, names: list[str]) -> list[Verdict]:
        def judge(name: str) -> Verdict:
            node = self._fleet.node(name)
            return UNREGISTERED if node is None else decide(node, question.request, self.policy, question.left)

        if _names_uuids(question.request):
            return list(map(judge, names))
        shape = asked_shape(self._fleet, question.request, self.policy, question.left)
        return self._judged.verdicts(self._fleet, shape, names, judge)

    def _judge_own_node(self, own: Grant, question: _Question) -> None:
        state = self._fleet.without(own.node, {own.pod_uid})
        if state is None:
            return
        verdict = decide(state, question.request, self.policy, question.left)
        place_ = question.names.index(own.node)
        question.refusals.pop(own.node, None)
        question.fits[place_] = True
        if isinstance(verdict, Refusal):
            question.refuse(place_, verdict)
        else:
            question.pairs[place_] = verdict.pairs

    def _verdict(self, ask: VerdictKey) -> Verdicts:
        known = self._verdicts.recall(ask, lambda: Verdicts(self._live, ask))
        known.refresh()
        return known

    def _table(self, request: PodRequest) -> ShapeTable:
        """The scores of nodes by the policy of a request."""
        return self._table_of(self.policy.node_policy(request), self.policy.gpu_policy(request))

    def _table_of(self, node: str, gpu: tuple[GpuPolicy, ...]) -> ShapeTable:
        words = (node, _array_word(gpu))

        def make() -> ShapeTable:
            return ShapeTable(self._live.arrays, array_policy(*words, self._setting))

        return self._tables.recall(words, make)

    def _can_choose_from_arrays(self, node: NodeState, request: PodRequest, left: QuotaLimits) -> bool:
        """Whether the arrays have everything that the choice of a node's devices depends on."""
        words = self.policy.gpu_policy(request)
        return (
            len(words) == 1
            and words[0] in ARRAY_WORDS
            and shape_of(request) is not None
            and not self._depends_on_device(request, left)
            and node.kubelet is None
            and request.gpu_nic is None
            and all(state.device.replicas == 1 and not state.device.mig_kind for state in node.devices)
            and not any(state.usage.alike for state in node.devices)
            and not self._live.lists_mig_and_gpus_as_one_resource[self._live.refresh().rows[node.name]]
        )

    def _place_from_arrays(self, node: NodeState, request: PodRequest, left: QuotaLimits) -> Placement | Refusal:
        question = self._open_question(request, [node.name], left, None)
        if node.name in question.refusals:
            return question.refusals[node.name]
        gpus = self._table(request).gpus(largest_shape(request), int(question.rows[0]))
        return placement_of(node, request, DeviceAssignment((gpus,), ((None,) * len(gpus),)))

    def _preference(self, request: PodRequest, row: int) -> ArrayPreference | None:
        if not _array_word(self.policy.gpu_policy(request)):
            return None
        policy: ArrayPolicy = self._table(request).policy
        return ArrayPreference(self._live.arrays, row, policy, request)


def best_nodes(evaluation: Evaluation, most: int) -> Evaluation:
    """So many of the nodes that fit: the best, in their order, the first among equals."""
    if len(evaluation.fits) <= most:
        return evaluation
    kept = _highest_scores(evaluation.scores, most)
    names = list(map(evaluation.fits.__getitem__, kept.nonzero()[0].tolist()))
    return Evaluation(names, evaluation.scores[kept], evaluation.refusals)


def _highest_scores(scores: Floats, most: int) -> Bools:
    """Which of the scores are the highest; of those that are equal to the last one the first ones."""
    least = np.partition(scores, -most)[-most]
    kept: Bools = scores > least
    kept[(scores == least).nonzero()[0][: most - int(kept.sum())]] = True
    return kept


def _array_word(words: Sequence[GpuPolicy]) -> str:
    """The word of a chain that arrays know by themselves; empty where the chain is of words that order devices."""
    return next((str(word) for word in words if word in ARRAY_WORDS), "")


def _ask(question: _Question, devices: DeviceRequest, idle_only: bool) -> VerdictKey:
    request = question.request
    quota = _quota(devices, question.left) if len(request.containers) == 1 else Quota.ALL
    return VerdictKey(container_shape(devices, request), idle_only, quota, devices.uuids_allowed, devices.uuids_denied)


def _quota(devices: DeviceRequest, left: QuotaLimits) -> Quota:
    """How much of it the quota holds."""
    if left == UNLIMITED:
        return Quota.ALL
    # Of a device that is divided, who names no amounts has less than the whole (see `_depends_on_device`).
    one = Demand(devices.memory_mib or 0, 0 if devices.is_plain else devices.cores_percent)
    if not left.holds(one):
        return Quota.NOTHING
    if depends_on_combination(devices):  # first it must be known which devices are together
        return Quota.ALL
    whole = Demand(one.memory_mib * devices.count, one.cores_percent * devices.count)
    return Quota.ALL if left.holds(whole) else Quota.PART


def _is_single_size(request: PodRequest) -> bool:
    """Whether the request is one container that is a size, perhaps with uuids: arrays know all that it asks for."""
    return len(request.containers) == 1 and can_read_from_arrays(request.containers[0].devices)


def _names_uuids(request: PodRequest) -> bool:
    return any(c.devices.uuids_allowed or c.devices.uuids_denied for c in request.containers)
