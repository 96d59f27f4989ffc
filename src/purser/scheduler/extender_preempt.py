"""Preemption: would the victims that kube-scheduler proposes free the right GPUs, and if not, whose going would?

kube-scheduler counts ``nvidia.com/gpu`` in its own dry run, which knows neither memory nor which card a share is on
(HAMi answers no preemption at all, so that priorities do not work there: HAMi#1878).
"""

from collections.abc import Collection, Sequence

from purser.core.fleet import Fleet
from purser.core.model import PodRequest
from purser.core.placement import Placement, Policy, place
from purser.core.quota import UNLIMITED, Room


def victims(
    fleet: Fleet,
    node: str,
    request: PodRequest,
    policy: Policy,
    proposed: Collection[str],
    others: Sequence[str],
    left: Room = UNLIMITED,
) -> list[str] | None:
    """The pod uids that must go from a node for the request to fit, None where it would not fit even then.

    ``proposed`` stay victims, since kube-scheduler needs what else they free. ``others`` may be added, those that are
    missed least first; of these only as many as needed are taken, and none that turns out not to be needed.
    """

    def fits(gone: Collection[str]) -> bool:
        state = fleet.without(node, gone)
        return state is not None and isinstance(place(state, request, policy, left), Placement)

    added: list[str] = []
    spare = [uid for uid in others if uid not in proposed]
    while not fits({*proposed, *added}):
        if not spare:
            return None
        added.append(spare.pop(0))
    for uid in reversed(added[:]):
        fewer = [other for other in added if other != uid]
        if fits({*proposed, *fewer}):
            added = fewer
    return [*proposed, *added]
