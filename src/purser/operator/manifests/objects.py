"""Owned objects: their kinds; what is missing, changed or drifted and has to be applied; what is no longer wanted.

An object has drifted where it is not any more what was applied. Fields that are wanted count, and what is added in
`WHOLE` places. All else that others add stays theirs."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from purser.core.wording import some
from purser.kube.resources import untyped_resource
from purser.operator.model import Adopt, AppliedObject, Apply, Delete, ObjectKey, Raw, RenderedManifest, Snapshot
from purser.operator.names import APPLIED_HASH_ANNOTATION, KIND

CONFIG_MAPS = untyped_resource("", "v1", "configmaps", "ConfigMap")
RUNTIME_CLASSES = untyped_resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
SERVICE_MONITORS = untyped_resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")

OWNED_KINDS = (
    untyped_resource("", "v1", "serviceaccounts", "ServiceAccount"),
    untyped_resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    untyped_resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    untyped_resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    untyped_resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    CONFIG_MAPS,
    RUNTIME_CLASSES,
    untyped_resource("", "v1", "services", "Service"),
    untyped_resource("apps", "v1", "daemonsets", "DaemonSet"),
)
"""Those that every API server since 1.20 serves.

A Namespace is not among them on purpose: what is owned is removed when it is no longer wanted.
"""

MONITORS = (SERVICE_MONITORS, untyped_resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule"))
"""Those of the Prometheus operator, where its definitions are installed."""


# --- what to apply and to remove


_ORDER = {resource.kind: place for place, resource in enumerate((*OWNED_KINDS, *MONITORS))}


def object_actions(
    snapshot: Snapshot, rendered: Iterable[RenderedManifest], keep: Collection[ObjectKey] = ()
) -> tuple[tuple[Apply | Adopt, ...], tuple[Delete, ...]]:
    """What to apply and what to remove, in order. ``keep``: not rendered, but still needed as it is. Objects of others
    (`Snapshot.foreign`) are neither applied nor removed."""
    manifests = [each.object for each in rendered]
    wanted = {key: obj for obj in manifests if (key := ObjectKey.of(obj)) not in snapshot.foreign}
    kept = [key for key in snapshot.objects if key not in wanted and key in keep]
    unwanted = [
        key for key in snapshot.objects if key not in wanted and key not in keep and key not in snapshot.foreign
    ]
    adoptions = _adoptions(snapshot, kept, manifests[0]["metadata"]["ownerReferences"][0]) if manifests else ()
    return (*_applies(snapshot, wanted), *adoptions), tuple(removals(snapshot, unwanted, "no longer wanted"))


def _adoptions(snapshot: Snapshot, keys: Iterable[ObjectKey], owner: Raw) -> Iterator[Adopt]:
    """What is kept as it is must not go with the policy that it came from."""
    for key in sorted(keys):
        metadata = snapshot.objects[key]["metadata"]
        policies = [each.get("uid") for each in metadata.get("ownerReferences") or () if each.get("kind") == KIND]
        if policies != [owner["uid"]] and not metadata.get("deletionTimestamp"):
            yield Adopt(key, str(metadata.get("uid", "")), owner)


def removals(snapshot: Snapshot, keys: Iterable[ObjectKey], why: str) -> Iterator[Delete]:
    """Remove live objects, except those that go already."""
    for key in sorted(keys):
        metadata = snapshot.objects[key]["metadata"]
        if not metadata.get("deletionTimestamp"):
            yield Delete(key, str(metadata.get("uid", "")), why)


def _applies(snapshot: Snapshot, wanted: dict[ObjectKey, Raw]) -> Iterator[Apply]:
    for key in sorted(wanted, key=_place):
        why = apply_reason(snapshot.objects.get(key), wanted[key], snapshot.settled.get(key))
        if why:
            yield Apply(wanted[key], why)


def _place(key: ObjectKey) -> tuple[int, ObjectKey]:
    return _ORDER[key.kind], key


# --- drift


LIST_KEYS = ("mountPath", "containerPort", "uid", "name", "key")
"""Fields that identify items of a list, if all of its items have one and no two are equal. A mount's name is not unique
where a volume is mounted twice, therefore its path comes first."""

_LISTS = (list, tuple)
_POD = "DaemonSet.spec.template.spec"
_CONTAINERS = (f"{_POD}.containers", f"{_POD}.initContainers")

_OF_CONTAINERS = ("command", "args", "env", "envFrom", "ports", "volumeMounts")

WHOLE = frozenset(
    {
        f"{_POD}.nodeSelector",
        *_CONTAINERS,
        *(f"{each}[].{field}" for each in _CONTAINERS for field in _OF_CONTAINERS),
        "ClusterRoleBinding.subjects",
        "ConfigMap.binaryData",
        "ConfigMap.data",
        "RoleBinding.subjects",
        "Service.spec.ports",
        "Service.spec.selector",
    }
)
"""Places, by kind and fields, that are the operator's alone: what is added there decides where an operand runs, what
runs in it and what it reaches, where it is reached, and who has its rights. An item whose key was changed counts as
added: an apply puts the right one beside it. No server adds an item or a key there."""


def apply_reason(live: Raw | None, desired: Raw, settled: AppliedObject | None) -> str:
    """Why an object has to be applied; empty: it need not be.

    A server may spell values its own way. What it made of the same object before is not drift: that costs one apply
    per object and process at the most.
    """
    if live is None:
        return "created"
    if applied_hash(live) != applied_hash(desired):
        return "changed"
    paths = difference(live, desired)
    if not paths or (settled is not None and _is_unchanged(live, desired, settled)):
        return ""
    return f"drift: {some(paths)}"


def _is_unchanged(live: Raw, desired: Raw, settled: AppliedObject) -> bool:
    same = settled.wanted_hash == applied_hash(desired)
    return same and bool(projection(settled.came_out, desired) == projection(live, desired))


def applied_hash(obj: Raw) -> str:
    """What it was applied as; empty: not by Purser."""
    return str((obj["metadata"].get("annotations") or {}).get(APPLIED_HASH_ANNOTATION, ""))


def projection(live: Any, desired: Any) -> Any:
    """The live value, of the fields only that the desired one has, and with all that is in `WHOLE` places. Servers drop
    empty values, so that an empty one that is wanted is there if nothing else is."""
    return _projection(live, desired, _kind(desired))


def difference(live: Any, desired: Any) -> list[str]:
    """Paths at which a live object is not as desired, in order."""
    found = projection(live, desired)
    return [] if found == desired else list(_differences(found, desired, ""))


def removal(live: Raw, desired: Raw) -> Raw:
    """The merge patch that takes away what was added in `WHOLE` places, and nothing else; empty: nothing was."""
    return _merge_patch(live, _without_additions(live, desired, _kind(desired)))


def _kind(desired: Any) -> str:
    return str(desired.get("kind", "")) if isinstance(desired, dict) else ""


def _projection(live: Any, desired: Any, place: str) -> Any:
    if live == desired:
        return desired
    if isinstance(desired, dict) and isinstance(live, dict):
        found = {
            key: value if live.get(key) == value else _part(live, key, value, place)
            for key, value in desired.items()
            if key in live or _is_empty(value)
        }
        return found | {key: live[key] for key in _added_keys(live, desired, place)}
    if isinstance(desired, _LISTS) and isinstance(live, _LISTS):
        return _list(live, desired, place)
    return live


def _part(live: Mapping[str, Any], key: str, desired: Any, place: str) -> Any:
    found = live.get(key)
    return desired if found is None and _is_empty(desired) else _projection(found, desired, f"{place}.{key}")


def _added_keys(live: Mapping[str, Any], desired: Mapping[str, Any], place: str) -> list[str]:
    """Keys that are only in the live map, where it is the operator's alone, or they are themselves."""
    return [
        key
        for key, value in live.items()
        if key not in desired and (place in WHOLE or f"{place}.{key}" in WHOLE) and not _is_empty(value)
    ]


