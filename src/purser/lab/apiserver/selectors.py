"""Label and field selectors as predicates (k8s.io/apimachinery/pkg/labels and /fields). Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .errors import Obj, bad_request

Predicate = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_PAIR = re.compile(r"^(?P<key>[^=!<>\s]+)\s*(?P<op>==|!=|=|>|<)\s*(?P<value>[A-Za-z0-9_.-]*)$")
_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$")


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One term of a label selector; `op` is in, notin, exists, absent, gt or lt."""

    key: str
    op: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy the term; `notin` also holds where the key is absent."""
        value = labels.get(self.key)
        match self.op:
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case _:
                return _compares(self.op, value, next(iter(self.values)))


def _compares(op: str, value: str | None, bound: str) -> bool:
    try:
        return value is not None and (int(value) > int(bound) if op == "gt" else int(value) < int(bound))
    except ValueError:
        return False


def parse_labels(selector: str) -> tuple[SelectorTerm, ...]:
    """`a=b,c!=d,e in (f,g),h,!i` as terms; raises a 400 `ApiError` for what is none."""
    return tuple(_term(text) for text in _split(selector))


def _split(selector: str) -> list[str]:
    parts = re.split(r",(?![^()]*\))", selector)
    return [part.strip() for part in parts if part.strip()]


def _term(text: str) -> SelectorTerm:
    if found := _SET.match(text):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return SelectorTerm(_key(found["key"], text), found["op"], values)
    if found := _PAIR.match(text):
        op = {"=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt"}[found["op"]]
        return SelectorTerm(_key(found["key"], text), op, frozenset([found["value"]]))
    if text.startswith("!"):
        return SelectorTerm(_key(text[1:].strip(), text), "absent")
    return SelectorTerm(_key(text, text), "exists")


def _key(key: str, text: str) -> str:
    if not _NAME.match(key):
        raise bad_request(
            f"unable to parse requirement: found '{text}', expected: a label key, '=', '!=', 'in' or 'notin'"
        )
    return key


def label_predicate(terms: Iterable[SelectorTerm]) -> Predicate:
    """True where every term holds."""
    wanted = tuple(terms)
    return lambda labels: all(term.holds(labels) for term in wanted)


OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
"""Operators of `matchExpressions`."""


def object_selector(selector: Obj | None) -> Predicate:
    """A `metav1.LabelSelector`; an empty one selects everything."""
    selector = selector or {}
    terms = [SelectorTerm(key, "in", frozenset([value])) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        values = frozenset(expression.get("values") or ())
        if expression.get("operator") not in OPERATORS:
            raise bad_request(f'"{expression.get("operator")}" is not a valid label selector operator')
        terms.append(SelectorTerm(expression.get("key", ""), OPERATORS[expression["operator"]], values))
    return label_predicate(terms)


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
