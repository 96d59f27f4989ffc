"""One node as its administrator could have it: GPUs or the node uncordoned, its agent back, another kubelet setting."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from purser.adapters.nodes import InventoryError, own_inventory, published_inventory
from purser.core.dialects import WORDS
from purser.core.explaining.filters import KubeletListing
from purser.core.explaining.reasons import FilterReason
from purser.core.kubelet.config import TopologyPolicy
from purser.core.kubelet.report import ReportError
from purser.core.kubelet.report import decode as decode_report
from purser.core.kubelet.report import encode as encode_report
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.core.kubernetes.taints import CORDON
from purser.core.mig.listing import ids_by_resource
from purser.core.model import Device
from purser.core.names import (
    CORDON_ANNOTATIONS,
    INVENTORY_ANNOTATION,
    KUBELET_ANNOTATION,
    MIG_STATE_LABEL,
    UNSERVED_REASONS,
)
from purser.core.node.amounts import AMOUNTS
from purser.core.node.cordons import cordoned_gpus, uncordon_annotations
from purser.core.node.listing import lists_zero
from purser.core.node.maintenance import cordoned_by, has_failed, maintenance_words, unfinished_upgrade
from purser.core.placement import Reason
from purser.core.wording import natural_sort_key
from purser.kube.objects import Node
from purser.scheduler.explaining.changes import ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.trial import ChangedNode, Trial

_MAX_NODES = 16
"""Nodes of which it is found how few of their GPUs have to be uncordoned, where one is not enough."""

Uuids = tuple[str, ...]


def uncordoned_gpus(trial: Trial) -> Iterator[Suggestion]:
    """One GPU, where one suffices anywhere; else as few of one node as do. Of equal ones those of the first node."""
    nodes = _nodes(trial, _candidates(trial))
    found = next(_first_gpu(trial, nodes), None) or min(
        _fewest_gpus(trial, nodes), key=lambda each: len(each.what), default=None
    )
    if found is not None:
        gpus, node = found
        what, verb = ("GPU", "is") if len(gpus) == 1 else ("GPUs", "are")
        text = f"{what} {', '.join(gpus)} on node {node.metadata.name} {verb} uncordoned"
        change = SuggestedChange(node=node.metadata.name, gpus=gpus)
        yield from trial.with_node(ChangeKind.UNCORDON_GPU, text, change, node)


def _candidates(trial: Trial) -> list[str]:
    """Where a cordon can be in the way: for Purser, whatever it says (of a node whose kubelet would reject the pod it
    says no more), or for kube-scheduler, since agents do not list what such GPUs have."""
    rejected = trial.refused.rejections.items()
    unlisted = [name for name, each in rejected if each.reason is FilterReason.RESOURCES and each.about in AMOUNTS]
    return [name for name in (*trial.refused.refusals, *unlisted) if _has_cordoned_gpus(trial, name)]


def _has_cordoned_gpus(trial: Trial, name: str) -> bool:
    node = trial.cluster.node_object(name)
    return node is not None and bool(_cordoned_uuids(node))


def _first_gpu(trial: Trial, nodes: Sequence[Node]) -> Iterator[ChangedNode[Uuids]]:
    """The first GPU of each node is tried at once, then the second."""
    for place in range(max((len(_cordoned_uuids(node)) for node in nodes), default=0)):
        ways = (_with_gpus(node, _cordoned_uuids(node)[place : place + 1]) for node in nodes)
        yield from trial.helpful_changes(ways)


def _fewest_gpus(trial: Trial, nodes: Sequence[Node]) -> Iterator[ChangedNode[Uuids]]:
    """For each node GPUs of which none can stay cordoned."""
    before = {node.metadata.name: node for node in nodes}
    ways = (_with_gpus(node, _cordoned_uuids(node)) for node in nodes)
    for every in list(islice(trial.helpful_changes(ways), _MAX_NODES)):
        node = before[every.node.metadata.name]
        found = every
        for uuid in reversed(every.what):
            fewer = _with_gpus(node, [each for each in found.what if each != uuid])
            if fewer is not None and next(trial.helpful_changes([fewer]), None) is not None:
                found = fewer
        yield found


def uncordoned_nodes(trial: Trial) -> Iterator[Suggestion]:
    """One node, the first by name."""
    names = [name for name, each in trial.refused.rejections.items() if each.reason is FilterReason.UNSCHEDULABLE]
    for name, node in islice(trial.helpful_changes(map(_uncordoned, _nodes(trial, names))), 1):
        meta = node.metadata
        cordoned_for = cordoned_by(meta.annotations, cordoned=True)
        work = maintenance_words(cordoned_for, "")
        text = f"node {name} is uncordoned"
        if work and has_failed(cordoned_for, unfinished_upgrade(meta.labels), meta.labels.get(MIG_STATE_LABEL, "")):
            text += f", which the operator does not do because the {work} failed"
        elif work:
            text += f", which the operator does after the {work}"
        yield from trial.with_node(ChangeKind.UNCORDON_NODE, text, SuggestedChange(node=name), node)


def running_agents(trial: Trial) -> Iterator[Suggestion]:
    """One node, the first by name, of those whose agent said that it stops, or of whose devices kubelet lists 0."""
    unlisted = [name for name, each in trial.refused.rejections.items() if each.listing is KubeletListing.ZERO]
    names = sorted({*unlisted, *trial.refused_for(Reason.NOT_HEALTHY)}, key=natural_sort_key)
    first, others = names[:_MAX_NODES], names[_MAX_NODES:]  # of thousands one is enough, and each costs
    found = (each for part in (first, others) for each in trial.helpful_changes(map(_served, _nodes(trial, part))))
    for name, node in islice(found, 1):
        text = f"Purser's agent runs on node {name} again"
        yield from trial.with_node(ChangeKind.AGENT, text, SuggestedChange(node=name), node)


def unaligned_kubelets(trial: Trial) -> Iterator[Suggestion]:
    """One node, the first by name."""
    if Reason.KUBELET_WOULD_REJECT not in trial.reasons:
        return
    names = trial.refused_for(Reason.KUBELET_WOULD_REJECT)
    for name, node in islice(trial.helpful_changes(map(_without_alignment, _nodes(trial, names))), 1):
        text = f"the kubelet on node {name} has topologyManagerPolicy: none"
        yield from trial.with_node(ChangeKind.KUBELET, text, SuggestedChange(node=name), node)


def _nodes(trial: Trial, names: Iterable[str]) -> list[Node]:
    return [node for name in names if (node := trial.cluster.node_object(name)) is not None]


def _cordoned_uuids(node: Node) -> Uuids:
    annotations = node.metadata.annotations
    return tuple(cordoned_gpus({key: annotations[key] for key in CORDON_ANNOTATIONS if key in annotations}))


def _with_gpus(node: Node, uuids: Collection[str]) -> ChangedNode[Uuids] | None:
    """With its agent's list of what they have; None: without any of them."""
    if not uuids:
        return None
    changed = _annotated(node, uncordon_annotations(node.metadata.annotations, tuple(uuids)))
    try:
        inventory = own_inventory(node)
    except InventoryError:
        inventory = None
    devices = () if inventory is None else inventory.devices
    back = [each for each in devices if each.uuid in uuids and each.healthy and each.takes_amounts]
    listed = {name: _with_more_devices(name, amount, back) for name, amount in node.status.allocatable.items()}
    status = msgspec.structs.replace(changed.status, allocatable=listed)
    return ChangedNode(tuple(uuids), msgspec.structs.replace(changed, status=status))


