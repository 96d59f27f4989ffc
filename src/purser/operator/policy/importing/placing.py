"""On which nodes single operands ran: node selectors, affinities and tolerations of their own.

A ClusterPolicy of NVIDIA's first releases had them in every section. Purser keeps an operand away from a node by the
node's label, and has one list of tolerations for all operands: each line says what to write.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from purser.operator.names import DEPLOY_OPERANDS_LABEL
from purser.operator.order import Operand
from purser.operator.policy.importing.sections import Losses, Rank, Raw, at, is_requested
from purser.operator.policy.spec import ClusterPolicySpec

_ENCODED_NAMES = dict(zip(ClusterPolicySpec.__struct_fields__, ClusterPolicySpec.__struct_encode_fields__, strict=True))
_SECTIONS: Mapping[str, tuple[str, str]] = {
    **{_ENCODED_NAMES[each.section]: (each.value, each.deploy_label) for each in Operand},
    "daemonsets": ("every operand", DEPLOY_OPERANDS_LABEL),
}
"""By section: what it is about, and the label that keeps that away from a node."""

_SELECTOR_FIELDS = ("nodeSelector", "affinity", "nodeAffinity")


def drop_placement(given: Raw, lost: Losses) -> Raw:
    """The spec without them; each that says something is reported."""
    rest = dict(given)
    for name, (what, label) in _SECTIONS.items():
        if isinstance(section := given.get(name), dict):
            rest[name] = _without_selectors(name, what, label, section, lost)
            _report_tolerations(name, what, section, given, rest[name], lost)
    return rest


def _without_selectors(name: str, what: str, label: str, section: Raw, lost: Losses) -> Raw:
    for field in _SELECTOR_FIELDS:
        if is_requested(section.get(field)) or (field != "nodeSelector" and section.get(field)):
            why = f"{what} runs on every GPU node, even on nodes that this field excluded; use instead: "
            lost.drop_section(f"{name}.{field}", why + _label_commands(section[field], label), Rank.RUNS_DIFFERENTLY)
    return {field: value for field, value in section.items() if field not in _SELECTOR_FIELDS}


def _label_commands(selector: Any, label: str) -> str:
    """Commands that keep it away from the nodes that lack one of the labels."""
    if not isinstance(selector, dict) or not all(isinstance(each, str) for each in selector.values()):
        return f"the label {label}=false on every node that must not run it"
    each = [f"kubectl label nodes -l '{key}!={value}' {label}=false" for key, value in selector.items()]
    return " && ".join(each)


def _report_tolerations(name: str, what: str, section: Raw, given: Raw, rest: Raw, lost: Losses) -> None:
    """Drivers have their own in Purser, too."""
    if name in ("driver", "daemonsets") or "tolerations" not in section:
        return
    del rest["tolerations"]
    if own := list(_own_tolerations(section["tolerations"], at(given, "daemonsets.tolerations"))):
        why = (
            f"{what} will no longer run on nodes whose taints only this field tolerated; use instead, for all "
            f"operands, in addition to what is there: "
        )
        text = msgspec.json.encode(own).decode()
        lost.drop_section(f"{name}.tolerations", f"{why}spec.daemonsets.tolerations: {text}", Rank.NOT_DEPLOYED)


def _own_tolerations(tolerations: Any, of_all: Any) -> Iterator[Any]:
    """Those that not all operands have."""
    for each in tolerations if isinstance(tolerations, list) else [tolerations]:
        if each is not None and not (isinstance(of_all, list) and each in of_all):
            yield each
