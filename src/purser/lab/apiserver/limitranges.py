"""What a LimitRange does to a new pod: defaults for its containers, and bounds for them and for the pod. Pure.

Limits of PersistentVolumeClaims are not enforced. Source of the rules and of the sentences: the plugin LimitRanger,
k8s.io/kubernetes, plugin/pkg/admission/limitranger.
"""

from collections.abc import Callable, Iterator

from . import amounts, quantity
from .amounts import Amounts
from .errors import Obj

ANNOTATION = "kubernetes.io/limit-ranger"


def complete(limit_range: Obj, pod: Obj) -> None:
    """Set the requests and limits that containers leave open, in place; an annotation of the pod says which."""
    defaults: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for item in _items(limit_range, "Container"):
        defaults["requests"] |= item.get("defaultRequest") or {}
        defaults["limits"] |= item.get("default") or {}
    spec = pod["spec"]
    named = [("container", each) for each in spec.get("containers") or ()]
    named += [("init container", each) for each in spec.get("initContainers") or ()]
    if done := [text for what, container in named for text in _complete(container, what, defaults)]:
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**annotations, ANNOTATION: f"LimitRanger plugin set: {'; '.join(done)}"}


def _complete(container: Obj, what: str, defaults: dict[str, dict[str, str]]) -> Iterator[str]:
    for kind, word in (("requests", "request"), ("limits", "limit")):
        own = amounts.of_container(container, kind)
        if added := {name: amount for name, amount in defaults[kind].items() if name not in own}:
            container["resources"] = {**(container.get("resources") or {}), kind: {**own, **added}}
            yield f"{', '.join(sorted(added))} {word} for {what} {container.get('name', '')}"


def violation(limit_range: Obj, pod: Obj) -> str:
    """Every bound that a pod does not keep, as the plugin says it; empty where it keeps all."""
    spec = pod["spec"]
    found: list[str] = []
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        found += _find_violations(limit_range, "Container", *(amounts.of_container(container, kind) for kind in _KINDS))
    found += _find_violations(limit_range, "Pod", *(amounts.of_pod(spec, kind) for kind in _KINDS))
    found = list(dict.fromkeys(found))
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]" if found else ""


_KINDS = ("requests", "limits")


def _items(limit_range: Obj, kind: str) -> list[Obj]:
    return [item for item in (limit_range.get("spec") or {}).get("limits") or () if item.get("type") == kind]


def _find_violations(limit_range: Obj, of: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for item in _items(limit_range, of):
        for key, check in _BOUNDS.items():
            for name, bound in sorted((item.get(key) or {}).items()):
                if why := check(f"{name} usage per {of} is {bound}", bound, requests.get(name), limits.get(name)):
                    yield why if key != _RATIO else f"{name} max limit to request ratio per {of} is {bound}, but {why}"


def _check_min(bound_text: str, bound: str, request: str | None, limit: str | None) -> str:
    said = f"minimum {bound_text}"
    if request is None:
        return f"{said}.  No request is specified"
    if amounts.exceeds(bound, request):
        return f"{said}, but request is {request}"
    return f"{said}, but limit is {limit}" if limit is not None and amounts.exceeds(bound, limit) else ""


def _check_max(bound_text: str, bound: str, request: str | None, limit: str | None) -> str:
    said = f"maximum {bound_text}"
    if limit is None:
        return f"{said}.  No limit is specified"
    if amounts.exceeds(limit, bound):
        return f"{said}, but limit is {limit}"
    return f"{said}, but request is {request}" if request is not None and amounts.exceeds(request, bound) else ""


def _check_ratio(_: str, bound: str, request: str | None, limit: str | None) -> str:
    asked, allowed = (quantity.parse(amount or "0") for amount in (request, limit))
    if not asked:
        return "no request is specified or request is 0"
    if not allowed:
        return "no limit is specified or limit is 0"
    return f"provided ratio is {allowed / asked:.6f}" if allowed / asked > quantity.parse(bound) else ""


_RATIO = "maxLimitRequestRatio"
_BOUNDS: dict[str, Callable[[str, str, str | None, str | None], str]] = {
    "min": _check_min,
    "max": _check_max,
    _RATIO: _check_ratio,
}
