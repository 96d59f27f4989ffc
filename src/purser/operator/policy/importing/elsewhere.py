"""What Purser has at another place, or by itself: the MIG strategy, which NVIDIA's operands were once told one by one,
and the labels that NVIDIA's chart wrote on all of its objects."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from purser.operator.policy.importing.sections import Losses, Rank, Raw, at
from purser.operator.policy.sections import MigSection

_STRATEGIES = get_args(get_type_hints(MigSection)["strategy"])
_FLAG, _VARIABLE = "--mig-strategy", "MIG_STRATEGY"
_CHART_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")
"""NVIDIA's chart writes them into the policy (templates/clusterpolicy.yaml, v26.7)."""


def with_mig_strategy(given: Raw) -> Raw:
    """The spec with a strategy that only operands were told: what the device plugin lists counts most. The argument or
    variable stays: it says the same."""
    gfd = given.get("gfd")
    if at(given, "mig.strategy") is not None:
        return given
    found = next((each for each in _find_strategies(given) if each in _STRATEGIES), None)
    if found is None:
        return given
    mig = given.get("mig")
    rest = {**given, "mig": {**(mig if isinstance(mig, dict) else {}), "strategy": found}}
    if isinstance(gfd, dict) and gfd.get("migStrategy") == found:
        rest["gfd"] = {name: value for name, value in gfd.items() if name != "migStrategy"}
    return rest


def _find_strategies(given: Raw) -> Iterator[Any]:
    yield from _strategies_in_arguments(at(given, "devicePlugin.args"))
    yield from _strategies_in_variables(at(given, "devicePlugin.env"))
    yield from _strategies_in_arguments(at(given, "gfd.args"))
    yield from _strategies_in_variables(at(given, "gfd.env"))
    yield at(given, "gfd.migStrategy")


def _strategies_in_arguments(arguments: Any) -> Iterator[Any]:
    words = [str(each) for each in arguments] if isinstance(arguments, list) else []
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in (_FLAG, _FLAG[1:]):
            yield value if equals else next(iter(words[place + 1 :]), None)


def _strategies_in_variables(variables: Any) -> Iterator[Any]:
    for each in variables if isinstance(variables, list) else []:
        if isinstance(each, dict) and each.get("name") == _VARIABLE:
            yield each.get("value")


def without_chart_labels(given: Raw, lost: Losses) -> Raw:
    """The spec without labels that NVIDIA's chart wrote for its own objects."""
    rest, prefixes = dict(given), []
    for name in ("daemonsets", "operator"):
        labels = at(given, f"{name}.labels")
        if isinstance(labels, dict):
            rest[name] = {
                **given[name],
                "labels": {key: value for key, value in labels.items() if key not in _CHART_LABELS},
            }
            prefixes += [f"{lost.prefix}.{name}.labels.{key}" for key in labels if key in _CHART_LABELS]
    if prefixes:
        lost.note(
            ", ".join(prefixes),
            "NVIDIA's chart set these labels on its own objects; Purser's objects have their own",
            Rank.OFF,
        )
    return rest
