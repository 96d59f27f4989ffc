"""What the operator would do: one round shown as diffs, and the plan of a driver upgrade. Nothing is written."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from purser.kube import Client, KubeError
from purser.kube.clock import timestamp
from purser.kube.racing import until
from purser.operator.acting import DryWriter, perform
from purser.operator.kernel import nodes_to_look_into, projection, reconcile, upgrade_fleet
from purser.operator.model import Snapshot
from purser.operator.names import FINALIZER, GROUP, KIND, VERSION
from purser.operator.observing import Observer
from purser.operator.upgrade import Fleet, is_due, plan, plan_lines

READY_S = 60.0
"""How long the cluster may take to be listed."""

Say = Callable[[str], None]
Policy = Mapping[str, Any]


class PreviewError(KubeError):
    """Nothing can be shown; the message says why."""


async def preview(client: Client, namespace: str, purser_image: str, say: Say, policy: Policy | None = None) -> int:
    """Show what one round would write, and give the number of writes.

    ``policy``: as if this ClusterPolicy were applied. Raises `KubeError`.
    """
    async with _observing(client, namespace, purser_image) as observer:
        snapshot = await observer.snapshot(nodes_to_look_into)
    snapshot = with_policy(snapshot, policy) if policy is not None else snapshot
    return await show(snapshot, say)


async def preview_uninstall(client: Client, namespace: str, say: Say) -> int:
    """Show what uninstalling would remove in its first round, and give the number of writes. Raises `KubeError`."""
    async with _observing(client, namespace, "") as observer:
        snapshot = await observer.snapshot(nodes_to_look_into)
    now = timestamp(datetime.now(UTC))
    going = tuple(_with_metadata(each, deletionTimestamp=now) for each in snapshot.policies)
    return await show(msgspec.structs.replace(snapshot, policies=going), say)


async def show(snapshot: Snapshot, say: Say) -> int:
    """Show what a round would write that begins with this snapshot."""
    actions = reconcile(snapshot).actions
    await perform(actions, DryWriter(snapshot, say, projection))
    return len(actions)


async def planned(client: Client, namespace: str, purser_image: str, policy: Policy | None = None) -> list[str]:
    """What an upgrade of drivers would do, in lines. Raises `PreviewError` where there can be none, and `KubeError`."""

    def due(snapshot: Snapshot) -> frozenset[str]:
        fleet = _fleet(snapshot, policy)
        return frozenset(each.node.name for each in fleet.standings if is_due(each))

    async with _observing(client, namespace, purser_image) as observer:
        first = await observer.snapshot(nodes_to_look_into)
        wanted = due(first) | nodes_to_look_into(first.nodes)
        snapshot = await observer.snapshot(lambda nodes: wanted)
    return plan_lines(plan(_fleet(snapshot, policy)))


def _fleet(snapshot: Snapshot, policy: Policy | None) -> Fleet:
    found = upgrade_fleet(with_policy(snapshot, policy) if policy is not None else snapshot)
    if isinstance(found, str):
        raise PreviewError(found)
    return found


@asynccontextmanager
async def _observing(client: Client, namespace: str, purser_image: str) -> AsyncIterator[Observer]:
    """An observer that has listed everything, while the context lasts."""
    observer = Observer(client, namespace, purser_image, policies_may_be_unknown=True)
    running = asyncio.create_task(observer.run())
    try:
        await until(observer.ready(), asyncio.sleep(READY_S))
        if not observer.is_ready:
            raise PreviewError(f"the API server did not list everything within {READY_S:g} s: see the log")
        yield observer
    finally:
        running.cancel()
        await asyncio.wait({running})


def with_policy(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """As if a policy were applied: an existing one of its name gets its spec, else it is a new one."""
    name = (policy.get("metadata") or {}).get("name")
    if policy.get("apiVersion") != f"{GROUP}/{VERSION}" or policy.get("kind") != KIND or not name:
        raise PreviewError(f"this is no {KIND} of {GROUP}/{VERSION} with a name")
    known = {each["metadata"]["name"]: each for each in snapshot.policies}
    now = timestamp(datetime.fromtimestamp(snapshot.now, UTC))
    live = known.get(name) or {
        "apiVersion": policy["apiVersion"],
        "kind": KIND,
        "metadata": {"name": name, "uid": "not-applied", "creationTimestamp": now, "resourceVersion": "0"},
    }
    # With the finalizer: the round that only adds it shows nothing of what comes after.
    known[name] = _with_metadata({**live, "spec": policy.get("spec") or {}}, finalizers=[FINALIZER])
    return msgspec.structs.replace(snapshot, policies=tuple(known[each] for each in sorted(known)))


def _with_metadata(policy: Policy, **fields: Any) -> Policy:
    return {**policy, "metadata": {**policy["metadata"], **fields}}
