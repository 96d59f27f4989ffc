"""What uninstalling would take away, shown before it is done."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from purser.core.kubernetes.times import spelled
from purser.kube import Client, NotFoundError, Resource
from purser.kube.objects import Node
from purser.kube.resources import LEASES
from purser.operator.deciding import blocked_removals, nodes_to_inspect, reconcile
from purser.operator.deciding.policies import other_namespace
from purser.operator.model import Snapshot
from purser.operator.names import LEASE
from purser.operator.observing.kinds import DEFINITIONS, is_namespace, no_namespace
from purser.operator.order import Operand
from purser.operator.policy.active import name_of
from purser.operator.previewing import inspected, observing, tell
from purser.operator.uninstall.clean_up import listed_by_agents, nodes_to_strip, written_by_agents
from purser.operator.uninstall.uninstalling import DEFINITION, UninstallError

Say = Callable[[str], None]


async def preview_uninstall(client: Client, namespace: str, say: Say, *, definition: bool = False) -> int:
    """Show everything that uninstalling would remove until nothing is left, and give the number of writes.

    What the removal of drivers would wait for now is said last. Raises `KubeError`.
    """
    async with observing(client, namespace, "") as observer:
        snapshot = await observer.snapshot(nodes_to_inspect)
        if snapshot.other_namespace:
            raise UninstallError(other_namespace(snapshot))
        snapshot = _leaving(snapshot)
        snapshot = _leaving(await inspected(observer, nodes_to_inspect(snapshot)))
    if not await is_namespace(client, namespace):
        say(no_namespace(namespace))
    actions = reconcile(_emptied(snapshot)).actions
    await tell(actions, snapshot, say)
    others = [*_policies(snapshot), *await _rest(client, namespace, definition)]
    for line in others:
        say(line)
    for each in blocked_removals(_with_drivers_alone(snapshot)):
        say(f"waits for {each}")
    return len(actions) + len(others)


def _leaving(snapshot: Snapshot) -> Snapshot:
    now = spelled(snapshot.now)
    policies = ({**each, "metadata": {**each["metadata"], "deletionTimestamp": now}} for each in snapshot.policies)
    return msgspec.structs.replace(snapshot, policies=tuple(policies))


def _emptied(snapshot: Snapshot) -> Snapshot:
    """As it will be once no pod holds anything up: one round takes all the rest away."""
    return msgspec.structs.replace(snapshot, policies=(), pods=(), workloads={})


def _with_drivers_alone(snapshot: Snapshot) -> Snapshot:
    """As it will be once all operands have gone that go by themselves."""
    drivers = tuple(pod for pod in snapshot.pods if pod.operand == Operand.DRIVER)
    return msgspec.structs.replace(snapshot, pods=drivers)


def _policies(snapshot: Snapshot) -> Iterator[str]:
    for each in snapshot.policies:
        yield f"delete ClusterPolicy {name_of(each)}"


async def _rest(client: Client, namespace: str, definition: bool) -> list[str]:
    """What no round removes."""
    lines = [_stripped(node) for node in await nodes_to_strip(client, namespace)]
    if await _is_there(client, LEASES, LEASE, namespace):
        lines.append(f"delete Lease {namespace}/{LEASE}: unless an operator runs")
    if definition and await _is_there(client, DEFINITIONS, DEFINITION, None):
        lines.append(f"delete CustomResourceDefinition {DEFINITION}")
    return lines


def _stripped(node: Node) -> str:
    written = [*written_by_agents(node), *listed_by_agents(node)]
    return f"patch Node {node.metadata.name}: agents wrote {', '.join(written)}"


async def _is_there(client: Client, resource: Resource[Any], name: str, namespace: str | None) -> bool:
    try:
        await client.get(resource, name, namespace)
    except NotFoundError:
        return False
    return True
