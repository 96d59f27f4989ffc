"""`metadata.managedFields`: who owns which field, after an update and in a server-side apply. Pure: time is handed
in."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from . import lastapplied
from .errors import Obj, StatusError
from .fieldset import EMPTY, Path, Paths, compare, from_fields_v1, leaves, path_text, to_fields_v1
from .schema import Schema
from .ssa import merge, remove

_UNOWNED_PATHS = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",), ("f:spec",), ("f:status",)}
    | {
        ("f:metadata", "f:" + name)
        for name in (
            "name", "namespace", "generateName", "uid", "creationTimestamp", "selfLink", "resourceVersion",
            "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
        )
    }
)  # fmt: skip
"""What no manager owns: identity, what the server itself keeps, and the parts every object has."""


@dataclass(frozen=True, slots=True)
class FieldManager:
    """One entry's identity. `operation` is Apply or Update."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Owned:
    """What a manager owns and since when."""

    paths: Paths
    time: str


Managers = dict[FieldManager, Owned]


def read(entries: Any) -> Managers:
    """The managers of an object; raises 400 for entries that are none."""
    managers: Managers = {}
    for entry in entries or ():
        if not entry:
            continue
        if entry.get("fieldsType") != "FieldsV1":
            raise StatusError(
                400, "BadRequest", f'metadata.managedFields: unsupported fieldsType "{entry.get("fieldsType", "")}"'
            )
        manager = FieldManager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        managers[manager] = Owned(from_fields_v1(entry.get("fieldsV1") or {}), entry.get("time", ""))
    return managers


def write(managers: Managers) -> list[Obj]:
    """The entries, appliers first, then by time, as the server orders them."""
    ordered = sorted(managers.items(), key=lambda pair: (pair[0].operation != "Apply", pair[1].time, pair[0].name))
    return [_entry(manager, owned) for manager, owned in ordered if owned.paths]


def _entry(manager: FieldManager, owned: Owned) -> Obj:
    entry: Obj = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": owned.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields_v1(owned.paths),
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return {key: value for key, value in entry.items() if value}


def update(before: Obj | None, after: Obj, manager: FieldManager, schema: Schema, time: str) -> None:
    """Set `after`'s managedFields: the updater owns what it changed, and other managers lose it.

    A client that sends its own entries replaces the old ones with them; an empty list resets them.
    """
    entries = after["metadata"].pop("managedFields", None)
    old = (before or {}).get("metadata", {}).get("managedFields")
    managers = read(old if entries is None else entries)
    difference = compare(_without_managed_fields(before or {}), _without_managed_fields(after), schema)
    changed = frozenset(difference.changed) - _UNOWNED_PATHS
    removed = frozenset(difference.removed)
    if changed or removed:
        managers = {who: replace(owned, paths=owned.paths - changed - removed) for who, owned in managers.items()}
    if changed:
        managers[manager] = Owned(managers.get(manager, Owned(EMPTY, "")).paths | changed, time)
    if written := write(managers):
        after["metadata"]["managedFields"] = written


def _without_managed_fields(obj: Obj) -> Obj:
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": metadata} if metadata else {}


def apply(live: Obj | None, config: Obj, manager: FieldManager, schema: Schema, *, force: bool, time: str) -> Obj:
    """The object after a server-side apply; raises a 409 `StatusError` listing every conflict unless forced."""
    managers = read((live or {}).get("metadata", {}).get("managedFields"))
    previous = managers.get(manager, Owned(EMPTY, "")).paths
    paths = frozenset(leaves(config, schema)) - _UNOWNED_PATHS
    base = _without_managed_fields(live) if live else {}
    merged = merge(base, config, schema)
    difference = compare(base, merged, schema)
    inherited_fields = (
        lastapplied.inherited_paths(base, schema) if live and manager.name == lastapplied.KUBECTL else EMPTY
    )
    managers = _find_conflicts(managers, manager, frozenset(difference.changed), inherited_fields, force=force)
    others = EMPTY.union(*(owned.paths for who, owned in managers.items() if who != manager))
    result = remove(merged, previous - paths, paths | others | _identity(merged), schema)
    lost = frozenset(compare(merged, result, schema).removed)
    managers = {who: replace(owned, paths=owned.paths - lost) for who, owned in managers.items()}
    since = managers[manager].time if manager in managers and previous == paths and not difference.changed else time
    managers[manager] = Owned(paths, since)
    result["metadata"]["managedFields"] = write(managers)
    if manager.name == lastapplied.KUBECTL:
        lastapplied.refresh(result, config)
    return result


def _identity(obj: Obj) -> Paths:
    return frozenset({("f:apiVersion",), ("f:kind",)} | {("f:metadata", "f:" + name) for name in obj.get("metadata", {})
                                                        if ("f:metadata", "f:" + name) in _UNOWNED_PATHS})  # fmt: skip


def _find_conflicts(
    managers: Managers, manager: FieldManager, changed: Paths, inherits: Paths, *, force: bool
) -> Managers:
    overlaps = list(_find_overlaps(managers, manager, changed))
    conflicts = [(who, path) for who, path in overlaps if path not in inherits]
    if conflicts and not force:
        raise _conflict(conflicts)
    lost = frozenset(path for _, path in overlaps)
    return {
        who: owned if who == manager else replace(owned, paths=owned.paths - lost) for who, owned in managers.items()
    }


def _find_overlaps(managers: Managers, manager: FieldManager, changed: Paths) -> Iterator[tuple[FieldManager, Path]]:
    for who, owned in managers.items():
        if who != manager:
            for path in sorted(owned.paths & changed):
                yield who, path


def _conflict(conflicts: list[tuple[FieldManager, Path]]) -> StatusError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_named(who)}", "field": path_text(path)}
        for who, path in conflicts
    ]
    return StatusError(409, "Conflict", _message(conflicts), {"causes": causes})


def _message(conflicts: list[tuple[FieldManager, Path]]) -> str:
    if len(conflicts) == 1:
        who, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_named(who)}: {path_text(path)}"
    lines = []
    for who in sorted({who for who, _ in conflicts}, key=lambda who: (who.name, who.operation)):
        lines.append(f"conflicts with {_named(who)}:")
        lines += [f"- {path_text(path)}" for other, path in conflicts if other == who]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _named(who: FieldManager) -> str:
    if who.operation != "Update":
        return f'"{who.name}"'
    subresource = f' with subresource "{who.subresource}"' if who.subresource else ""
    return f'"{who.name}"{subresource} using {who.api_version}'
