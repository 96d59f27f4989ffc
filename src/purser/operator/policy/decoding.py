"""From objects of the API to the ClusterPolicy that counts, the oldest that is not leaving, or to a sentence that says
what is wrong with it. What types cannot say is checked here; the CRD has the same rules in CEL where that can express
them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from purser.core.device.ids import MAX_SLOTS
from purser.core.kubernetes.selectors import SelectorError, parse
from purser.core.names import MIG_STATE_LABEL, POOL_LABEL, UPGRADE_STATE_LABEL
from purser.operator.names import FINALIZER, KIND, RUNTIME_LABEL
from purser.operator.order import Operand
from purser.operator.policy.driver import DriverSpec, UpgradePolicy
from purser.operator.policy.fields import EnvVar
from purser.operator.policy.spec import ClusterPolicy, ClusterPolicySpec, ClusterPolicyStatus

MAX_PROFILES = 100
"""Also of requirements."""

DRIVER_VERSION = r"[0-9]+(\.[0-9]+)*"
"""Of a driver: what requirements can compare."""

_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LONGEST_NAME = 253

CHANGING_LABELS = (
    *(operand.deploy_label for operand in Operand),
    MIG_STATE_LABEL,
    POOL_LABEL,
    RUNTIME_LABEL,
    UPGRADE_STATE_LABEL,
)
"""What the operator writes on nodes while it rolls out. A driver that hung on one would be put on a node and taken from
it by turns."""


def is_name(text: str) -> bool:
    """Whether an API server takes a policy of this name."""
    return len(text) <= _LONGEST_NAME and re.fullmatch(_NAME, text) is not None


def problems(spec: ClusterPolicySpec) -> list[str]:
    """Everything that makes no sense, each in one sentence with its field."""
    return [
        *_plugin(spec),
        *_driver(spec.driver),
        *_upgrade(spec.driver.upgrade_policy),
        *_bound("daemonsets.rollingUpdate", spec.daemonsets.rolling_update.max_unavailable, "updated"),
        *_variables(spec, "spec"),
    ]


def _plugin(spec: ClusterPolicySpec) -> Iterator[str]:
    if not 1 <= spec.device_plugin.slots <= MAX_SLOTS:
        yield f"spec.devicePlugin.slots is {spec.device_plugin.slots}: must be a number from 1 to {MAX_SLOTS}"
    if spec.mig_manager.config.default and not spec.mig_manager.enabled:
        yield (
            "spec.migManager.config.default is set but the MIG manager is disabled: enable the MIG manager or remove"
            " config.default"
        )
    if spec.mig.strategy == "on-demand" and not spec.device_plugin.is_agent:
        yield "spec.mig.strategy is on-demand, which needs Purser's agent: set spec.devicePlugin.flavor to purser"
    if spec.device_plugin.labels_features and spec.gfd.enabled:
        labels = spec.device_plugin.feature_labels
        why = "but feature discovery writes the same labels: set spec.gfd.enabled to false"
        yield f"spec.devicePlugin.featureLabels is {labels}, {why}"


def _driver(driver: DriverSpec) -> Iterator[str]:
    for name in _find_repeated(profile.name for profile in driver.profiles):
        yield f"spec.driver.profiles: duplicate name {name}: profile names must be unique"
    for place, profile in enumerate(driver.profiles):
        if not profile.node_selector:
            yield f"spec.driver.profiles[{place}].nodeSelector is empty: put settings for all nodes in spec.driver"
        yield from _selector(f"driver.profiles[{place}]", profile.node_selector)
    for name, listed in (("profiles", driver.profiles), ("requirements", driver.requirements)):
        if len(listed) > MAX_PROFILES:
            yield f"spec.driver.{name} has {len(listed)} entries: must have at most {MAX_PROFILES}"
    for place, requirement in enumerate(driver.requirements):
        yield from _selector(f"driver.requirements[{place}]", requirement.node_selector)
        for version in filter(None, (requirement.minimum, *requirement.excluded)):
            if not re.fullmatch(DRIVER_VERSION, version):
                why = "is not a driver version: use one such as 570.86.10"
                yield f"spec.driver.requirements[{place}]: {version!r} {why}"


def _find_repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _selector(section: str, selector: Mapping[str, str]) -> Iterator[str]:
    for label in sorted(selector.keys() & set(CHANGING_LABELS)):
        why = "which the operator itself writes: use another label"
        yield f"spec.{section}.nodeSelector selects nodes by {label}, {why}"


def _upgrade(policy: UpgradePolicy) -> Iterator[str]:
    yield from _selector("driver.upgradePolicy.canary", policy.canary.node_selector)
    yield from _bound("driver.upgradePolicy", policy.max_unavailable, "upgraded")
    for section, selector in (
        ("waitForCompletion", policy.wait_for_completion.pod_selector),
        ("drain", policy.drain.pod_selector),
    ):
        try:
            parse(selector)
        except SelectorError as error:
            yield f"spec.driver.upgradePolicy.{section}.podSelector: {error}"


def _bound(section: str, bound: int | str, done: str) -> Iterator[str]:
    if bound == "0%" or (isinstance(bound, int) and bound <= 0):
        yield f"spec.{section}.maxUnavailable is {bound}, so no node could ever be {done}: use 1 or more"


def _variables(section: msgspec.Struct, path: str) -> Iterator[str]:
    """Variables that are there twice, in all sections: an API server takes no such list."""
    for name_here, encoded in _fields(type(section)):
        value, where = getattr(section, name_here), f"{path}.{encoded}"
        if isinstance(value, msgspec.Struct):
            yield from _variables(value, where)
        elif isinstance(value, tuple) and value and isinstance(value[0], EnvVar):
            for name in _find_repeated(each.name for each in value):
                yield f"{where}: duplicate variable {name}: set each variable only once"
        elif isinstance(value, tuple):
            for place, each in enumerate(value):
                if isinstance(each, msgspec.Struct):
                    yield from _variables(each, f"{where}[{place}]")


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Those that may hold variables: few of all."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return tuple((field.name, field.encode_name) for field in info.fields if _holds_variables(field.type))


def _holds_variables(kind: inspect.Type) -> bool:
    match kind:
        case inspect.StructType(cls=section):
            return section is EnvVar or bool(_fields(section))
        case inspect.VarTupleType(item_type=item):
            return _holds_variables(item)
        case inspect.UnionType(types=types):
            return any(_holds_variables(each) for each in types)
        case _:
            return False


# --- decoding


_WORDS = {
    "array": "a list",
    "bool": "a boolean",
    "date": "a date",
    "datetime": "a time",
    "float": "a number",
    "int": "an integer",
    "null": "nothing",
    "object": "an object",
    "str": "a string",
}
_PHRASES = {
    "Expected": "must be",
    "Invalid enum value": "invalid value",
    "Object missing required field": "missing required field",
}
_PLACE_MARK = " - at `$"
_UNQUOTED_TYPES = frozenset({"bool", "date", "datetime", "float", "int"})
"""What YAML makes of texts without quotes."""


class PolicyError(ValueError):
    """A ClusterPolicy that cannot be acted on; the message names field and fix."""


def decode(raw: Mapping[str, Any]) -> ClusterPolicy:
    """A policy with its defaults, checked. Null counts as absent, as it does for the API server.

    Raises `PolicyError`.
    """
    try:
        policy = msgspec.convert(_without_nulls(dict(raw)), ClusterPolicy)
    except msgspec.ValidationError as error:
        place = _place(error)
        raise PolicyError(f"{place}: {describe_error(error)}" if place else describe_error(error)) from error
    found = problems(policy.spec)
    if found:
        raise PolicyError("; ".join(found))
    return policy


def describe_error(error: Exception) -> str:
    """What is wrong with a value, for people who write YAML: msgspec speaks of Python's types."""
    problem = str(error).partition(_PLACE_MARK)[0]
    if match := re.fullmatch(r"Expected `(.+)`, got `(.+)`", problem):
        wanted, found = match[1].split(" | "), match[2]
        hint = ": put it in quotes" if "str" in wanted and found in _UNQUOTED_TYPES else ""
        return f"must be {' or '.join(map(_word, wanted))}, not {_word(found)}{hint}"
    for theirs, ours in _PHRASES.items():
        problem = problem.replace(theirs, ours)
    return re.sub("`([^`]+)`", lambda each: _word(each[1]), problem)


