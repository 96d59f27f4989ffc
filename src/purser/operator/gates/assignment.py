"""Where a node belongs: its runtime, and its driver pool.

Nodes with equal operating system, kernel and driver profile share a driver DaemonSet. A node of a new kind makes a pool
of its own and changes no other."""

import re
from collections.abc import Collection, Iterable
from hashlib import sha256

import msgspec

from purser.core.names import POOL_LABEL
from purser.core.wording import natural_sort_key
from purser.operator.gates.facts import (
    facts_of,
    is_excluded,
    os_of,
    presence_of,
    product_of,
    runtime_of,
    user_override,
    workload_of,
)
from purser.operator.manifests import runtime_class_key
from purser.operator.model import (
    NodeAssignment,
    NodeView,
    Pool,
    Presence,
    Runtime,
    Snapshot,
)
from purser.operator.names import GPU_PRODUCT_LABEL
from purser.operator.order import Operand
from purser.operator.policy import ClusterPolicy
from purser.operator.policy.driver import DriverProfile, DriverRequirement, DriverSpec
from purser.operator.policy.fields import DEFAULTS
from purser.operator.policy.spec import ClusterPolicySpec

MAX_NAME = 40
_HASH = 8
UNKNOWN_OS = (
    "the operating system is unknown, so no driver image matches: install node-feature-discovery, enable"
    " spec.discovery, or set the label nvidia.com/gpu.deploy.driver=false and install the driver on the node"
)
UNKNOWN_MODEL = (
    "the driver depends on the GPU model, which is not known yet: waiting for the node's purser-gpu-discovery pod"
)


def pool_obstacle(node: NodeView, spec: ClusterPolicySpec) -> str:
    """What a node waits for before its pool can be determined, in one sentence; empty: nothing.

    The first driver has to be the right one. There is no wait for a GPU that discovery saw and does not know.
    """
    known = bool(product_of(node)) or facts_of(node) is not None
    if known or not spec.discovery.enabled or not _depends_on_model(node, spec.driver):
        return ""
    return UNKNOWN_MODEL


def _depends_on_model(node: NodeView, driver: DriverSpec) -> bool:
    """Whether a selector would select the node if its GPU's model were the right one."""
    for profile in driver.profiles:
        if _selects(profile.node_selector, node):
            break
        if _selects_by_model(profile.node_selector, node):
            return True
    return any(_selects_by_model(each.node_selector, node) for each in driver.requirements)


def _selects_by_model(selector: dict[str, str], node: NodeView) -> bool:
    others = {key: value for key, value in selector.items() if key != GPU_PRODUCT_LABEL}
    return len(others) < len(selector) and _selects(others, node)


def pool_of(node: NodeView, driver: DriverSpec) -> Pool | str:
    """Where a node belongs, or in one sentence why it can get no driver."""
    profile = next((each for each in driver.profiles if _selects(each.node_selector, node)), None)
    pool = _pool(node, driver, profile)
    if pool is None:
        return UNKNOWN_OS
    return requirement_obstacle(node, pool.version, driver.requirements) or pool


def labelled_pool(node: NodeView, driver: DriverSpec) -> Pool | None:
    """The pool that a node's label names, where the policy still knows it: of another profile, or ruled out by now."""
    label = node.labels.get(POOL_LABEL)
    if not label:
        return None
    candidates: Iterable[DriverProfile | None] = (None, *driver.profiles)
    pools = (_pool(node, driver, profile) for profile in candidates)
    return next((pool for pool in pools if pool is not None and pool.name == label), None)


def requirement_obstacle(node: NodeView, version: str, requirements: Collection[DriverRequirement]) -> str:
    """Why a driver version is ruled out on a node; empty: it is not."""
    for requirement in requirements:
        if not _selects(requirement.node_selector, node):
            continue
        if (numbers := _numbers(version)) is None:
            why = f" ({requirement.reason})" if requirement.reason else ""
            return (
                f"{f'driver {version}' if version else 'a driver of unknown version'} cannot be checked against "
                f"spec.driver.requirements{why}: set its version to one such as 570.86.10, not to a digest"
            )
        if problem := _problem(numbers, requirement):
            return f"driver {version} {problem}" + (f": {requirement.reason}" if requirement.reason else "")
    return ""


