"""What an API server makes of a policy's spec, by the CRD alone: schema, lists with keys, and rules.

Texts are matched and rules evaluated by Google's implementation of CEL, which matches with RE2 as API servers do.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from cel_expr_python import cel

from purser.lab.apiserver import structural
from purser.lab.apiserver.schema import Loader, Schema
from purser.operator.policy import crd

RULES = "x-kubernetes-validations"
_OF_ALL = ("items", "additionalProperties")


@cache
def raw() -> dict[str, Any]:
    """The schema of a policy's spec, as it is in the CRD."""
    return dict(crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])


@cache
def _schema() -> Schema:
    return Loader({}).load(raw())


@cache
def program(rule: str, parameter: str = "") -> Any:
    """Raises RuntimeError for a rule that is not CEL."""
    names = {"self": cel.Type.DYN, **({parameter: cel.Type.STRING} if parameter else {})}
    return cel.NewEnv(variables=names).compile(rule)


def holds(rule: str, value: Any) -> bool:
    found = program(rule).eval(data={"self": value}).value()
    assert isinstance(found, bool), f"{rule} of {value!r} is not an answer: {found}"
    return found


def matches(pattern: str, text: str) -> bool:
    return bool(program("self.matches(pattern)", "pattern").eval(data={"self": text, "pattern": pattern}).value())


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all within it."""
    yield schema
    for sub in (*schema.get("properties", {}).values(), *(schema[each] for each in _OF_ALL if each in schema)):
        yield from schemas(sub)


def rules(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every rule, and where it is."""
    yield from ((path, each) for each in schema.get(RULES, ()))
    for name, sub in schema.get("properties", {}).items():
        yield from rules(sub, f"{path}.{name}")
    for name in _OF_ALL:
        if name in schema:
            yield from rules(schema[name], f"{path}[]")


def refusals(spec: dict[str, Any]) -> list[str]:
    """Why the spec is refused; empty: it is taken. The spec is pruned and its defaults are filled in, in place."""
    structural.prune(spec, _schema(), "spec", [])
    structural.fill_defaults(spec, _schema())
    structural.drop_nulls(spec, _schema())
    found = [f"{cause.field}: {cause.message}" for cause in structural.check(spec, _schema(), "spec")]
    return found or list(_broken(raw(), spec, "spec"))


def _broken(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if value is None:
        return
    pattern = schema.get("pattern")
    if pattern and isinstance(value, str) and not matches(pattern, value):
        yield f"{path}: does not match {pattern}"
    yield from (f"{path}: {each['message']}" for each in schema.get(RULES, ()) if not holds(each["rule"], value))
    if isinstance(value, dict):
        for name, item in value.items():
            below = schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {}
            yield from _broken(below, item, f"{path}.{name}")
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _broken(schema["items"], item, f"{path}[{place}]")