def _word(kind: str) -> str:
    return _WORDS.get(kind, kind)


def _place(error: msgspec.ValidationError) -> str:
    return str(error).partition(_PLACE_MARK)[2].rstrip("`").removeprefix(".")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_nulls(each) if isinstance(each, (dict, list)) else each
            for key, each in value.items()
            if each is not None
        }
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


# --- the active policy


Raw = Mapping[str, Any]
"""A ClusterPolicy as it came from the API."""


class ChosenPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of a cluster by what becomes of them."""

    raw: Raw | None = None
    """The active one; None: there is none."""
    policy: ClusterPolicy | None = None
    """The same, decoded; None where that cannot be done."""
    problem: str = ""
    """Why not."""
    ignored: tuple[Raw, ...] = ()
    """Younger ones."""
    leaving: tuple[Raw, ...] = ()
    """Those that were asked to go, and wait for the operator's finalizer."""


def choose(policies: Sequence[Raw]) -> ChosenPolicies:
    """The oldest policy is active, of equally old ones the first by name. One that cannot be decoded counts, too: a
    mistake in it must not hand the cluster to another policy."""
    staying = sorted((each for each in policies if not is_leaving(each)), key=_age)
    leaving = tuple(sorted((each for each in policies if is_leaving(each) and has_finalizer(each)), key=_age))
    if not staying:
        return ChosenPolicies(leaving=leaving)
    policy, problem = _try_decode(staying[0])
    return ChosenPolicies(raw=staying[0], policy=policy, problem=problem, ignored=tuple(staying[1:]), leaving=leaving)