def _problem(numbers: tuple[int, ...], requirement: DriverRequirement) -> str:
    if requirement.minimum and numbers < (_numbers(requirement.minimum) or ()):
        return f"is older than {requirement.minimum}, the minimum for this node"
    for excluded in requirement.excluded:
        prefix = _numbers(excluded) or ()
        if numbers[: len(prefix)] == prefix:
            return f"matches {excluded}, which is excluded on this node"
    return ""


def _numbers(version: str) -> tuple[int, ...] | None:
    found = re.match(r"\d+(?:\.\d+)*(?=-|$)", version)
    return tuple(int(part) for part in found[0].split(".")) if found else None


def _pool(node: NodeView, driver: DriverSpec, profile: DriverProfile | None) -> Pool | None:
    """Whatever requirements say; None: its operating system is unknown."""
    system = os_of(node)
    if system is None:
        return None
    runtime: Runtime = "crio" if system[0] == "rhel" and runtime_of(node).runtime == "crio" else "containerd"
    return Pool(
        name=_name(*system, node.kernel, profile.name if profile else "", runtime),
        os_id=system[0],
        os_version=system[1],
        kernel=node.kernel,
        profile=profile.name if profile else "",
        version=_version(driver, profile),
        runtime=runtime,
    )


def _version(driver: DriverSpec, profile: DriverProfile | None) -> str:
    given = (profile.version if profile else "") or driver.version
    image = (profile.image if profile else "") or driver.image
    whole = re.search(r"[@:]([^/]+)$", image)
    return given or (whole[1] if whole else "" if "/" in image else DEFAULTS["driver"][2])


def _name(os_id: str, os_version: str, kernel: str, profile: str, runtime: str) -> str:
    suffixes = [] if runtime == "containerd" else [runtime]
    key = "\n".join((os_id, os_version, kernel, profile, *suffixes))
    slug = re.sub(r"[^a-z0-9]+", "-", "-".join(filter(None, (os_id + os_version, *suffixes, profile, kernel))).lower())
    return f"{slug[: MAX_NAME - _HASH - 1].strip('-')}-{sha256(key.encode()).hexdigest()[:_HASH]}"


def _selects(selector: dict[str, str], node: NodeView) -> bool:
    return all(
        node.labels.get(key) == value or (key == GPU_PRODUCT_LABEL and product_of(node) == value)
        for key, value in selector.items()
    )


def wanted_pools(found: Iterable[NodeAssignment], policy: ClusterPolicy) -> tuple[Pool, ...]:
    """Pools of nodes, and those that nodes still carry: their drivers run until an upgrade moves them."""
    driver = policy.spec.driver
    pools: dict[str, Pool] = {}
    for assignment in found:
        carried = (
            labelled_pool(assignment.node, driver) if driver.enabled and assignment.presence.state != "gone" else None
        )
        pools |= {pool.name: pool for pool in (assignment.pool, carried) if pool is not None}
    return tuple(pools[name] for name in sorted(pools))


def node_assignments(snapshot: Snapshot, spec: ClusterPolicySpec) -> tuple[NodeAssignment, ...]:
    """Nodes that have or had GPUs, ordered by name."""
    found = []
    for node in sorted(snapshot.nodes, key=lambda node: natural_sort_key(node.name)):
        presence = presence_of(node, snapshot, spec.discovery.gone_after_seconds)
        if presence.state != "never":
            found.append(_assignment(node, presence, spec))
    return tuple(found)


def _assignment(node: NodeView, presence: Presence, spec: ClusterPolicySpec) -> NodeAssignment:
    runtime = runtime_class_key(runtime_of(node), spec)
    bare = NodeAssignment(
        node=node,
        presence=presence,
        runtime=runtime,
        workload=workload_of(node, spec),
        excluded=is_excluded(node, spec),
    )
    if presence.state == "gone" or bare.excluded or not spec.driver.enabled or user_override(node, Operand.DRIVER):
        return bare
    if waits := pool_obstacle(node, spec):
        return msgspec.structs.replace(bare, waits=waits)
    pool = pool_of(node, spec.driver)
    if isinstance(pool, str):
        return msgspec.structs.replace(bare, obstacle=pool)
    return msgspec.structs.replace(bare, pool=pool)
