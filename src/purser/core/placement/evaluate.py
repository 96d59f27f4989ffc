"""One pod on many nodes: which it fits, how good each of them is, and why not the others.

Nodes are judged all at once, from the fleet as arrays (`verdicts`, `table`). What arrays do not tell is judged node by
node (`place`), only where the arrays leave it open, and nodes in equal state cost one verdict: pods with several
containers, devices on one NUMA node, and nodes whose kubelet may refuse what has room.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import TypeVar

import msgspec
import numpy as np

from purser.core.fleet import Fleet
from purser.core.fleet.arrays import Rows
from purser.core.fleet.live import LiveArrays
from purser.core.kubelet.pod import KubeletPod
from purser.core.model import DeviceRequest, GpuPolicy, Grant, PodRequest
from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.mix import Mix, MixSource
from purser.core.placement.place import Fit, Placement, decide, place
from purser.core.placement.policies import Policy as ArrayPolicy
from purser.core.placement.policies import Setting
from purser.core.placement.policies import policy as array_policy
from purser.core.placement.policy import DEFAULT_POLICY, Policy
from purser.core.placement.preference import Preference
from purser.core.placement.reasons import UNREGISTERED, Refusal
from purser.core.placement.shape import container_shape, lead_shape, shape_of, view
from purser.core.placement.table import ShapeTable
from purser.core.placement.verdicts import Ask, Bools, Quota, Verdicts
from purser.core.policy_words import ARRAY_WORDS
from purser.core.quota import UNLIMITED, Demand, Room

Verdict = Fit | Refusal

_MOST_ASKS = 128
"""Verdicts kept: each costs some 40 bytes a node."""

_MOST_TABLES = 8
"""Policies of which scores are kept: pods may weigh them in any way."""

K = TypeVar("K")
V = TypeVar("V")


class Evaluation(msgspec.Struct, frozen=True):
    """The verdict on each of the nodes asked about."""

    fits: list[str]
    """In the order in which they were asked about."""
    scores: Floats
    """Of those that fit, higher is better; minus infinity where the policy sees no room (of CPU, which is
    kube-scheduler's to judge)."""
    refusals: Mapping[str, Refusal]


class Evaluator:
    """Judges pods on one fleet. What was computed is kept, and renewed where the fleet changed."""

    def __init__(self, fleet: Fleet, policy: Policy = DEFAULT_POLICY, mix: MixSource | None = None) -> None:
        self.policy = policy
        self._fleet = fleet
        self._live = LiveArrays(fleet)
        self._setting = Setting(mix if mix is not None else Mix())
        self._tables: OrderedDict[tuple[str, str], ShapeTable] = OrderedDict()
        self._verdicts: OrderedDict[Ask, Verdicts] = OrderedDict()
        self._judged = VerdictCache()

    def refresh(self) -> None:
        """Take in what changed of the fleet: else the next decision does."""
        self._live.refresh()

    def evaluate(
        self, request: PodRequest, names: Sequence[str], left: Room = UNLIMITED, own: Grant | None = None
    ) -> Evaluation:
        """The verdict on every named node. ``left`` is what the namespace's quota leaves; ``own`` is what the pod holds
        already, which must not stand in its way.
        """
        asked = list(names)
        rows, fits, refusals = self._all(request, asked, left, own)
        scores = self._table(request).scores(lead_shape(request))[rows[fits]]
        return Evaluation(list(compress(asked, fits.tolist())), scores, refusals)

    def has_room(
        self, request: PodRequest, names: Sequence[str], left: Room = UNLIMITED, own: Grant | None = None
    ) -> bool:
        """Whether any of these nodes fits; see `evaluate`."""
        return bool(self._all(request, list(names), left, own)[1].any())

    def place(self, name: str, request: PodRequest, left: Room = UNLIMITED) -> Placement | Refusal:
        """Where the pod would go on a node: the devices that the policy likes best."""
        node = self._fleet.node(name)
        if node is None:
            return UNREGISTERED
        row = self._live.refresh().rows[name]
        chosen = place(node, request, self.policy, left, self._preference(request, row))
        if isinstance(chosen, Refusal):  # kubelet's choice is searched for from the devices that are preferred
            return place(node, request, self.policy, left)
        return chosen

    def why(self, request: PodRequest, placement: Placement) -> str:
        """What the policy says for a placement that is not yet on the book, in a sentence; empty: nothing."""
        shape, row = lead_shape(request), self._live.refresh().rows[placement.node]
        held = next(part for part in placement.containers if len(part.shares) == shape.gpu_count)
        gpus = tuple(place for _, place in self._live.places(share.uuid for share in held.shares))
        found = view(self._live.arrays, shape, np.array([row], np.intp))
        return (
            self._table(request).policy.why(found, gpus) if found.fits[0] and found.takes[list(gpus), 0].all() else ""
        )

    def _all(
        self, request: PodRequest, asked: list[str], left: Room, own: Grant | None
    ) -> "tuple[Rows, Bools, dict[str, Refusal]]":
        """(the row of each node, whether it fits, why not)."""
        self._live.refresh()
        rows = self._live.rows(asked)
        fits, refusals = self._by_arrays(request, asked, rows, left)
        self._judge(request, asked, self._open(request, rows, fits, left), left, fits, refusals)
        if own is not None and own.node in asked:
            self._judge_without(own, request, asked, left, fits, refusals)
        return rows, fits, refusals

    def _by_arrays(
        self, request: PodRequest, asked: list[str], rows: Rows, left: Room
    ) -> "tuple[Bools, dict[str, Refusal]]":
        """What the arrays say: container by container, each as if it were alone."""
        fits, refusals = rows >= 0, {}
        for name, is_here in zip(asked, fits.tolist(), strict=True) if not fits.all() else ():
            if not is_here:
                refusals[name] = UNREGISTERED
        idle_only = GpuPolicy.MUTEX in self.policy.gpu_policy(request)
        for container in () if _depends_on_device(request, left) else request.containers:
            verdicts = self._verdict(_ask(request, container.devices, idle_only, left))
            refused = (fits & ~verdicts.fits[rows]).nonzero()[0]
            if len(refused):
                names = map(asked.__getitem__, refused.tolist())
                refusals.update(zip(names, verdicts.refusals(rows[refused], container), strict=True))
                fits[refused] = False
        return fits, refusals

    def _open(self, request: PodRequest, rows: Rows, fits: Bools, left: Room) -> Rows:
        """The places of the nodes of which the arrays do not know enough."""
        is_sized = shape_of(request) is not None or _is_named_only(request)
        if not is_sized or _depends_on_device(request, left):
            return fits.nonzero()[0]
        if request.kubelet_pod is None:
            return np.zeros(0, np.intp)
        return (fits & self._live.is_looked_into[rows]).nonzero()[0]

    def _judge(
        self,
        request: PodRequest,
        asked: list[str],
        places: Rows,
        left: Room,
        fits: Bools,
        refusals: dict[str, Refusal],
    ) -> None:
        """Judge some nodes by all rules."""
        if not len(places):
            return
        names = [asked[place] for place in places.tolist()]
        for place_, name, verdict in zip(places.tolist(), names, self._each(request, names, left), strict=True):
            if isinstance(verdict, Refusal):
                fits[place_], refusals[name] = False, verdict

    def _each(self, request: PodRequest, names: list[str], left: Room) -> list[Verdict]:
        def judge(name: str) -> Verdict:
            node = self._fleet.node(name)
            return UNREGISTERED if node is None else decide(node, request, self.policy, left)

        if _names_uuids(request):
            return list(map(judge, names))
        return self._judged.each(self._fleet, _shape(self._fleet, request, self.policy, left), names, judge)

    def _judge_without(
        self,
        own: Grant,
        request: PodRequest,
        asked: list[str],
        left: Room,
        fits: Bools,
        refusals: dict[str, Refusal],
    ) -> None:
        state = self._fleet.without(own.node, {own.pod_uid})
        if state is None:
            return
        verdict = decide(state, request, self.policy, left)
        refusals.pop(own.node, None)
        fits[asked.index(own.node)] = isinstance(verdict, Fit)
        if isinstance(verdict, Refusal):
            refusals[own.node] = verdict

    def _verdict(self, ask: Ask) -> Verdicts:
        known = _recall(self._verdicts, ask, lambda: Verdicts(self._live, ask), _MOST_ASKS)
        known.refresh()
        return known

    def _table(self, request: PodRequest) -> ShapeTable:
        """The scores of nodes by the policy of a request."""
        words = (self.policy.node_policy(request), _array_word(self.policy.gpu_policy(request)))

        def make() -> ShapeTable:
            return ShapeTable(self._live.arrays, array_policy(*words, self._setting))

        return _recall(self._tables, words, make, _MOST_TABLES)

    def _preference(self, request: PodRequest, row: int) -> Preference | None:
        if not _array_word(self.policy.gpu_policy(request)):
            return None
        policy: ArrayPolicy = self._table(request).policy
        return Preference(self._live.arrays, row, policy, request)


class VerdictCache:
    """Verdicts by what is asked and by node class. Forgets the shapes that were not asked for the longest.

    A verdict depends on the node's class, on what the pod asks (not on who it is), on the policy and on the quota; so
    it may be remembered from one pod to the next.
    """

    MAX_SHAPES = 64
    """Distinct requests kept; clusters see few at a time, and a miss costs only the evaluation."""

    def __init__(self) -> None:
        self._by_shape: OrderedDict[object, dict[int | None, Verdict]] = OrderedDict()

    def each(self, fleet: Fleet, shape: object, names: Sequence[str], judge: Callable[[str], Verdict]) -> list[Verdict]:
        """The verdict on each of these nodes; each class that is not known is judged once."""
        classes = fleet.classes()
        verdicts = self._of(shape, classes)
        numbers = list(map(classes.get, names))
        examples = dict(zip(numbers, names, strict=True))
        for number in examples.keys() - verdicts.keys():
            verdicts[number] = judge(examples[number])
        return list(map(verdicts.__getitem__, numbers))

    def _of(self, shape: object, classes: Mapping[str, int]) -> dict[int | None, Verdict]:
        """Without those for states that no node has any more once these are many."""
        verdicts = _recall(self._by_shape, shape, dict[int | None, Verdict], self.MAX_SHAPES)
        if len(verdicts) > 2 * len(classes) + 1024:
            for number in verdicts.keys() - set(classes.values()):
                del verdicts[number]
        return verdicts


def _recall(known: "OrderedDict[K, V]", key: K, make: Callable[[], V], most: int) -> V:
    """What is known by a key, made where nothing is; what was not asked for the longest is forgotten."""
    if key not in known:
        known[key] = make()
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
    return known[key]


def _array_word(words: Sequence[GpuPolicy]) -> str:
    """The word of a chain that arrays know by themselves; empty where the chain is of words that order devices."""
    return next((str(word) for word in words if word in ARRAY_WORDS), "")


def _ask(request: PodRequest, devices: DeviceRequest, idle_only: bool, left: Room) -> Ask:
    quota = _quota(devices, left) if len(request.containers) == 1 else Quota.ALL
    return Ask(container_shape(devices, request), idle_only, quota, devices.uuids_allowed, devices.uuids_denied)


def _quota(devices: DeviceRequest, left: Room) -> Quota:
    """How much of it the quota holds."""
    one = Demand(devices.memory_mib or 0, min(devices.cores_percent, 100))
    if not left.holds(one):
        return Quota.NOTHING
    whole = Demand(one.memory_mib * devices.count, one.cores_percent * devices.count)
    return Quota.ALL if left.holds(whole) else Quota.PART


def _depends_on_device(request: PodRequest, left: Room) -> bool:
    """Whether it takes the devices themselves to know what the quota holds."""
    return left != UNLIMITED and any(container.devices.memory_percent for container in request.containers)


def _is_named_only(request: PodRequest) -> bool:
    """Whether the request is one container that is a size but for the uuids that it names."""
    if len(request.containers) != 1:
        return False
    return not (request.containers[0].devices.numa_bind or request.containers[0].devices.uuids_required)


def _names_uuids(request: PodRequest) -> bool:
    return any(c.devices.uuids_allowed or c.devices.uuids_denied for c in request.containers)


def _shape(fleet: Fleet, request: PodRequest, policy: Policy, left: Room) -> object:
    """All that a verdict depends on beside the node's state."""
    shape = (request.containers, policy.gpu_policy(request), request.weights, left)
    if not fleet.has_outlooks:
        return shape
    return (*shape, request.kubelet_pod and _kubelet_shape(request.kubelet_pod))


def _kubelet_shape(pod: KubeletPod) -> object:
    """All of a pod that kubelet decides by, but for who it is."""
    return (pod.qos, tuple((c.name, c.kind, *map(_sorted, (c.limits, c.requests))) for c in pod.containers))


def _sorted(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
