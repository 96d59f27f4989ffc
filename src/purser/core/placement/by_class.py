"""Verdicts on nodes that must be looked at one by one: nodes in equal state cost one.

A verdict depends on the node's class, on what the pod asks (not on who it is), on the policy and on the quota; so it
may be remembered from one pod to the next.
"""

from collections.abc import Callable, Mapping, Sequence

from purser.core.fleet import Fleet
from purser.core.grant.quota import QuotaLimits
from purser.core.kubelet.pod import KubeletPod
from purser.core.model import PodRequest
from purser.core.placement.granted import DeviceAssignment
from purser.core.placement.reasons import Refusal
from purser.core.policy.settings import PolicySettings
from purser.recent import Recent

Verdict = DeviceAssignment | Refusal


class VerdictCache:
    """Verdicts by what is asked and by node class. Forgets the shapes that were not asked for the longest."""

    MAX_SHAPES = 64
    """Distinct requests kept; clusters see few at a time, and a miss costs only the evaluation."""

    def __init__(self) -> None:
        self._by_shape: Recent[object, dict[int | None, Verdict]] = Recent(self.MAX_SHAPES)

    def verdicts(
        self, fleet: Fleet, shape: object, names: Sequence[str], judge: Callable[[str], Verdict]
    ) -> list[Verdict]:
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
        verdicts = self._by_shape.recall(shape, dict[int | None, Verdict])
        if len(verdicts) > 2 * len(classes) + 1024:
            for number in verdicts.keys() - set(classes.values()):
                del verdicts[number]
        return verdicts


def asked_shape(fleet: Fleet, request: PodRequest, policy: PolicySettings, left: QuotaLimits) -> object:
    """All that a verdict depends on beside the node's state."""
    shape = (request.containers, policy.gpu_policy(request), request.weights, left, request.gpu_nic)
    if not fleet.has_kubelets:
        return shape
    return (*shape, request.kubelet_pod and _kubelet_shape(request.kubelet_pod))


def _kubelet_shape(pod: KubeletPod) -> object:
    """All of a pod that kubelet decides by, but for who it is."""
    return (pod.qos, tuple((c.name, c.kind, *map(_sorted, (c.limits, c.requests))) for c in pod.containers))


def _sorted(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
