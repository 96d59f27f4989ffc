"""Every change that docs/why.md lists, tried one by one on the objects, for one pod that waits (``p``)."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from tests.unit.scheduler.explained import cluster
from tests.unit.scheduler.explaining.applied import Raw, find, serve, tolerate, unalign
from tests.unit.scheduler.explaining.drawn import NAMES, TAINTS
from tests.unit.scheduler.explaining.listed import relisted

from purser.core.dialects import is_device_word
from purser.core.kubernetes.quantities import MIB, quantity_ceil, quantity_milli
from purser.core.names import CORDONED_GPUS_ANNOTATION, INVENTORY_ANNOTATION, KUBELET_ANNOTATION
from purser.core.vendors.catalogue import FAMILY_NAMES
from purser.scheduler.explaining import ChangeKind
from purser.scheduler.explaining.known import KnownCluster

_FEW = 64
"""Numbers that are all tried; of more, some."""

_SAMPLE = 8
_MOST_ENDS = 3
"""Pods of several nodes that end together."""

QUOTA_WORDS = ("limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores")
_SERVED = frozenset(FAMILY_NAMES)


def fits(objects: Sequence[Raw], name: str = "p") -> tuple[str, ...]:
    """The nodes that take the pod, decided anew from the objects."""
    known = KnownCluster(cluster(*objects))
    pod = known.pod("default", name)
    assert pod is not None
    return known.judge(pod).fits


class PodTried:
    """Pod ``p``, as its author writes it instead: all else is read once for all that is tried."""

    def __init__(self, objects: Sequence[Raw]) -> None:
        self._known = KnownCluster(cluster(*objects))
        self.pod = find(list(objects), "Pod", "p")

    def fits(self, pod: Raw) -> tuple[str, ...]:
        (read,) = cluster(pod).pods
        return self._known.judge(read).fits

    def fits_with(self, **spec: object) -> tuple[str, ...]:
        return self.fits({**self.pod, "spec": {**self.pod["spec"], **spec}})


def largest_amounts(tried: PodTried) -> Iterator[tuple[tuple[str, str], int]]:
    """By container and resource the largest lower amount that fits: of many numbers, the largest that was tried. CPUs
    in thousandths, memory in MiB."""
    spec = tried.pod["spec"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        name, asked = container["name"], container["resources"]["limits"]
        words = {word for word in asked if is_device_word(word, _SERVED)}
        axes = {resource: _whole(resource, amount) for resource, amount in asked.items()}
        if "nvidia.com/gpu" in words <= {"nvidia.com/gpu", "nvidia.com/gpucores"}:
            axes["nvidia.com/gpumem"] = 40961
        for resource, most in axes.items():
            fitting = (value for value in _lower(most) if tried.fits(_with_amount(tried.pod, name, resource, value)))
            if (found := next(fitting, None)) is not None:
                yield (name, resource), found


def _lower(most: int) -> Sequence[int]:
    if most <= _FEW:
        return range(most - 1, 0, -1)
    few = {1, *range(most // _SAMPLE, most, most // _SAMPLE), *(1 << at for at in range(0, most.bit_length() - 1, 2))}
    return sorted(few, reverse=True)


def _whole(resource: str, amount: str) -> int:
    if resource == "cpu":
        return quantity_milli(amount)
    return -(-quantity_ceil(amount) // MIB) if resource == "memory" else quantity_ceil(amount)


def _with_amount(pod: Raw, container: str, resource: str, value: int) -> Raw:
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    text = f"{value}m" if resource == "cpu" else f"{value}Mi" if resource == "memory" else str(value)
    for each in (*spec.get("initContainers", ()), *spec["containers"]):
        if each["name"] == container:
            for part in each["resources"].values():
                part[resource] = text
    return pod


def fitting_annotations(tried: PodTried) -> set[str]:
    """Those without one of which the pod fits."""
    meta = tried.pod["metadata"]
    fewer = {key: {k: v for k, v in meta["annotations"].items() if k != key} for key in meta["annotations"]}
    pods = {key: {**tried.pod, "metadata": {**meta, "annotations": left}} for key, left in fewer.items()}
    return {key for key, pod in pods.items() if tried.fits(pod)}


def fitting_selectors(tried: PodTried) -> list[dict[str, str]]:
    """One label less; where that does not do, none."""
    selector = tried.pod["spec"].get("nodeSelector", {})
    fewer = [{k: v for k, v in selector.items() if k != key} for key in selector]
    found = [each for each in fewer if tried.fits_with(nodeSelector=each)]
    return found or ([{}] if selector and tried.fits_with(nodeSelector={}) else [])


def fitting_affinities(tried: PodTried) -> set[str]:
    """The parts of the affinity without which the pod fits; its spread constraints likewise."""
    spec = tried.pod["spec"]
    affinity = spec.get("affinity", {})
    found = {p for p in affinity if tried.fits_with(affinity={k: v for k, v in affinity.items() if k != p})}
    if "topologySpreadConstraints" in spec and tried.fits_with(topologySpreadConstraints=[]):
        found.add("topologySpreadConstraints")
    return found


def fewest_taints(tried: PodTried) -> int | None:
    """How many have to be tolerated; None: it does not help."""
    for taints in (*([each] for each in TAINTS), TAINTS):
        changed = copy.deepcopy(tried.pod)
        tolerate(changed["spec"], taints)
        if tried.fits(changed):
            return len(taints)
    return None


def helps_quota(objects: list[Raw]) -> bool:
    """Whether the pod fits where the quotas allow as much as anyone could want."""
    names = [each["metadata"]["name"] for each in objects if each["kind"] == "ResourceQuota"]
    return bool(names and fits(with_quotas(objects, {name: dict.fromkeys(QUOTA_WORDS, "999999999") for name in names})))


def with_quotas(objects: list[Raw], raised: Mapping[str, Mapping[str, str]]) -> list[Raw]:
    changed = copy.deepcopy(objects)
    for name, hard in raised.items():
        there = find(changed, "ResourceQuota", name)["spec"]["hard"]
        there |= {word: amount for word, amount in hard.items() if word in there}
    return changed


def fewest_uncordoned(objects: list[Raw]) -> int | None:
    """How many GPUs of one node have to be uncordoned; None: it does not help."""
    cordoned = {
        each["metadata"]["name"]: each["metadata"]["annotations"][CORDONED_GPUS_ANNOTATION].split(",")
        for each in objects
        if CORDONED_GPUS_ANNOTATION in each["metadata"].get("annotations", {})
    }
    for many in range(1, max(map(len, cordoned.values()), default=0) + 1):
        for name, uuids in cordoned.items():
            for gone in combinations(uuids, many):
                changed = copy.deepcopy(objects)
                left = sorted(set(uuids) - set(gone))
                find(changed, "Node", name)["metadata"]["annotations"][CORDONED_GPUS_ANNOTATION] = ",".join(left)
                if fits(relisted(changed)):
                    return many
    return None


def fitting_nodes(objects: list[Raw], kind: ChangeKind) -> list[str]:
    """The nodes of which one has to be uncordoned, to have its agent back, or a kubelet without a topology manager
    policy."""
    found = []
    for name in NAMES:
        changed = copy.deepcopy(objects)
        node = find(changed, "Node", name)
        if kind is ChangeKind.UNCORDON_NODE:
            node["spec"]["unschedulable"] = False
        elif kind is ChangeKind.AGENT:
            if INVENTORY_ANNOTATION in node["metadata"]["annotations"]:
                serve(node)
        elif KUBELET_ANNOTATION in node["metadata"]["annotations"]:
            unalign(node)
        if fits(relisted(changed)):
            found.append(name)
    return found


def fewest_ends(objects: list[Raw]) -> int | None:
    """How many pods of one node have to end, or of several where there is a quota; None: it does not help."""
    may_end = [each for each in objects if each["kind"] == "Pod" and each["spec"]["nodeName"] and not _comes_back(each)]
    sets = [([each for each in may_end if each["spec"]["nodeName"] == name], len(may_end)) for name in NAMES]
    if any(each["kind"] == "ResourceQuota" for each in objects):
        sets.append((may_end, _MOST_ENDS))
    for many in range(1, len(may_end) + 1):
        for pods, most in sets:
            for gone in combinations(pods, many) if many <= most else ():
                if fits([each for each in objects if each not in gone]):
                    return many
    return None


def _comes_back(pod: Raw) -> bool:
    return bool(pod["metadata"].get("ownerReferences"))
