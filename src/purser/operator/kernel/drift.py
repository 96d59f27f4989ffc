"""Whether a live object still is what was applied. Only fields that are wanted count: what others add stays theirs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from purser.operator.model import Raw, Settled
from purser.operator.names import APPLIED_HASH_ANNOTATION

LIST_KEYS = ("mountPath", "containerPort", "uid", "name", "key")
"""By which items of a list are told apart, if all items of it have one and no two are equal. A mount's name comes
twice where a volume is mounted twice, therefore its path comes first."""

_LISTS = (list, tuple)
SHOWN_PATHS = 3


def why_apply(live: Raw | None, desired: Raw, settled: Settled | None) -> str:
    """Why an object has to be applied; empty: it need not be.

    A server may spell values its own way. What it made of the same object before is no drift: that costs one apply
    per object and process at the most.
    """
    if live is None:
        return "created"
    if hash_of(live) != hash_of(desired):
        return "changed"
    paths = difference(live, desired)
    if not paths or (settled is not None and _as_it_came_out(live, desired, settled)):
        return ""
    more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
    return f"drift: {', '.join(paths[:SHOWN_PATHS])}{more}"


def _as_it_came_out(live: Raw, desired: Raw, settled: Settled) -> bool:
    same = settled.wanted_hash == hash_of(desired)
    return same and bool(projection(settled.came_out, desired) == projection(live, desired))


def hash_of(obj: Raw) -> str:
    """What it was applied as; empty: by somebody else."""
    return str((obj["metadata"].get("annotations") or {}).get(APPLIED_HASH_ANNOTATION, ""))


def projection(live: Any, desired: Any) -> Any:
    """The live value, of the fields only that the desired one has. Servers drop empty values, so that an empty one
    that is wanted is there if nothing else is."""
    if live == desired:
        return live
    if isinstance(desired, dict) and isinstance(live, dict):
        return {key: _part(live, key, value) for key, value in desired.items() if key in live or _is_empty(value)}
    if isinstance(desired, _LISTS) and isinstance(live, _LISTS):
        return _list(live, desired)
    return live


def difference(live: Any, desired: Any) -> list[str]:
    """Paths at which a live object is not as desired, in order."""
    found = projection(live, desired)
    return [] if found == desired else list(_differences(found, desired, ""))


def _part(live: Mapping[str, Any], key: str, desired: Any) -> Any:
    found = live.get(key)
    return desired if found is None and _is_empty(desired) else projection(found, desired)


def _is_empty(value: Any) -> bool:
    return not value


def _list(live: Sequence[Any], desired: Sequence[Any]) -> Any:
    key = _list_key(desired)
    if key is not None and all(isinstance(item, dict) for item in live):
        by_key = {item.get(key): item for item in live}
        return [projection(by_key[item[key]], item) for item in desired if item[key] in by_key]
    if len(live) == len(desired):
        return [projection(have, want) for have, want in zip(live, desired, strict=True)]
    return list(live)


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
        for key, value in want.items():
            yield from _differences(have.get(key), value, f"{path}.{key}" if path else str(key))
    elif isinstance(want, _LISTS) and isinstance(have, _LISTS) and len(want) == len(have):
        for place, (one, other) in enumerate(zip(have, want, strict=True)):
            yield from _differences(one, other, f"{path}[{place}]")
    elif have != want:
        yield path
