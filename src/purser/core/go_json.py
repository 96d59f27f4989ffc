"""Values of JSON that Go's encoding/json would take, in the one spelling that a strict decoder knows."""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.inspect import Field, StructType, Type, UnionType, VarTupleType

from purser.core.decoding import brief


def tidied(value: Any, kind: Type, unknown: list[str], *, exact: Collection[type] = (), at: str = "") -> Any:
    """The value with exact keys, without nulls that say nothing, and with whole numbers where Go has no others: ``2.0``
    is ``2`` there.

    Keys that ``kind`` does not have are left out, and added to ``unknown``, each with the way to it from ``at`` on.
    ``exact``: Structs that are decoded key by key: the names of their keys are exact, and null is a value.
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    kind = _the_one_that_holds(kind)
    if isinstance(kind, VarTupleType) and isinstance(value, list):
        return [
            tidied(each, kind.item_type, unknown, exact=exact, at=f"{at}[{place}]") for place, each in enumerate(value)
        ]
    if not isinstance(kind, StructType) or not isinstance(value, dict):
        return value
    fields = {field.encode_name: field for field in kind.fields}
    found = {}
    for key, each in sorted(value.items(), key=lambda item: str(item[0])):  # as Go does: an exact key comes last
        field = _field(key, fields, exact=kind.cls in exact)
        where = f"{at}.{brief(key, 60)}".removeprefix(".")
        if field is None:
            unknown.append(where)
        elif each is not None or kind.cls in exact:
            found[field.encode_name] = tidied(each, field.type, unknown, exact=exact, at=where)
    return found


def _field(key: Any, fields: Mapping[str, Field], *, exact: bool) -> Field | None:
    if not isinstance(key, str) or key in fields or exact:
        return fields.get(key)
    return next((field for name, field in fields.items() if name.lower() == key.lower()), None)


def _the_one_that_holds(kind: Type) -> Type:
    """Of a union the member with something within it."""
    within = kind.types if isinstance(kind, UnionType) else (kind,)
    return next((each for each in within if isinstance(each, StructType | VarTupleType)), kind)
