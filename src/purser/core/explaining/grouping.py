"""Why no node takes a pod, as few lines: equal reasons counted together, those of most nodes first."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from purser.core.explaining.filters import FilterRejection, KubeletListing
from purser.core.explaining.reasons import FilterReason
from purser.core.fleet import Fleet
from purser.core.kubernetes.quantities import MIB
from purser.core.model import PodRequest
from purser.core.placement import Reason, Refusal, clauses
from purser.core.wording import counted, some

EXAMPLES = 3
"""Nodes that are named for each reason."""

KUBE_SCHEDULER, PURSER = "kube-scheduler", "Purser"
"""Who refuses."""
_MIB_RESOURCES = ("memory", "ephemeral-storage")


class ReasonCount(msgspec.Struct, frozen=True):
    """One reason, and for how much it holds."""

    by: str
    """`KUBE_SCHEDULER` or `PURSER`."""
    reason: str
    """The word: see docs/reasons.md."""
    nodes: int
    gpus: int
    """0: it is about nodes as a whole."""
    text: str
    examples: tuple[str, ...] = ()
    """Some of the nodes."""


def grouped_rejections(
    rejections: Iterable[tuple[str, FilterRejection]], *, names_taints: bool = True
) -> list[ReasonCount]:
    """Of kube-scheduler's filters, each with its node. ``names_taints``: an operator reads it. kube-scheduler itself
    names none (1.37, ``tainttoleration``)."""
    by_key: dict[tuple[FilterReason, str, KubeletListing, tuple[str, ...]], dict[str, FilterRejection]] = {}
    for node, each in rejections:
        about = "" if each.reason is FilterReason.TAINT and not names_taints else each.about
        by_key.setdefault((each.reason, about, each.listing, each.instead), {})[node] = each
    found = [
        ReasonCount(
            KUBE_SCHEDULER,
            str(reason),
            len(by_node),
            0,
            _text(reason, about, [*by_node.values()]),
            tuple(sorted(by_node)[:EXAMPLES]),
        )
        for (reason, about, *_), by_node in by_key.items()
    ]
    # By nodes' names, and not by the text: what is first may not depend on the names of labels in it.
    return sorted(found, key=lambda each: (-each.nodes, each.reason, each.examples, each.text))


def grouped_refusals(
    refusals: Mapping[str, Refusal],
    request: PodRequest,
    fleet: Fleet,
    *,
    idle_only: bool,
    quota: str = "",
    names_pods: bool = True,
) -> list[ReasonCount]:
    """Of Purser's decision, by node. ``idle_only``: the pod's policy takes only unused GPUs; ``quota``: the sentence on
    the namespace's quota, empty: there is none; ``names_pods``: an operator reads it, so that pods of any namespace are
    named."""
    nodes: dict[Reason, list[str]] = {}
    for name, refusal in refusals.items():
        for reason, _ in refusal.counts:
            nodes.setdefault(reason, []).append(name)
    return [
        ReasonCount(
            PURSER,
            str(each.reason),
            each.nodes,
            each.devices,
            f"{each.text} ({quota})" if quota and each.reason is Reason.QUOTA_NOT_FIT else each.text,
            tuple(sorted(nodes[each.reason])[:EXAMPLES]),
        )
        for each in clauses(refusals, request, fleet, idle_only=idle_only, names_pods=names_pods)
    ]


def describe_node(found: FilterRejection) -> str:
    """What is said of one node by itself."""
    return f"{found.reason}: {_text(found.reason, found.about, [found])}"


def describe_filter(reason: FilterReason) -> str:
    """All that is said of nodes for one reason, with names and numbers made up: what the reference lists beside it."""
    return _text(reason, "...", [FilterRejection(reason, "...", 2, 1)] * 2).removeprefix("2 nodes ")


def _text(reason: FilterReason, about: str, found: Sequence[FilterRejection]) -> str:
    lead = counted(len(found), "node")
    one = len(found) == 1
    match reason:
        case FilterReason.UNSCHEDULABLE:
            return f"{lead} {'is' if one else 'are'} cordoned"
        case FilterReason.TAINT if not about:
            return f"{lead} {'has a taint' if one else 'have taints'} that the pod does not tolerate"
        case FilterReason.TAINT:
            return f"{lead} {'has' if one else 'have'} taint {about}, which the pod does not tolerate"
        case FilterReason.SELECTOR:
            return f"{lead} {'lacks' if one else 'lack'} {about}, which the pod's node selector requires"
        case FilterReason.AFFINITY:
            return f"{lead} {'does' if one else 'do'} not meet the pod's node affinity: {about}"
        case FilterReason.PORTS:
            return f"{lead} {'has' if one else 'have'} host port {about} in use"
        case FilterReason.VOLUME:
            return f"{lead} cannot use PersistentVolume {about} because of its node affinity"
        case FilterReason.RESOURCE_CLAIM:
            return f"{lead} cannot use the devices allocated to ResourceClaim {about}"
        case FilterReason.SPREAD:
            return f"{lead} would violate the pod's topology spread constraint on {about}"
        case FilterReason.POD_AFFINITY:
            has = "has" if one else "have"
            return f"{lead} {has} none of the pods that the pod's affinity requires in the same {about}"
        case FilterReason.POD_ANTI_AFFINITY:
            return f"{lead} {'is' if one else 'are'} excluded by pod anti-affinity on {about}"
        case FilterReason.PODS:
            return f"{lead} {'has' if one else 'have'} the maximum number of pods"
        case FilterReason.NOT_ASKED:
            pronoun = "it" if one else "them"
            return (
                f"{lead} {'was' if one else 'were'} not considered: kube-scheduler's other filters rejected {pronoun}"
            )
        case FilterReason.RESOURCES if found[0].listing is not KubeletListing.SOME:
            has = "has" if one else "have"
            others = f", but {has} {some(found[0].instead)}" if found[0].instead else ""
            if found[0].listing is KubeletListing.ABSENT:
                return f"{lead} {has} no {about} at all{others}"
            if others:
                return f"{lead} {'lists' if one else 'list'} 0 {about}{others}"
            none = "its device plugin is not running there, or offers no healthy device"
            return f"{lead} {'lists' if one else 'list'} 0 {about} ({none})"
        case FilterReason.RESOURCES:
            asked, most = max(each.asked for each in found), max(each.free for each in found)
            return f"{lead} {'has' if one else 'have'} {_shortage(about, asked, most)}"


def _shortage(resource: str, asked: int, most: int) -> str:
    amounts = f"{_amount(resource, asked)} {{}} free (most: {_amount(resource, most)})"
    if resource == "cpu":
        is_counted = asked > 1000 and not asked % 1000
        return f"fewer than {amounts.format('CPUs')}" if is_counted else f"less than {amounts.format('CPU')}"
    if resource in _MIB_RESOURCES:
        return f"less than {amounts.format(f'of {resource}')}"
    return f"no {resource} free" if asked == 1 and not most else f"fewer than {amounts.format(resource)}"


def _amount(resource: str, amount: int) -> str:
    """As people write it: CPUs in thousandths only where they are no whole number, memory in MiB."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return f"{amount // MIB} MiB" if resource in _MIB_RESOURCES else str(amount)
