"""Label and field selectors of requests (k8s.io/apimachinery/pkg/labels and /fields). Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from purser.core.kubernetes.selectors import Selector, SelectorError, of_object, parse

from .errors import Obj, bad_request


def parse_labels(selector: str) -> Selector:
    """A label selector of a query, as `a=b,c!=d,e in (f,g),h,!i`. Raises a 400 `StatusError` for an invalid one."""
    try:
        return parse(selector)
    except SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


def object_selector(selector: Obj | None) -> Selector:
    """A `metav1.LabelSelector`; an empty one selects everything. Raises a 400 `StatusError` for an invalid one."""
    try:
        return of_object(selector or {})
    except SelectorError as error:
        raise bad_request(str(error)) from error


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """`field=value` or `field!=value`."""

    field: str
    value: str
    negated: bool

    def holds(self, fields: Mapping[str, str]) -> bool:
        """An absent field counts as empty, as it does in Kubernetes."""
        return (fields.get(self.field, "") == self.value) != self.negated


def parse_fields(selector: str, supported: Iterable[str]) -> tuple[FieldTerm, ...]:
    """Terms of a field selector; raises 400 for a field this resource cannot be selected by."""
    terms = []
    for text in filter(None, selector.split(",")):
        found = re.match(r"^(?P<field>[^=!]+)(?P<op>==|!=|=)(?P<value>.*)$", text)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
        if found["field"] not in supported:
            raise bad_request(f"field label not supported: {found['field']}")
        terms.append(FieldTerm(found["field"], found["value"], found["op"] == "!="))
    return tuple(terms)
