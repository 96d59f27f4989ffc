"""Ephemeral containers, which `kubectl debug` adds to pods that run: their checks and what their endpoint may change.
Pure. Source: ValidatePodEphemeralContainersUpdate and the pod registry's strategy in k8s.io/kubernetes."""

from collections.abc import Iterator

from .errors import Cause, Obj
from .jsonio import deep_copy
from .names import duplicate, forbidden

SUBRESOURCE = "ephemeralcontainers"
_KEY = "ephemeralContainers"
_FORBIDDEN_FIELDS = ("ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_FORBIDDEN_MESSAGE = "cannot be set for an Ephemeral Container"


def of(spec: Obj) -> list[Obj]:
    """Those of a pod's spec."""
    return list(spec.get(_KEY) or ())


def check(spec: Obj, path: str) -> Iterator[Cause]:
    """What is wrong with them beyond what is wrong with any container."""
    others = {each.get("name") for kind in ("initContainers", "containers") for each in spec.get(kind) or ()}
    seen = set(others)
    for index, container in enumerate(of(spec)):
        where = f"{path}.{_KEY}[{index}]"
        if (name := container.get("name", "")) in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)
        if (target := container.get("targetContainerName")) and target not in others:
            yield Cause("FieldValueNotFound", f"{where}.targetContainerName", f'Not found: "{target}"')
        yield from (
            forbidden(f"{where}.{field}", _FORBIDDEN_MESSAGE) for field in _FORBIDDEN_FIELDS if container.get(field)
        )
        for place, mount in enumerate(container.get("volumeMounts") or ()):
            given = (field for field in ("subPath", "subPathExpr") if mount.get(field))
            yield from (forbidden(f"{where}.volumeMounts[{place}].{field}", _FORBIDDEN_MESSAGE) for field in given)


def check_new(spec: Obj, path: str, why: str) -> Iterator[Cause]:
    """New pods and templates have none."""
    if of(spec):
        yield forbidden(f"{path}.{_KEY}", why)


def check_update(new: Obj, old: Obj) -> Iterator[Cause]:
    """Those that are there stay as they are; order counts for nothing."""
    after = {each.get("name"): each for each in of(new)}
    for before in of(old):
        name = before["name"]
        if name not in after:
            yield forbidden(f"spec.{_KEY}", f'existing ephemeral containers "{name}" may not be removed\n')
        elif after[name] != before:
            yield forbidden(f"spec.{_KEY}", f'existing ephemeral containers "{name}" may not be changed\n')


def keep_other_fields(new: Obj, old: Obj) -> None:
    """Of what is written to the pod's `ephemeralcontainers` only these are taken, in place."""
    containers = of(new.get("spec") or {})
    managers = new["metadata"].get("managedFields")
    new.update(deep_copy({key: value for key, value in old.items() if key != "metadata"}))
    new["metadata"] = deep_copy(old["metadata"]) | ({} if managers is None else {"managedFields": managers})
    new["spec"].pop(_KEY, None)
    if containers:
        new["spec"][_KEY] = containers
