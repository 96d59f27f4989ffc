"""What else its author could have written in the pod: one annotation less, one part of what it requires of nodes, or
taints that it tolerates."""

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from purser.core.dialects import policies, selectors
from purser.core.kubernetes.taints import Taint, untolerated_taints
from purser.core.names import ENFORCEMENT_ANNOTATION, GPU_NIC_ANNOTATION, GPU_POLICY_ANNOTATION
from purser.core.vendors.catalogue import FAMILIES
from purser.core.wording import some
from purser.kube.objects import Pod
from purser.kube.pods import controller_of
from purser.kube.workloads import DAEMON_SETS
from purser.scheduler.explaining.changes import ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.edits import (
    with_node_selector,
    with_tolerations,
    without_annotation,
    without_required_affinity,
    without_spread,
)
from purser.scheduler.explaining.trial import PodTrial, Trial

_OF_KUBERNETES = "node.kubernetes.io/"

_MAX_TAINTS = 16
"""Combinations of taints that are tried."""

_OF_FAMILIES = dict.fromkeys(name for family in FAMILIES for name in family.pod_annotations)
_NARROWING_ANNOTATIONS = (
    selectors.USE_GPUTYPE,
    selectors.NOUSE_GPUTYPE,
    selectors.USE_GPUUUID,
    selectors.NOUSE_GPUUUID,
    selectors.VOLCANO_USE_GPUUUID,
    selectors.VOLCANO_NOUSE_GPUUUID,
    selectors.NUMA_BIND,
    selectors.VGPU_MODE,
    selectors.VOLCANO_VGPU_MODE,
    selectors.MIG_PREFERENCE,
    GPU_POLICY_ANNOTATION,
    policies.HAMI_GPU_POLICY,
    GPU_NIC_ANNOTATION,
    ENFORCEMENT_ANNOTATION,
    *_OF_FAMILIES,
)
"""Annotations by which a pod asks for some GPUs and not for others."""

_AFFINITIES = (ChangeKind.AFFINITY, ChangeKind.POD_AFFINITY, ChangeKind.POD_ANTI_AFFINITY)


def removable_annotations(trial: PodTrial) -> Iterator[Suggestion | None]:
    """Each annotation that alone is in the way; None for one that is not."""
    for key in _NARROWING_ANNOTATIONS:
        if key in trial.pod.metadata.annotations:
            text = f"the pod does not have annotation {key}"
            changed = without_annotation(trial.pod, key)
            change = SuggestedChange(annotation=key)
            yield next(trial.suggest_if_it_fits(ChangeKind.ANNOTATION, text, change, changed), None)


def node_selectors(trial: Trial) -> Iterator[Suggestion]:
    """Each label that alone is in the way; where none is, no node selector at all."""
    selector = trial.pod.spec.node_selector
    found = False
    for key in sorted(selector):
        left = {name: value for name, value in selector.items() if name != key}
        text = f"the pod's node selector does not have {key}={selector[key]}"
        changed = with_node_selector(trial.pod, left)
        for each in trial.suggest_if_it_fits(
            ChangeKind.NODE_SELECTOR, text, SuggestedChange(node_selector=left), changed
        ):
            found = True
            yield _with_labels(trial, each, key)
    if not found and len(selector) > 1:
        yield from trial.suggest_if_it_fits(
            ChangeKind.NODE_SELECTOR,
            "the pod has no node selector",
            SuggestedChange(node_selector={}),
            with_node_selector(trial.pod, {}),
        )


def _with_labels(trial: Trial, found: Suggestion, key: str) -> Suggestion:
    values = {trial.cluster.nodes[name].labels.get(key) for name in found.examples}
    there = sorted(value for value in values if value)
    return msgspec.structs.replace(found, text=f"{found.text} (available: {key}={some(there)})") if there else found


def affinities(trial: Trial) -> Iterator[Suggestion]:
    """Without what one part of its affinity requires; without its spread constraints. A DaemonSet's controller has
    written the node affinity of its pods: it names the one node that each is for."""
    owner = controller_of(trial.pod)
    is_of_daemon_set = owner is not None and owner.kind == DAEMON_SETS.kind
    for kind in _AFFINITIES:
        if is_of_daemon_set and kind is ChangeKind.AFFINITY:
            continue
        changed = without_required_affinity(trial.pod, kind)
        if changed is not trial.pod:
            yield from trial.suggest_if_it_fits(kind, f"the pod has no required {kind}", SuggestedChange(), changed)
    if trial.pod.spec.topology_spread_constraints:
        text = "the pod has no topologySpreadConstraints"
        yield from trial.suggest_if_it_fits(ChangeKind.SPREAD, text, SuggestedChange(), without_spread(trial.pod))


def tolerations(trial: Trial) -> Iterator[Suggestion]:
    """The fewest taints that one node has and that have to be tolerated; then the first by name."""
    nodes = trial.cluster.nodes
    taints = tuple(
        dict.fromkeys(taint for node in nodes.values() for taint in _tolerable_taints(trial.pod, node.taints))
    )
    if not taints:
        return
    fits = trial.fits(with_tolerations(trial.pod, taints))
    needed = {_tolerable_taints(trial.pod, nodes[name].taints) for name in fits}
    ordered = sorted(needed, key=lambda each: (len(each), [str(taint) for taint in each]))
    found = (each for fewest in ordered[:_MAX_TAINTS] for each in _suggest_tolerations(trial, fewest))
    yield from islice(found, 1)


def _suggest_tolerations(trial: Trial, taints: tuple[Taint, ...]) -> Iterator[Suggestion]:
    text = f"the pod tolerates {' and '.join(map(str, taints))}"
    change = SuggestedChange(tolerations=taints)
    yield from trial.suggest_if_it_fits(ChangeKind.TOLERATIONS, text, change, with_tolerations(trial.pod, taints))


def _tolerable_taints(pod: Pod, taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Not those by which Kubernetes itself keeps pods from nodes that are not ready, or cordoned."""
    found = untolerated_taints(taints, pod.spec.tolerations)
    return tuple(sorted((each for each in found if not each.key.startswith(_OF_KUBERNETES)), key=str))