def _is_empty(value: Any) -> bool:
    return not value


def _list(live: Sequence[Any], desired: Sequence[Any], place: str) -> Any:
    by_key, key = _by_key(live, desired, place)
    if key is not None:
        found = [_projection(by_key[item[key]], item, f"{place}[]") for item in desired if item[key] in by_key]
        wanted = [item[key] for item in desired]
        return [*found, *(item for item in live if place in WHOLE and item.get(key) not in wanted)]
    if len(live) == len(desired):
        return [_projection(have, want, f"{place}[]") for have, want in zip(live, desired, strict=True)]
    return list(live)


def _without_additions(live: Any, desired: Any, place: str) -> Any:
    """The live value without what was added in whole places."""
    if isinstance(desired, dict) and isinstance(live, dict):
        added = _added_keys(live, desired, place)
        return {
            key: _without_additions(value, desired[key], f"{place}.{key}") if key in desired else value
            for key, value in live.items()
            if key not in added
        }
    if isinstance(desired, _LISTS) and isinstance(live, _LISTS):
        _, key = _by_key(live, desired, place)
        if key is None:
            return list(desired) if place in WHOLE else live
        wanted = {item[key]: item for item in desired}
        return [
            _without_additions(item, wanted[item.get(key)], f"{place}[]") if item.get(key) in wanted else item
            for item in live
            if place not in WHOLE or item.get(key) in wanted
        ]
    return live


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7386, where nothing is added."""
    changed = [key for key in before if key not in after or before[key] != after[key]]
    return {
        key: _merge_patch(before[key], after[key]) if isinstance(after.get(key), dict) else after.get(key)
        for key in changed
    }


def _by_key(live: Sequence[Any], desired: Sequence[Any], place: str) -> tuple[dict[Any, Any], str | None]:
    """The live items by the key that identifies the desired ones; None where no key does. Duplicates have no key."""
    key = _list_key(desired)
    if key is None or not all(isinstance(item, dict) and isinstance(item.get(key), Hashable) for item in live):
        return {}, None
    found = {item.get(key): item for item in live}
    return (found, key) if len(found) == len(live) or place not in WHOLE else ({}, None)


def _list_key(items: Sequence[Any]) -> str | None:
    if not items or not all(isinstance(item, dict) for item in items):
        return None
    for key in LIST_KEYS:
        values = [item.get(key) for item in items]
        if all(isinstance(value, str | int) for value in values) and len(set(values)) == len(values):
            return key
    return None


def _differences(have: Any, want: Any, path: str) -> Iterator[str]:
    if isinstance(want, dict) and isinstance(have, dict):
        for key in {**want, **have}:
            yield from _differences(have.get(key), want.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(want, _LISTS) and isinstance(have, _LISTS) and len(want) == len(have):
        for place, (one, other) in enumerate(zip(have, want, strict=True)):
            yield from _differences(one, other, f"{path}[{place}]")
    elif have != want:
        yield path
