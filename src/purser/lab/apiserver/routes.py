"""From a URL to a resource: the path grammar of the Kubernetes API. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from purser.core.kubernetes.selectors import Selector

from . import fields
from .errors import Obj, StatusError, bad_request, no_such_path
from .resources import Registry, ServedResource
from .selectors import FieldTerm, parse_fields, parse_labels
from .store import Selection, StoredObject


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a collection (no name), an object, or a subresource of it."""

    resource: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(registry: Registry, parts: list[str]) -> Target:
    """Path segments after the leading slash, such as `api v1 namespaces a pods b status`; raises 404."""
    if parts[0] == "api" and len(parts) > 2:
        return _target(registry, "", parts[1], parts[2:])
    if parts[0] == "apis" and len(parts) > 3:
        return _target(registry, parts[1], parts[2], parts[3:])
    raise no_such_path()


def _target(registry: Registry, group: str, version: str, rest: list[str]) -> Target:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and registry.get(group, version, rest[2]):
        namespace, rest = rest[1], rest[2:]
    resource = registry.get(group, version, rest[0])
    if resource is None or len(rest) > 3:
        raise no_such_path()
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and subresource not in resource.subresources:
        raise no_such_path()
    if bool(namespace) and not resource.namespaced:
        raise no_such_path()
    if name and resource.namespaced and not namespace:
        raise no_such_path()
    return Target(resource, namespace, name, subresource)


def selection(target: Target, query: Mapping[str, str]) -> Selection:
    """What a list, watch or deletecollection is about; raises 400 for selectors that cannot be read."""
    labels = query.get("labelSelector", "")
    field_terms = parse_fields(query.get("fieldSelector", ""), fields.supported(target.resource))
    exact = {term.field: term.value for term in field_terms if not term.negated}
    return Selection(
        namespace=target.namespace or exact.get("metadata.namespace", ""),
        name=target.name or exact.get("metadata.name", ""),
        matches=_matches(parse_labels(labels) if labels else None, field_terms),
        index_value=exact.get(fields.INDEXED_FIELDS.get(target.resource.storage, "")),
    )


def _matches(labels: Selector | None, terms: tuple[FieldTerm, ...]) -> Callable[[StoredObject], bool] | None:
    if labels is None and not terms:
        return None

    def matches(record: StoredObject) -> bool:
        return (labels is None or labels.matches(record.labels)) and all(term.holds(record.fields) for term in terms)

    return matches


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean query parameter."""
    return query.get(name, "").lower() in ("true", "1")


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole, non-negative number; raises 400 for anything else."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise bad_request(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def revision(query: Mapping[str, str]) -> int | None:
    """`resourceVersion`; None where none is given. Raises 422 for what is not a version."""
    text = query.get("resourceVersion", "")
    if text and not text.isdecimal():
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise StatusError(400, "BadRequest", message)
    return int(text) if text else None


def dry_run(query: Mapping[str, str], options: Obj) -> bool:
    """`dryRun=All`, in the query or in the options; raises 400 for other values."""
    values = [query["dryRun"]] if query.get("dryRun") else list(options.get("dryRun") or ())
    if any(value != "All" for value in values):
        raise bad_request(f'dryRun: Unsupported value: {values}: supported values: "All"')
    return bool(values)
