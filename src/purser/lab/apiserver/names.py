"""Syntax of names, labels and annotations (k8s.io/apimachinery/pkg/util/validation). Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from purser.core.kubernetes.naming import (
    DNS_LABEL_PATTERN,
    SUBDOMAIN_PATTERN,
    is_label,
    is_subdomain,
    is_unprefixed_name,
)

from .errors import Cause, Obj

_PATH_SEGMENT = re.compile(r"[^/%]+")

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN_PATTERN}')"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{DNS_LABEL_PATTERN}')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_ANNOTATIONS_BYTES = 256 * 1024
_LABEL_NAMES = ("namespaces", "services")
_PATH_NAMES = tuple(
    f"{kind}.rbac.authorization.k8s.io" for kind in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
)


def invalid(field: str, value: Any, why: str) -> Cause:
    """`Invalid value: "x": why`."""
    shown = f'"{value}"' if isinstance(value, str) else _plain(value)
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown}: {why}")


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def required(field: str, why: str = "") -> Cause:
    """`Required value`."""
    return Cause("FieldValueRequired", field, f"Required value: {why}" if why else "Required value")


def duplicate(field: str, value: str) -> Cause:
    """`Duplicate value: "x"`."""
    return Cause("FieldValueDuplicate", field, f'Duplicate value: "{value}"')


def duplicate_names(items: Iterable[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    """Causes for names in a list that an item before has; items need none."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get("name") or ""
        if name and name in seen:
            yield duplicate(f"{path}[{index}].name", name)
        seen.add(name)


def unsupported(field: str, value: str, supported: tuple[str, ...]) -> Cause:
    """`Unsupported value`, with what is supported."""
    listed = ", ".join(f'"{choice}"' for choice in supported)
    return Cause("FieldValueNotSupported", field, f'Unsupported value: "{value}": supported values: {listed}')


def forbidden(field: str, why: str) -> Cause:
    """`Forbidden: why`."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {why}")


def is_qualified(key: str) -> bool:
    """Label or annotation key: an optional DNS prefix and a name of at most 63 characters."""
    prefix, slash, name = key.rpartition("/")
    return (not slash or is_subdomain(prefix.lower())) and is_unprefixed_name(name)


def check_metadata(metadata: Obj, storage: str) -> Iterator[Cause]:
    """Causes for name, labels and annotations."""
    yield from _check_name(metadata.get("name", ""), storage)
    for key, value in (metadata.get("labels") or {}).items():
        if not is_qualified(key):
            yield invalid("metadata.labels", key, QUALIFIED)
        if value and not is_unprefixed_name(value):
            yield invalid("metadata.labels", value, LABEL_VALUE)
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                yield invalid(f"metadata.ownerReferences[{index}].{name}", "", "must not be empty")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if not is_qualified(key):
            yield invalid("metadata.annotations", key, QUALIFIED)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_BYTES:
        why = f"Too long: must have at most {_ANNOTATIONS_BYTES} bytes"
        yield Cause("FieldValueTooLong", "metadata.annotations", why)


def _check_name(name: str, storage: str) -> Iterator[Cause]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif storage in _PATH_NAMES:
        if name in (".", "..") or not _PATH_SEGMENT.fullmatch(name):
            yield invalid("metadata.name", name, "may not contain '/' or '%'")
    elif storage in _LABEL_NAMES:
        if not is_label(name):
            yield invalid("metadata.name", name, LABEL)
    elif not is_subdomain(name):
        yield invalid("metadata.name", name, SUBDOMAIN)
