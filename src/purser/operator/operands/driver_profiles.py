"""What the driver of a pool is told: the policy as its profile changes it, and what all drivers share."""

import msgspec

from purser.operator.model import Pool, RenderInputs
from purser.operator.policy.driver import DriverProfile, DriverSpec
from purser.operator.policy.fields import Sidecar
from purser.operator.policy.sections import DaemonSets
from purser.operator.policy.spec import ClusterPolicySpec

_SIDECARS = ("gds", "gdrcopy")


def profile_of(driver: DriverSpec, pool: Pool) -> DriverProfile:
    """The pool's profile; an empty one for nodes that no profile selects, or whose profile is gone."""
    found = [profile for profile in driver.profiles if profile.name == pool.profile]
    return found[0] if found else DriverProfile(name="none", node_selector={})


def profiled(wanted: RenderInputs, pool: Pool) -> RenderInputs:
    """As if the policy were there for this pool's drivers alone: sections that say something of drivers say what its
    profile does. Not so the parts of the image: whole references stand alone, whosever they are."""
    spec = wanted.policy.spec
    said = profile_of(spec.driver, pool).said()
    beside = {name: said.pop(name) for name in _SIDECARS if name in said}
    driver = msgspec.structs.replace(spec.driver, **said)
    common = _in_common(spec.daemonsets, driver)
    told = msgspec.structs.replace(spec, driver=driver, daemonsets=common, **beside)
    return msgspec.structs.replace(wanted, policy=msgspec.structs.replace(wanted.policy, spec=told))


def is_beside_some_driver(spec: ClusterPolicySpec, name: str) -> bool:
    """Whether the driver of some node has this sidecar, ``gds`` or ``gdrcopy``."""
    everywhere: Sidecar = getattr(spec, name)
    return everywhere.enabled or any(
        beside is not None and beside.enabled for each in spec.driver.profiles if (beside := getattr(each, name))
    )


def _in_common(common: DaemonSets, driver: DriverSpec) -> DaemonSets:
    more = tuple(each for each in driver.tolerations if each not in common.tolerations)
    return msgspec.structs.replace(
        common,
        labels={**common.labels, **driver.labels},
        annotations={**common.annotations, **driver.annotations},
        tolerations=(*common.tolerations, *more),
        priority_class_name=driver.priority_class_name or common.priority_class_name,
        pod_security_context=driver.pod_security_context or common.pod_security_context,
    )
