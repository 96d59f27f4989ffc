"""What types cannot say about a ClusterPolicy. The CRD has the same rules in CEL where that can express them."""

import re
from collections.abc import Iterator

from purser.operator.policy.driver import DriverSpec, UpgradePolicy
from purser.operator.policy.spec import ClusterPolicySpec
from purser.operator.selectors import SelectorError, parse

MAX_SLOTS = 1000
_VERSION = re.compile(r"^[0-9]+(\.[0-9]+)*$")


def problems(spec: ClusterPolicySpec) -> list[str]:
    """Everything that makes no sense, each in one sentence with its field."""
    return [*_plugin(spec), *_driver(spec.driver), *_upgrade(spec.driver.upgrade_policy)]


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
    for place, requirement in enumerate(driver.requirements):
        for version in filter(None, (requirement.minimum, *requirement.excluded)):
            if not _VERSION.match(version):
                yield f"spec.driver.requirements[{place}]: {version} is no driver version: write one such as 570.86.10"


def _upgrade(policy: UpgradePolicy) -> Iterator[str]:
    bound = policy.max_unavailable
    if bound in (0, "0%") or (isinstance(bound, int) and bound < 0):
        yield f"spec.driver.upgradePolicy.maxUnavailable is {bound}: no node could ever be upgraded, give 1 or more"
    for section, selector in (
        ("waitForCompletion", policy.wait_for_completion.pod_selector),
        ("drain", policy.drain.pod_selector),
    ):
        try:
            parse(selector)
        except SelectorError as error:
            yield f"spec.driver.upgradePolicy.{section}.podSelector: {error}"
