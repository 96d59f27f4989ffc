"""What the operator would do: one round shown as diffs, the plan of a driver upgrade, and all that uninstalling would
take away. Nothing is written.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from purser.core.decoding import brief
from purser.core.kubernetes.times import spelled
from purser.core.wording import natural_sort_key, some
from purser.kube import Client, KubeError, NotFoundError, Resource
from purser.kube.objects import Node
from purser.kube.racing import until
from purser.kube.resources import LEASES
from purser.operator.acting import DryWriter, perform
from purser.operator.chart_hooks import listed_by_agents, nodes_to_strip, written_by_agents
from purser.operator.deciding import blocked_removals, nodes_to_inspect, reconcile, upgrade_fleet
from purser.operator.deciding.policies import other_namespace
from purser.operator.manifests import GPU_DISCOVERY
from purser.operator.model import Action, Snapshot
from purser.operator.names import FINALIZER, GROUP, KIND, LEASE, OPERAND_LABEL, VERSION
from purser.operator.observing import Observer
from purser.operator.observing.kinds import DEFINITIONS, is_namespace, missing_namespace_text
from purser.operator.order import Operand
from purser.operator.policy import PolicyError, decode
from purser.operator.policy.crd import unknown_fields
from purser.operator.policy.decoding import MISSING_DEFINITION_MESSAGE, choose, is_name, name_of
from purser.operator.policy.fields import Image
from purser.operator.settings import DEFAULT_IMAGE
from purser.operator.uninstalling import DEFINITION, UninstallError
from purser.operator.upgrade import UpgradeInputs, UpgradePlan, is_due, plan

SNAPSHOT_TIMEOUT_S = 60.0
"""How long the cluster may take to be listed."""

PREVIEW_POLL_PERIOD_S = 0.1

Policy = Mapping[str, Any]


class PreviewError(KubeError):
    """Nothing can be shown; the message says why."""


class MisusedError(PreviewError):
    """What was asked makes no sense, whatever is in the cluster or because of it; the message says what does."""


async def preview(
    client: Client, namespace: str, purser_image: str, say: Callable[[str], None], policy: Policy | None = None
) -> int:
    """Show what one round would write, and give the number of writes.

    ``purser_image``: empty: as in the cluster. ``policy``: as if this ClusterPolicy were applied. Raises `MisusedError`
    for a policy that is none, and `KubeError`.
    """
    check(policy)
    async with observing(client, namespace, purser_image) as observer:
        snapshot = await observer.snapshot(nodes_to_inspect)
    _check_can_preview(snapshot, policy)
    if not await is_namespace(client, namespace):
        say(missing_namespace_text(namespace))
    if not snapshot.defined:
        say(MISSING_DEFINITION_MESSAGE)
    if not purser_image:
        snapshot = _with_own_image(snapshot, say)
    return await show(with_policy(snapshot, policy), say)


def _check_can_preview(snapshot: Snapshot, policy: Policy | None) -> None:
    if snapshot.other_namespace:
        raise PreviewError(other_namespace(snapshot))
    active = choose(with_policy(snapshot, policy).policies)
    if active.raw is not None and active.policy is None:
        raise PreviewError(f"{KIND} {name_of(active.raw)}: {active.problem}")


async def show(snapshot: Snapshot, say: Callable[[str], None]) -> int:
    """Show what a round would write that begins with this snapshot."""
    actions = reconcile(snapshot).actions
    await tell(actions, snapshot, say)
    return len(actions)


async def tell(actions: Sequence[Action], snapshot: Snapshot, say: Callable[[str], None]) -> None:
    """Say what actions would write. What ``say`` raises, such as BrokenPipeError, comes as it is."""
    lines: list[str] = []
    await perform(actions, DryWriter(snapshot, lines.append))
    for line in lines:
        say(line)


async def planned(client: Client, namespace: str, purser_image: str, policy: Policy | None = None) -> UpgradePlan:
    """What an upgrade of drivers would do. Raises `PreviewError` where there can be none, and `KubeError`."""
    check(policy)

    def due(snapshot: Snapshot) -> frozenset[str]:
        fleet = _fleet(snapshot, policy)
        return frozenset(each.node.name for each in fleet.node_progress if is_due(each))

    async with observing(client, namespace, purser_image) as observer:
        first = await observer.snapshot(nodes_to_inspect)
        if not first.other_namespace and not await is_namespace(client, namespace):
            raise PreviewError(missing_namespace_text(namespace))
        snapshot = await inspect_nodes(observer, due(first).union(nodes_to_inspect(first)))
    return plan(_fleet(snapshot, policy))


async def inspect_nodes(observer: Observer, nodes: frozenset[str]) -> Snapshot:
    """A snapshot with all pods of these nodes."""
    last = asyncio.get_running_loop().time() + SNAPSHOT_TIMEOUT_S
    while True:
        snapshot = await observer.snapshot(lambda _: nodes)
        if nodes <= set(snapshot.workloads):
            return snapshot
        if asyncio.get_running_loop().time() > last:
            unlisted = some(sorted(nodes.difference(snapshot.workloads), key=natural_sort_key), "node")
            within = f"within {SNAPSHOT_TIMEOUT_S:g} s"
            raise PreviewError(f"the API server did not list the pods of all nodes {within}; missing: {unlisted}")
        await asyncio.sleep(PREVIEW_POLL_PERIOD_S)


def _fleet(snapshot: Snapshot, policy: Policy | None) -> UpgradeInputs:
    snapshot = with_policy(snapshot, policy)
    active = choose(snapshot.policies).raw
    if policy is not None and active is not None and (name := name_of(policy)) != name_of(active):
        why = f"ClusterPolicy {name_of(active)} is active, so {name} would be Ignored"
        raise MisusedError(f"{why}: use the name {name_of(active)} to see what the spec would do")
    found = upgrade_fleet(snapshot)
    if isinstance(found, str):
        raise PreviewError(found)
    return found


def _with_own_image(snapshot: Snapshot, say: Callable[[str], None]) -> Snapshot:
    image = _find_own_image(snapshot)
    if not image:
        say(f"found no Purser image in the cluster, so {DEFAULT_IMAGE} is shown: use --image to choose another image")
    return msgspec.structs.replace(snapshot, purser_image=image or DEFAULT_IMAGE)


def _find_own_image(snapshot: Snapshot) -> str:
    """Of live operands that are Purser's, where the policy names no other image; empty: there is none."""
    policy = choose(snapshot.policies).policy
    if policy is None:
        return ""
    spec = policy.spec
    sections: dict[str, Image] = {GPU_DISCOVERY: spec.discovery, Operand.MIG_MANAGER: spec.mig_manager}
    if spec.device_plugin.flavor == "purser":
        sections[Operand.DEVICE_PLUGIN] = spec.device_plugin
    own = [name for name, each in sections.items() if not (each.repository or each.image or each.version)]
    images = (
        obj["spec"]["template"]["spec"]["containers"][0]["image"]
        for _, obj in sorted(snapshot.daemon_sets.items())
        if obj["metadata"]["labels"].get(OPERAND_LABEL) in own
    )
    return str(next(images, ""))


