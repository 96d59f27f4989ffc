"""The verdict of every node on one pod, and how it is said."""

from collections.abc import Mapping

import msgspec

from purser.core.decoding import brief
from purser.core.explaining.filters import FilterRejection
from purser.core.explaining.grouping import ReasonCount, describe_node, grouped_refusals, grouped_rejections
from purser.core.explaining.reasons import FilterReason
from purser.core.fleet import Fleet
from purser.core.model import GpuPolicy, PodRequest
from purser.core.placement import PolicySettings, Refusal


class Judgement(msgspec.Struct, frozen=True):
    """The verdict on each node, for one pod."""

    fits: tuple[str, ...] = ()
    objection: str = ""
    """Why it is placed nowhere, whatever the nodes; empty: nothing is in the way."""
    rejections: Mapping[str, FilterRejection] = {}
    """By node: kube-scheduler's own filters, of each the first that refuses."""
    later_rejections: tuple[tuple[str, FilterRejection], ...] = ()
    """Each with its node: those after the first, where these alone are asked for."""
    refusals: Mapping[str, Refusal] = {}
    """By node, of those that these let pass."""
    request: PodRequest | None = None
    """None where Purser is not asked about the pod."""
    quota: str = ""
    """The sentence on the namespace's quota, where that is in the way."""


def reason_counts(
    found: Judgement, fleet: Fleet, policy: PolicySettings, *, names_pods: bool = True, names_taints: bool = True
) -> tuple[ReasonCount, ...]:
    """A verdict in few lines, those of most nodes first; a cordon after another reason of as many nodes, since it ends
    without a change to the pod. ``policy``: of pods that name none; ``names_pods``, ``names_taints``: an operator
    reads it, who may list all pods, and nodes."""
    of_filters = (*found.rejections.items(), *found.later_rejections)
    reasons = grouped_rejections(of_filters, names_taints=names_taints)
    if found.request is not None and found.refusals:
        idle_only = GpuPolicy.MUTEX in policy.gpu_policy(found.request)
        reasons += grouped_refusals(
            found.refusals, found.request, fleet, idle_only=idle_only, quota=found.quota, names_pods=names_pods
        )
    return tuple(sorted(reasons, key=lambda each: (-each.nodes, each.reason == FilterReason.UNSCHEDULABLE)))


def words_by_node(found: Judgement) -> dict[str, str]:
    """Why each node that does not take a pod does not, as `words_of_node` says it."""
    return {name: words_of_node(found, name) for name in (*found.rejections, *found.refusals)}


def words_of_node(found: Judgement, name: str) -> str:
    """Why a node does not take a pod: of kube-scheduler's filters the first, else how many of its GPUs have which
    reason first; empty: it takes the pod."""
    if (rejection := found.rejections.get(name)) is not None:
        return describe_node(rejection)
    refusal = found.refusals.get(name)
    return "" if refusal is None else brief(refusal.message_to_operators)
