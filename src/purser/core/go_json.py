"""Values of JSON that Go's encoding/json would take, in the one spelling that a strict decoder knows."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from msgspec.inspect import AnyType, DictType, Field, StructType, Type, UnionType, VarTupleType

from purser.core.decoding import brief


def normalise_keys(
    value: Any,
    kind: Type,
    unknown: list[str],
    *,
    exact: Collection[type] = (),
    is_yaml: bool = False,
    at: str = "",
) -> Any:
    """The value with exact keys, without nulls that say nothing, and with whole numbers where Go has no others: ``2.0``
    is ``2`` there.

    Keys that ``kind`` does not have are left out, and added to ``unknown``, each with the way to it from ``at`` on.
    ``exact``: Structs that are decoded key by key: the names of their keys are exact, and null is a value.

    Of several spellings of one key the last in the file counts, be it exact or not; maps are added up. ``is_yaml``: the
    last one by name, for sigs.k8s.io/yaml hands keys on in that order. Of a key that is written twice in one spelling
    the parser has kept one alone, at the place of the first.
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    kind = _effective_member(kind)
    within = partial(normalise_keys, unknown=unknown, exact=exact, is_yaml=is_yaml)
    if isinstance(kind, VarTupleType) and isinstance(value, list):
        return [within(each, kind.item_type, at=f"{at}[{place}]") for place, each in enumerate(value)]
    if not isinstance(kind, StructType) or not isinstance(value, dict):
        return value
    fields = {field.encode_name: field for field in kind.fields}
    found: dict[str, Any] = {}
    items = sorted(value.items(), key=lambda item: str(item[0])) if is_yaml else value.items()
    for key, each in items:
        field = _field(key, fields, exact=kind.cls in exact)
        where = f"{at}.{brief(key, 60)}".removeprefix(".")
        if field is None:
            unknown.append(where)
        elif each is not None or kind.cls in exact:
            found[field.encode_name] = _merge_repeated(
                found.get(field.encode_name), within(each, field.type, at=where), field
            )
        elif isinstance(_effective_member(field.type), _NULLABLE_TYPES):
            found.pop(field.encode_name, None)
    return found


_NULLABLE_TYPES = VarTupleType, DictType, AnyType
"""Types of fields in which null takes away what an earlier spelling of the key said; others keep it."""


def _merge_repeated(before: Any, value: Any, field: Field) -> Any:
    is_map = isinstance(field.type, DictType) and isinstance(before, dict) and isinstance(value, dict)
    return before | value if is_map else value


def _field(key: Any, fields: Mapping[str, Field], *, exact: bool) -> Field | None:
    if not isinstance(key, str) or key in fields or exact:
        return fields.get(key)
    return next((field for name, field in fields.items() if name.lower() == key.lower()), None)


def _effective_member(kind: Type) -> Type:
    """Of a union the member with something within it."""
    within = kind.types if isinstance(kind, UnionType) else (kind,)
    return next((each for each in within if isinstance(each, StructType | VarTupleType)), kind)
