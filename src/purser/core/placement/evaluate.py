"""One pod on many nodes: nodes in equal state cost one verdict.

A verdict depends on the node's class, on what the pod asks (not on who it is), on the policy and on the quota; so it
may also be remembered from one pod to the next. Requests that name devices by uuid are judged node by node.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from purser.core.fleet import Fleet
from purser.core.kubelet.pod import KubeletPod
from purser.core.model import PodRequest
from purser.core.placement.place import Fit, decide
from purser.core.placement.policy import DEFAULT_POLICY, Policy
from purser.core.placement.reasons import UNREGISTERED, Refusal
from purser.core.quota import UNLIMITED, Room

Verdict = Fit | Refusal


class Evaluation(msgspec.Struct, frozen=True):
    """The verdict on each of the nodes asked about."""

    fits: Mapping[str, Fit]
    refusals: Mapping[str, Refusal]
    node_policy: str
    """Which of those that fit is best."""


class VerdictCache:
    """Verdicts by what is asked and by node class. Forgets the shapes that were not asked for the longest."""

    MAX_SHAPES = 64
    """Distinct requests kept; clusters see few at a time, and a miss costs only the evaluation."""

    def __init__(self) -> None:
        self._by_shape: dict[object, dict[int | None, Verdict]] = {}

    def of(self, shape: object, classes: Mapping[str, int]) -> dict[int | None, Verdict]:
        """The verdicts for one shape, without those for states that no node has any more once these are many."""
        verdicts = self._by_shape.pop(shape, {})
        if len(verdicts) > 2 * len(classes) + 1024:
            live = frozenset(classes.values())
            verdicts = {number: verdict for number, verdict in verdicts.items() if number in live}
        self._by_shape[shape] = verdicts
        if len(self._by_shape) > self.MAX_SHAPES:
            del self._by_shape[next(iter(self._by_shape))]
        return verdicts


def evaluate(
    fleet: Fleet,
    request: PodRequest,
    node_names: Iterable[str],
    policy: Policy = DEFAULT_POLICY,
    left: Room = UNLIMITED,
    cache: VerdictCache | None = None,
) -> Evaluation:
    """The verdict on every named node, in the order of the names."""
    names = list(node_names)
    if _names_uuids(request):
        judged = [_judge(fleet, name, request, policy, left) for name in names]
    else:
        judged = _by_class(fleet, request, names, policy, left, cache or VerdictCache())
    fits = {name: verdict for name, verdict in zip(names, judged, strict=True) if isinstance(verdict, Fit)}
    refusals: dict[str, Refusal] = {}
    if len(fits) < len(names):
        refusals = {name: verdict for name, verdict in zip(names, judged, strict=True) if isinstance(verdict, Refusal)}
    return Evaluation(fits, refusals, policy.node_policy(request))


def _by_class(
    fleet: Fleet, request: PodRequest, names: Sequence[str], policy: Policy, left: Room, cache: VerdictCache
) -> list[Verdict]:
    """One verdict per name. Thousands of names come with every pod: what is done per name is left to C."""
    classes = fleet.classes()
    shape = _shape(request, policy, left)
    if fleet.has_outlooks:
        shape = (*shape, request.kubelet_pod and _kubelet_shape(request.kubelet_pod))
    verdicts = cache.of(shape, classes)
    numbers = list(map(classes.get, names))
    examples = dict(zip(numbers, names, strict=True))
    for number in examples.keys() - verdicts.keys():
        verdicts[number] = _judge(fleet, examples[number], request, policy, left)
    return list(map(verdicts.__getitem__, numbers))


def _judge(fleet: Fleet, name: str, request: PodRequest, policy: Policy, left: Room) -> Verdict:
    node = fleet.node(name)
    return UNREGISTERED if node is None else decide(node, request, policy, left)


def _names_uuids(request: PodRequest) -> bool:
    return any(c.devices.uuids_allowed or c.devices.uuids_denied for c in request.containers)


def _shape(request: PodRequest, policy: Policy, left: Room) -> tuple[object, ...]:
    """All that a verdict depends on beside the node's state, and beside what its kubelet makes of the pod."""
    return (request.containers, policy.gpu_policy(request), request.weights, left)


def _kubelet_shape(pod: KubeletPod) -> object:
    """All of a pod that kubelet decides by, but for who it is."""
    return (pod.qos, tuple((c.name, c.kind, *map(_sorted, (c.limits, c.requests))) for c in pod.containers))


def _sorted(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