@asynccontextmanager
async def observing(client: Client, namespace: str, purser_image: str) -> AsyncIterator[Observer]:
    """An observer that has listed everything, while the context lasts."""
    observer = Observer(client, namespace, purser_image, policies_may_be_unknown=True)
    running = asyncio.create_task(observer.run())
    try:
        await until(observer.ready_or_refused(), asyncio.sleep(SNAPSHOT_TIMEOUT_S))
        if observer.missing:
            missing = ", ".join(observer.missing)
            raise PreviewError(f"could not read from the API server within {SNAPSHOT_TIMEOUT_S:g} s: {missing}")
        yield observer
    finally:
        running.cancel()
        await asyncio.wait({running})


def check(policy: Policy | None) -> None:
    """Raises `MisusedError` for what is not a ClusterPolicy, cannot be read, or has fields that an API server drops."""
    if policy is None:
        return
    metadata = policy.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    found = (policy.get("apiVersion"), policy.get("kind"))
    if found != (f"{GROUP}/{VERSION}", KIND):
        version, kind = (brief(each) if each else "none" for each in found)
        raise MisusedError(
            f"expected apiVersion: {GROUP}/{VERSION} and kind: {KIND}, but found apiVersion: {version} and kind: {kind}"
        )
    if not name:
        raise MisusedError(f"the {KIND} has no name: set metadata.name")
    if not isinstance(name, str) or not is_name(name):
        raise MisusedError(
            f"{KIND} {name}: invalid name: use lowercase letters, digits, - and ., in quotes if it is a number"
        )
    if unknown := unknown_fields(policy):
        raise MisusedError(f"{KIND} {name}: " + ", ".join(f'unknown field "{each}"' for each in unknown))
    try:
        decode({"metadata": {"name": name}, "spec": policy.get("spec")})
    except PolicyError as error:
        raise MisusedError(f"{KIND} {name}: {error}") from error


