"""Takes everything away that the operator made, also where no operator runs any more."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import structlog

from purser.core.names import INVENTORY_ANNOTATION, KUBELET_ANNOTATION
from purser.kube import Client, ClusterConfig, KubeError, LeaderElector, NotFoundError
from purser.kube.racing import until
from purser.kube.resources import LEASES, NODES
from purser.operator.acting import KubeWriter, perform
from purser.operator.acting.writer import describe
from purser.operator.kernel import nodes_to_look_into, reconcile
from purser.operator.model import Raw, Snapshot
from purser.operator.names import FIELD_MANAGER, GROUP, LEASE, OPERAND_LABEL, PLURAL
from purser.operator.observing import Observer
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.order import Operand
from purser.operator.policy import CLUSTER_POLICIES

log = structlog.get_logger("purser.operator")

COMPONENT = "purser-uninstall"
LOOK_S = 0.2

Say = Callable[[str], None]


class UninstallError(KubeError):
    """Something is left; the message names it and who should have removed it."""


async def uninstall(
    config: ClusterConfig, namespace: str, *, definition: bool = False, timeout_s: float = 300.0, say: Say
) -> None:
    """Delete all ClusterPolicies, and return once no object, label or annotation of the operator is left.

    A running operator cleans up itself. Without one its lease is free: it is taken, and the same rounds are done here.
    ``definition``: remove the CustomResourceDefinition, too. Raises `UninstallError` when time is up.
    """
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(config, field_manager=FIELD_MANAGER, user_agent=COMPONENT))
        observer = Observer(client, namespace, "", policies_may_be_unknown=True)
        elector = LeaderElector(client, namespace, LEASE, f"{COMPONENT}_{secrets.token_hex(4)}")
        leaving = _Leaving(client, observer, elector, say)
        try:
            async with asyncio.timeout(timeout_s):
                if not await until(leaving.run(), _both(observer, elector)):
                    raise UninstallError(
                        f"the cluster could not be followed: see the log; left: {leaving.what_is_left}"
                    )
        except TimeoutError:
            raise UninstallError(f"after {timeout_s:g} s still there: {leaving.what_is_left}") from None
        if leaving.did_it_here:
            await _remove_lease(client, namespace)
        if definition:
            await _remove_definition(client, say)


async def _both(observer: Observer, elector: LeaderElector) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(observer.run())
        group.create_task(elector.run())


class _Leaving:
    """Rounds until nothing is left, done by whoever leads."""

    def __init__(self, client: Client, observer: Observer, elector: LeaderElector, say: Say):
        self._client = client
        self._observer = observer
        self._elector = elector
        self._writer = KubeWriter(client, observer)
        self._say = say
        self.what_is_left = "nothing is known of the cluster yet"
        """In one sentence."""
        self._had_agents = False
        self._is_stripped = False
        self.did_it_here = False
        """No operator ran: this process led."""

    async def run(self) -> bool:
        """True, once nothing is left."""
        await self._observer.ready()
        while True:
            snapshot = await self._observer.snapshot(nodes_to_look_into)
            await self._delete_policies(snapshot)
            self._had_agents |= bool(snapshot.policies) or _agents_are_there(snapshot)
            outcome = reconcile(snapshot)
            if self._had_agents and not self._is_stripped and not _agents_are_there(snapshot):
                await self._strip_what_agents_wrote()
                self._is_stripped = True
            if not snapshot.policies and not outcome.actions:
                return True
            left = [f"{words['kind']} {words['name']}" for words in map(describe, outcome.actions)]
            left = left or [f"ClusterPolicy {each['metadata']['name']}" for each in snapshot.policies]
            who = "this command cleans up" if self._elector.is_leader else "the running operator is waited for"
            self.what_is_left = f"{', '.join(left[:5])}{', ...' if len(left) > 5 else ''} ({who})"
            if self._elector.is_leader and all(_is_going(each) for each in snapshot.policies):
                self.did_it_here = True
                await perform(outcome.actions, self._writer, lambda: self._elector.is_leader)
            await asyncio.sleep(LOOK_S)

    async def _strip_what_agents_wrote(self) -> None:
        """Inventories stay while the operator does: an agent that is replaced writes the same ones again."""
        for node in (await self._client.list(NODES)).items:
            written = [key for key in (INVENTORY_ANNOTATION, KUBELET_ANNOTATION) if key in node.metadata.annotations]
            if written:
                patch = {"metadata": {"annotations": dict.fromkeys(written)}}
                with suppress(NotFoundError):
                    await self._client.patch_merge(NODES, node.metadata.name, patch)

    async def _delete_policies(self, snapshot: Snapshot) -> None:
        for policy in snapshot.policies:
            metadata = policy["metadata"]
            if _is_going(policy):
                continue
            try:
                await self._client.delete(CLUSTER_POLICIES, metadata["name"], uid=metadata["uid"])
                self._say(f"ClusterPolicy {metadata['name']} was asked to go")
            except NotFoundError:
                log.debug("A policy went by itself", policy=metadata["name"])


async def _remove_lease(client: Client, namespace: str) -> None:
    try:
        await client.delete(LEASES, LEASE, namespace)
    except NotFoundError:
        log.debug("There is no lease", lease=LEASE)


async def _remove_definition(client: Client, say: Say) -> None:
    name = f"{PLURAL}.{GROUP}"
    try:
        await client.delete(DEFINITIONS, name)
        say(f"CustomResourceDefinition {name} was removed")
    except NotFoundError:
        say(f"CustomResourceDefinition {name} is not there")


def _agents_are_there(snapshot: Snapshot) -> bool:
    """The operator's. Where it never was, those that the chart installed are left alone."""
    made = any(_is_agents(obj) for obj in snapshot.objects.values())
    return made or any(pod.operand == Operand.DEVICE_PLUGIN for pod in snapshot.pods)


def _is_agents(obj: Raw) -> bool:
    labels = obj["metadata"].get("labels") or {}
    return obj["kind"] == "DaemonSet" and labels.get(OPERAND_LABEL) == Operand.DEVICE_PLUGIN


def _is_going(policy: object) -> bool:
    return isinstance(policy, dict) and bool(policy["metadata"].get("deletionTimestamp"))