def namespace_of_operator(policies: Sequence[Raw]) -> str:
    """Namespace of the operator that acts on these policies, as the one that counts most says; empty: none has yet."""
    chosen = choose(policies)
    namespaces = (
        old_status(each).namespace for each in (chosen.raw, *chosen.leaving, *chosen.ignored) if each is not None
    )
    return next(filter(None, namespaces), "")


def name_of(raw: Raw) -> str:
    """Name of a policy."""
    return str(raw["metadata"]["name"])


def uid_of(raw: Raw) -> str:
    """Its uid."""
    return str(raw["metadata"].get("uid", ""))


def is_leaving(raw: Raw) -> bool:
    """Whether it was asked to go."""
    return bool(raw["metadata"].get("deletionTimestamp"))


def has_finalizer(raw: Raw) -> bool:
    """Whether it waits for the operator when it goes."""
    return FINALIZER in finalizers_of(raw)


def finalizers_of(raw: Raw) -> tuple[str, ...]:
    """All its finalizers."""
    return tuple(raw["metadata"].get("finalizers") or ())


def generation_of(raw: Raw) -> int:
    """Which of its specs it is."""
    generation = raw["metadata"].get("generation")
    return generation if isinstance(generation, int) else 0


def old_status(raw: Raw) -> ClusterPolicyStatus:
    """The current status of a policy; an empty one where it cannot be read: it is rewritten."""
    try:
        return msgspec.convert(raw.get("status") or {}, ClusterPolicyStatus)
    except msgspec.ValidationError:
        return ClusterPolicyStatus()


def _age(raw: Raw) -> tuple[str, str]:
    return str(raw["metadata"].get("creationTimestamp") or ""), name_of(raw)


def _try_decode(raw: Raw) -> tuple[ClusterPolicy | None, str]:
    try:
        policy = decode({**raw, "status": {}})
        return msgspec.structs.replace(policy, status=old_status(raw)), ""
    except PolicyError as error:
        return None, str(error)


MISSING_DEFINITION_MESSAGE = f"the CustomResourceDefinition of {KIND} does not exist: run purser operator crd --apply"
