"""JSON patches (RFC 6902) that make a pod one which kubelet and the agent understand."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from purser.scheduler.webhook.review import Operation

Limits = Mapping[str, str]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def limit_patches(pod: Mapping[str, Any], added: Mapping[str, Limits]) -> list[Operation]:
    """Adds limits to containers, by name, or replaces them, and requests that would differ."""
    patches: list[Operation] = []
    for path, container in _containers(pod):
        if limits := added.get(container.get("name") or ""):
            patches += _add_limits(path, container, limits)
    return patches


def env_patches(pod: Mapping[str, Any], added: Mapping[str, Mapping[str, str]]) -> list[Operation]:
    """Adds variables to containers, by name."""
    patches: list[Operation] = []
    for path, container in _containers(pod):
        if env := added.get(container.get("name") or ""):
            variables = [*_as_list(container.get("env")), *({"name": name, "value": env[name]} for name in env)]
            patches.append({"op": "add", "path": f"{path}/env", "value": variables})
    return patches


def annotation_patches(pod: Mapping[str, Any], wanted: Mapping[str, str | None]) -> list[Operation]:
    """Gives annotations these values; None: takes it away."""
    there = _as_dict(_as_dict(pod.get("metadata")).get("annotations"))
    changed = {name: value for name, value in wanted.items() if there.get(name) != value}
    if changed and not there:
        return [{"op": "add", "path": "/metadata/annotations", "value": changed}]
    return [_annotation_patch(f"/metadata/annotations/{_pointer(name)}", value) for name, value in changed.items()]


def patched(pod: Mapping[str, Any], patch: Iterable[Operation]) -> dict[str, Any]:
    """The pod as the API server stores it after a patch of this module's kinds: values added and taken away."""
    found: dict[str, Any] = copy.deepcopy(dict(pod))
    for operation in patch:
        *parents, last = (each.replace("~1", "/").replace("~0", "~") for each in operation["path"].split("/")[1:])
        at: Any = found
        for step in parents:
            at = at[int(step)] if isinstance(at, list) else at[step]
        if operation["op"] == "remove":
            del at[last]
        else:
            at[last] = operation["value"]
    return found


def _annotation_patch(path: str, value: str | None) -> Operation:
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}


def node_patches(pod: Mapping[str, Any]) -> list[Operation]:
    """Has the scheduler place a pod that names its node, there and nowhere else: it gets a grant so.

    Who names a node is not asked about taints that keep pods from being scheduled, such as a cordon's.
    """
    spec = pod["spec"]
    if not spec.get("nodeName"):
        return []
    affinity = _as_dict(spec.get("affinity"))
    of_nodes = _as_dict(affinity.get("nodeAffinity"))
    required = _as_dict(of_nodes.get(_REQUIRED))
    there = {"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}
    terms = [_with_requirement(each, there) for each in _as_list(required.get("nodeSelectorTerms"))] or [
        {"matchFields": [there]}
    ]
    of_nodes = {**of_nodes, _REQUIRED: {**required, "nodeSelectorTerms": terms}}
    tolerations = [*_as_list(spec.get("tolerations")), {"operator": "Exists", "effect": "NoSchedule"}]
    return [
        {"op": "remove", "path": "/spec/nodeName"},
        {"op": "add", "path": "/spec/affinity", "value": {**affinity, "nodeAffinity": of_nodes}},
        {"op": "add", "path": "/spec/tolerations", "value": tolerations},
    ]


def _with_requirement(term: Any, requirement: Operation) -> Any:
    """A term with one more requirement; an empty one matches no node, and goes on doing so."""
    if not _as_dict(term):
        return term
    return {**term, "matchFields": [*_as_list(term.get("matchFields")), requirement]}


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in ("initContainers", "containers"):
        for position, container in enumerate(pod["spec"].get(field) or ()):
            if container:
                yield f"/spec/{field}/{position}", container


def _add_limits(path: str, container: Mapping[str, Any], limits: Limits) -> list[Operation]:
    resources = container.get("resources")
    if resources is None:
        return [{"op": "add", "path": f"{path}/resources", "value": {"limits": limits}}]
    requests = _as_dict(resources.get("requests"))
    differing = {name: value for name, value in limits.items() if requests.get(name, value) != value}
    if resources.get("limits") is None:
        added: list[Operation] = [{"op": "add", "path": f"{path}/resources/limits", "value": limits}]
    else:
        added = [_quantity(path, "limits", *each) for each in limits.items()]
    return [*added, *(_quantity(path, "requests", *each) for each in differing.items())]


def _quantity(path: str, part: str, resource: str, value: str) -> Operation:
    return {"op": "add", "path": f"{path}/resources/{part}/{_pointer(resource)}", "value": value}


def _pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