def with_policy(snapshot: Snapshot, policy: Policy | None) -> Snapshot:
    """As if a policy were applied: an existing one of its name gets its spec, else it is a new one."""
    if policy is None:
        return snapshot
    name = name_of(policy)
    known = {each["metadata"]["name"]: each for each in snapshot.policies}
    younger = spelled(snapshot.now + 1)  # than all, also those of this very second
    live = known.get(name) or {
        "apiVersion": policy["apiVersion"],
        "kind": KIND,
        "metadata": {"name": name, "uid": "not-applied", "creationTimestamp": younger, "resourceVersion": "0"},
    }
    # With the finalizer and claimed: the rounds that only do so show nothing of what comes after.
    status = {**(live.get("status") or {}), "namespace": snapshot.namespace}
    known[name] = _with_metadata({**live, "spec": policy.get("spec") or {}, "status": status}, finalizers=[FINALIZER])
    return msgspec.structs.replace(snapshot, policies=tuple(known[each] for each in sorted(known)))


def _with_metadata(policy: Policy, **fields: Any) -> Policy:
    return {**policy, "metadata": {**policy["metadata"], **fields}}


# --- uninstalling


async def preview_uninstall(
    client: Client, namespace: str, say: Callable[[str], None], *, definition: bool = False
) -> int:
    """Show everything that uninstalling would remove until nothing is left, and give the number of writes.

    What the removal of drivers would wait for now is said last. Raises `KubeError`.
    """
    async with observing(client, namespace, "") as observer:
        snapshot = await observer.snapshot(nodes_to_inspect)
        if snapshot.other_namespace:
            raise UninstallError(other_namespace(snapshot))
        snapshot = _with_deleted_policies(snapshot)
        snapshot = _with_deleted_policies(await inspect_nodes(observer, nodes_to_inspect(snapshot)))
    if not await is_namespace(client, namespace):
        say(missing_namespace_text(namespace))
    actions = reconcile(_without_pods(snapshot)).actions
    await tell(actions, snapshot, say)
    others = [*_policies(snapshot), *await _remaining(client, namespace, definition)]
    for line in others:
        say(line)
    for each in blocked_removals(_with_only_drivers(snapshot)):
        say(f"waits for {each}")
    return len(actions) + len(others)


def _with_deleted_policies(snapshot: Snapshot) -> Snapshot:
    now = spelled(snapshot.now)
    policies = ({**each, "metadata": {**each["metadata"], "deletionTimestamp": now}} for each in snapshot.policies)
    return msgspec.structs.replace(snapshot, policies=tuple(policies))


def _without_pods(snapshot: Snapshot) -> Snapshot:
    """As it will be once no pod holds anything up: one round takes all the rest away."""
    return msgspec.structs.replace(snapshot, policies=(), pods=(), workloads={})


def _with_only_drivers(snapshot: Snapshot) -> Snapshot:
    """As it will be once all operands have gone that go by themselves."""
    drivers = tuple(pod for pod in snapshot.pods if pod.operand == Operand.DRIVER)
    return msgspec.structs.replace(snapshot, pods=drivers)


def _policies(snapshot: Snapshot) -> Iterator[str]:
    for each in snapshot.policies:
        yield f"delete ClusterPolicy {name_of(each)}"


async def _remaining(client: Client, namespace: str, definition: bool) -> list[str]:
    """What no round removes."""
    lines = [_describe_strip(node) for node in await nodes_to_strip(client, namespace)]
    if await _exists(client, LEASES, LEASE, namespace):
        lines.append(f"delete Lease {namespace}/{LEASE}, unless an operator is running")
    if definition and await _exists(client, DEFINITIONS, DEFINITION, None):
        lines.append(f"delete CustomResourceDefinition {DEFINITION}")
    return lines


def _describe_strip(node: Node) -> str:
    written = [*written_by_agents(node), *listed_by_agents(node)]
    return f"patch Node {node.metadata.name}: remove what agents wrote: {', '.join(written)}"


async def _exists(client: Client, resource: Resource[Any], name: str, namespace: str | None) -> bool:
    try:
        await client.get(resource, name, namespace)
    except NotFoundError:
        return False
    return True
