"""Who may do what: as docs/rights.md says, and as the manifests give it."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from purser.operator.manifests.rbac import ACCOUNTS
from tests.unit.deploy.test_helm_chart import render

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rights.md"
WEB = {"readAPI": {"enabled": True}, "web": {"enabled": True}}
VALUES: tuple[dict[str, Any], ...] = ({}, {"operator": {"enabled": True}}, {"readAPI": {"enabled": True}}, WEB)


class Right(NamedTuple):
    """An account may do one thing with one kind of objects."""

    account: str
    where: str
    """``cluster``, or ``namespace``: in Purser's own."""
    resource: str
    """As kubectl spells it: ``daemonsets.apps``, ``nodes/status``."""
    name: str
    """The one object it is for; empty: all."""
    verb: str


def written() -> Iterator[tuple[Right, str]]:
    """The rights that the page lists, and what it says each is for."""
    for account, where, resources, names, verbs, why in table("rights"):
        for resource in listed(resources):
            for name in listed(names) or [""]:
                yield from ((Right(account.strip("`"), where, resource, name, verb), why) for verb in listed(verbs))


def given() -> set[Right]:
    """The rights that chart and operator give."""
    found: set[Right] = set()
    for values in VALUES:
        documents = render(values)
        roles = {(each["kind"], each["metadata"]["name"]): each for each in documents if "rules" in each}
        for binding in documents:
            role = roles.get((binding.get("roleRef", {}).get("kind"), binding.get("roleRef", {}).get("name")))
            if role is not None:
                where = "cluster" if binding["kind"] == "ClusterRoleBinding" else "namespace"
                for subject in binding["subjects"]:
                    found |= set(_of_rules(subject["name"], where, role["rules"]))
    for account in ACCOUNTS:
        found |= set(_of_rules(account.name, "cluster", account.cluster))
        found |= set(_of_rules(account.name, "namespace", account.namespace))
    return found


def borrowed() -> set[tuple[str, str]]:
    """Accounts, and roles of Kubernetes' own that they are bound to."""
    found = set()
    for values in VALUES:
        documents = render(values)
        own = {each["metadata"]["name"] for each in documents if "rules" in each}
        bindings = [each for each in documents if "roleRef" in each and each["roleRef"]["name"] not in own]
        found |= {(each["subjects"][0]["name"], each["roleRef"]["name"]) for each in bindings}
    return found


def table(name: str) -> list[list[str]]:
    """The cells of a table of the page, by the mark in front of it."""
    found = re.search(rf"<!-- table: {name} -->\n\n((?:\|.*\n)+)", PAGE.read_text())
    assert found, f"there is no table {name}"
    return [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in found.group(1).splitlines()[2:]]


def listed(cell: str) -> list[str]:
    """What a cell lists."""
    return [each.strip().strip("`") for each in cell.split(",") if each.strip()]


def _of_rules(account: str, where: str, rules: Iterable[dict[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                plural, slash, sub = resource.partition("/")
                spelled = f"{plural}.{group}{slash}{sub}" if group else resource
                for name in rule.get("resourceNames", [""]):
                    yield from (Right(account, where, spelled, name, verb) for verb in rule["verbs"])
