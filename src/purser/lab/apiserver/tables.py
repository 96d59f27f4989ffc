"""Objects as rows: the Table that `kubectl get` asks for (meta.k8s.io/v1), and columns that CRDs define."""

import re
from collections.abc import Iterable
from typing import Any

from . import columns
from .columns import Cell, TableColumn, age
from .errors import Obj
from .resources import ServedResource, get_path


def table(resource: ServedResource, objects: Iterable[Obj], metadata: Obj, *, include: str) -> Obj:
    """The Table of some objects; `include` is None, Metadata or Object: how much of the object rides along."""
    shown = columns_of(resource)
    rows = [
        {"cells": [column.value(obj) for column in shown], "object": _included_object(obj, include)} for obj in objects
    ]
    definitions = [column.definition() for column in shown]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def partial_metadata(obj: Obj) -> Obj:
    """PartialObjectMetadata: the object's metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _included_object(obj: Obj, include: str) -> Obj | None:
    if include == "None":
        return None
    return obj if include == "Object" else partial_metadata(obj)


def columns_of(resource: ServedResource) -> list[TableColumn]:
    """Columns of a kind; name and age where nothing better is known."""
    name = TableColumn("Name", lambda obj: obj["metadata"]["name"])
    if resource.custom:
        return [name, *(_custom(raw) for raw in resource.columns or _DEFAULT_CUSTOM)]
    return [name, *columns.BY_STORAGE.get(resource.storage, [columns.AGE_COLUMN])]


_DEFAULT_CUSTOM = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)
_STEP = re.compile(r"\.([^.\[\]]+)|\['([^']+)'\]|\[(\d+|\*)\]|\[\?\(@\.([A-Za-z0-9_.]+)==['\"]([^'\"]*)['\"]\)\]")


def _custom(raw: Obj) -> TableColumn:
    path, kind = raw.get("jsonPath", ""), raw.get("type", "string")

    def value(obj: Obj) -> Cell:
        found = json_path(obj, path)
        if not found:
            return None
        if kind == "date":
            return age(found[0])
        return ",".join(str(each) for each in found) if len(found) > 1 else _plain(found[0], kind)

    return TableColumn(raw["name"], value, "string" if kind == "date" else kind, wide=bool(raw.get("priority")))


def _plain(value: Any, kind: str) -> Cell:
    if kind in ("integer", "number", "boolean") or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def json_path(obj: Any, path: str) -> list[Any]:
    """Values at a kubectl JSONPath without functions: fields, indexes, `[*]` and `[?(@.type=="Ready")]`."""
    found = [obj]
    for step in _STEP.finditer(path.replace("\\.", "\0")):
        field, quoted, index, key, wanted = step.groups()
        field = (field or quoted or "").replace("\0", ".")
        if field:
            found = [value[field] for value in found if isinstance(value, dict) and field in value]
        elif index == "*":
            found = [item for value in found if isinstance(value, list) for item in value]
        elif index:
            found = [value[int(index)] for value in found if isinstance(value, list) and int(index) < len(value)]
        else:
            items = [item for value in found if isinstance(value, list) for item in value]
            found = [item for item in items if str(get_path(item, key)) == wanted]
    return found
