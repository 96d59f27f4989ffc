"""What types cannot say about a ClusterPolicy. The CRD has the same rules in CEL where that can express them."""

import re
from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from purser.core.selectors import SelectorError, parse
from purser.operator.names import MIG_STATE_LABEL, POOL_LABEL, RUNTIME_LABEL, UPGRADE_STATE_LABEL
from purser.operator.order import Operand
from purser.operator.policy.driver import DriverSpec, UpgradePolicy
from purser.operator.policy.fields import EnvVar
from purser.operator.policy.spec import ClusterPolicySpec

MAX_SLOTS = 1000
MAX_PROFILES = 100
"""Also of requirements."""

DRIVER_VERSION = r"[0-9]+(\.[0-9]+)*"
"""Of a driver: what requirements can compare."""

_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LONGEST_NAME = 253

MOVING_LABELS = (
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
        yield f"spec.devicePlugin.slots is {spec.device_plugin.slots}: give a number from 1 to {MAX_SLOTS}"
    if spec.mig_manager.config.default and not spec.mig_manager.enabled:
        yield "spec.migManager.config.default is set but the MIG manager is disabled: enable it, or remove this"


def _driver(driver: DriverSpec) -> Iterator[str]:
    names = [profile.name for profile in driver.profiles]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"spec.driver.profiles: {name} is there twice: give each profile a name of its own"
    for place, profile in enumerate(driver.profiles):
        if not profile.node_selector:
            yield f"spec.driver.profiles[{place}].nodeSelector is empty: what is for all nodes belongs in spec.driver"
        yield from _selector(f"driver.profiles[{place}]", profile.node_selector)
    for name, listed in (("profiles", driver.profiles), ("requirements", driver.requirements)):
        if len(listed) > MAX_PROFILES:
            yield f"spec.driver.{name} has {len(listed)} entries: give {MAX_PROFILES} at most"
    for place, requirement in enumerate(driver.requirements):
        yield from _selector(f"driver.requirements[{place}]", requirement.node_selector)
        for version in filter(None, (requirement.minimum, *requirement.excluded)):
            if not re.fullmatch(DRIVER_VERSION, version):
                why = "is no driver version: write one such as 570.86.10"
                yield f"spec.driver.requirements[{place}]: {version!r} {why}"


def _selector(section: str, selector: Mapping[str, str]) -> Iterator[str]:
    for label in sorted(selector.keys() & set(MOVING_LABELS)):
        why = "which the operator itself writes: take another label"
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
        yield f"spec.{section}.maxUnavailable is {bound}: no node could ever be {done}, give 1 or more"


def _variables(section: msgspec.Struct, path: str) -> Iterator[str]:
    """Variables that are there twice, in all sections: an API server takes no such list."""
    for name_here, encoded in _fields(type(section)):
        value, where = getattr(section, name_here), f"{path}.{encoded}"
        if isinstance(value, msgspec.Struct):
            yield from _variables(value, where)
        elif isinstance(value, tuple) and value and isinstance(value[0], EnvVar):
            names = [each.name for each in value]
            for name in sorted({name for name in names if names.count(name) > 1}):
                yield f"{where}: {name} is there twice: give each variable once"
        elif isinstance(value, tuple):
            for place, each in enumerate(value):
                if isinstance(each, msgspec.Struct):
                    yield from _variables(each, f"{where}[{place}]")


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