def _served(node: Node) -> ChangedNode[str] | None:
    """With what its agent would list of the devices that it last published; None: it is not missed."""
    try:
        inventory = published_inventory(node)
    except InventoryError:
        inventory = None
    if inventory is None:
        return None
    replace = msgspec.structs.replace
    back = [each for each in inventory.devices if each.unhealthy_reason in UNSERVED_REASONS]
    devices = tuple(
        replace(each, healthy=True, unhealthy_reason="") if each in back else each for each in inventory.devices
    )
    served = (ids_by_resource(each) for each in devices if each.healthy)
    slots = Counter(resource for found in served for resource, ids in found.items() for _ in ids)
    usable = [each for each in back if each.takes_amounts and each.uuid not in inventory.cordoned]
    listed = {
        name: str(slots[name])
        if name in slots and lists_zero(node.status.allocatable, name)
        else _with_more_devices(name, amount, usable)
        for name, amount in node.status.allocatable.items()
    }
    if not back and listed == node.status.allocatable:
        return None
    text = msgspec.json.encode(replace(inventory, devices=devices)).decode()
    changed = _annotated(node, {INVENTORY_ANNOTATION: text})
    return ChangedNode(node.metadata.name, replace(changed, status=replace(changed.status, allocatable=listed)))


def _with_more_devices(name: str, amount: QuantityLike, devices: Iterable[Device]) -> QuantityLike:
    """What a node lists of a resource, with what these devices have of it: of pods that hold it the agent may have
    listed some already, which counts twice here. Purser's own decision, which is asked after, counts exactly."""
    if name not in AMOUNTS:
        return amount
    word = WORDS[name]
    try:
        return str(quantity_ceil(amount) + sum(word.of_device(each) // word.unit_mib for each in devices))
    except QuantityError:
        return amount


def _uncordoned(node: Node) -> ChangedNode[str]:
    """Without the taint, too, that Kubernetes sets beside a cordon."""
    taints = tuple(each for each in node.spec.taints if each.key != CORDON.key)
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
    return ChangedNode(node.metadata.name, msgspec.structs.replace(node, spec=spec))


def _without_alignment(node: Node) -> ChangedNode[str] | None:
    """With the topology manager policy none; none where its agent reports no kubelet."""
    try:
        report = decode_report(node.metadata.annotations.get(KUBELET_ANNOTATION, ""))
    except ReportError:
        return None
    config = msgspec.structs.replace(report.config, topology_policy=TopologyPolicy.NONE)
    text = encode_report(msgspec.structs.replace(report, config=config))
    return ChangedNode(node.metadata.name, _annotated(node, {KUBELET_ANNOTATION: text}))


def _annotated(node: Node, changes: "dict[str, str | None] | dict[str, str]") -> Node:
    merged = {**node.metadata.annotations, **changes}
    kept = {key: value for key, value in merged.items() if value is not None}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=kept))
