"""Pods as their authors could have written them instead."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from purser.core.kubernetes.quantities import QuantityLike
from purser.core.kubernetes.taints import PodToleration, Taint
from purser.kube.objects import Container, Pod

_REQUIRED_FIELD = "requiredDuringSchedulingIgnoredDuringExecution"


def containers(pod: Pod) -> Iterator[Container]:
    """In kubelet's order."""
    yield from (*pod.spec.init_containers, *pod.spec.containers)


def with_amount(pod: Pod, container: str, resource: str, amount: QuantityLike) -> Pod:
    """One container asks for so much of a resource, as limit and request where it had either; as limit where it had
    none."""

    def changed(each: Container) -> Container:
        if each.name != container:
            return each
        asked = each.resources
        parts = {
            part: {**amounts, resource: amount}
            for part, amounts in (("limits", asked.limits), ("requests", asked.requests))
            if resource in amounts or (part == "limits" and resource not in asked.requests)
        }
        return msgspec.structs.replace(each, resources=msgspec.structs.replace(asked, **parts))

    return _with_spec(
        pod,
        containers=tuple(map(changed, pod.spec.containers)),
        init_containers=tuple(map(changed, pod.spec.init_containers)),
    )


def without_annotation(pod: Pod, key: str) -> Pod:
    """Without one annotation."""
    left = {name: value for name, value in pod.metadata.annotations.items() if name != key}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=left))


def with_node_selector(pod: Pod, selector: Mapping[str, str]) -> Pod:
    """With another node selector."""
    return _with_spec(pod, node_selector=dict(selector))


def without_required_affinity(pod: Pod, kind: str) -> Pod:
    """Without what one part of its affinity requires: ``nodeAffinity``, ``podAffinity`` or ``podAntiAffinity``; the
    same pod where it requires nothing."""
    affinity = pod.spec.affinity
    part = affinity.get(kind) if isinstance(affinity, dict) else None
    if not isinstance(affinity, dict) or not isinstance(part, dict) or not part.get(_REQUIRED_FIELD):
        return pod
    left = {key: value for key, value in part.items() if key != _REQUIRED_FIELD}
    return _with_spec(pod, affinity={**affinity, kind: left})


def without_spread(pod: Pod) -> Pod:
    """Without topology spread constraints."""
    return _with_spec(pod, topology_spread_constraints=None)


def with_tolerations(pod: Pod, taints: tuple[Taint, ...]) -> Pod:
    """With a toleration of each of these taints and of no other."""
    added = (PodToleration(each.key, "Equal", each.value, each.effect) for each in taints)
    return _with_spec(pod, tolerations=(*pod.spec.tolerations, *added))


def _with_spec(pod: Pod, **fields: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))
