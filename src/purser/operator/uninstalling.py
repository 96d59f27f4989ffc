"""The way out: everything that the operator made is taken away, with an operator that runs or without one, in rounds
until nothing is left.

Not here: what a round removes, and in which order (``deciding``); what agents wrote (``chart_hooks``); what would go,
shown (``previewing``).
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack

import structlog

from purser.core.wording import some
from purser.kube import ApiError, Client, ClusterConfig, KubeError, LeaderElector, NotFoundError
from purser.kube.objects import Node
from purser.kube.racing import until
from purser.kube.resources import LEASES
from purser.operator.acting import RoundResult, perform, subject
from purser.operator.chart_hooks import nodes_to_strip, strip_node
from purser.operator.deciding import blocked_removals, is_clean, nodes_to_inspect, reconcile
from purser.operator.deciding.isolation import without
from purser.operator.deciding.policies import other_namespace
from purser.operator.model import Action, Delete, ObjectKey, PatchNode, Raw, Snapshot
from purser.operator.names import FIELD_MANAGER, FINALIZER, GROUP, LEASE, PLURAL
from purser.operator.observing import Observer
from purser.operator.observing.kinds import DEFINITIONS, is_namespace, missing_namespace_text
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.policy.decoding import is_leaving
from purser.operator.writing import KubeWriter


def remaining(snapshot: Snapshot, actions: Sequence[Action], held: Sequence[str]) -> list[str]:
    """One line for each sort of things, the most telling first; empty where nothing is left.

    ``actions`` are what a round has to do, ``held`` the sentences on what keeps it from doing more.
    """
    objects = [str(each.key) for each in actions if isinstance(each, Delete)]
    nodes = [each.node for each in actions if isinstance(each, PatchNode)]
    alive = snapshot.alive
    pods = [f"{pod.namespace}/{pod.name} on {pod.node}" for pod in snapshot.pods if pod.node in alive]
    lines = [
        *_listed("nodes that block the removal", held),
        *_listed("objects", objects),
        *_listed("labels and annotations on nodes", nodes),
    ]
    lines += _listed("operand pods", pods)
    return lines or _listed("policies", map(_policy, snapshot.policies))


def _listed(heading: str, names: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(names))
    if not found:
        return []
    return [f"{heading}: {some(found)}"]


def _policy(policy: Raw) -> str:
    metadata = policy["metadata"]
    others = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
    why = f" (deletion blocked by other finalizers: {', '.join(others)})" if others else ""
    return f"ClusterPolicy {metadata['name']}{why}"


log = structlog.get_logger("purser.operator")

COMPONENT = "purser-uninstall"
DEFINITION = f"{PLURAL}.{GROUP}"
UNINSTALL_POLL_PERIOD_S = 0.2
UNINSTALL_MESSAGE_PERIOD_S = 5.0
"""Between two words on what is waited for."""


class UninstallError(KubeError):
    """Something is left; the message names it and who should have removed it."""


async def uninstall(
    config: ClusterConfig,
    namespace: str,
    *,
    definition: bool = False,
    timeout_s: float = 300.0,
    say: Callable[[str], None],
) -> None:
    """Delete all ClusterPolicies, and return once no object, label or annotation of the operator is left.

    A running operator cleans up itself. Without one its lease is free: it is taken, and the same rounds are done here.
    ``definition``: remove the CustomResourceDefinition, too. ``say`` is called with what was done and what is waited
    for. No pods are deleted for it: a driver whose GPUs a pod uses stays until that pod has ended. Raises
    `UninstallError` when time is up; what is left can be removed by another run.
    """
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(config, field_manager=FIELD_MANAGER, user_agent=COMPONENT))
        observer = Observer(client, namespace, "", policies_may_be_unknown=True)
        identity = f"{COMPONENT}_{secrets.token_hex(4)}"
        elector = LeaderElector(client, namespace, LEASE, identity)
        leaving = _Uninstall(client, namespace, observer, elector, say)
        try:
            async with asyncio.timeout(timeout_s):
                if not await until(leaving.run(), _run_observer_and_elector(observer, elector)):
                    raise UninstallError(
                        f"the cluster could not be watched (see the log); not removed: {leaving.what_is_left}"
                    )
        except TimeoutError:
            if observer.missing:
                missing = ", ".join(observer.missing)
                raise UninstallError(f"could not read from the API server within {timeout_s:g} s: {missing}") from None
            raise UninstallError(f"not removed within {timeout_s:g} s: {leaving.what_is_left}") from None
        await _remove_lease(client, namespace, identity)
        if definition:
            await _remove_definition(client, say)


async def _run_observer_and_elector(observer: Observer, elector: LeaderElector) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(observer.run())
        group.create_task(elector.run())


class _Uninstall:
    """Rounds until nothing is left, by the leader."""

    def __init__(
        self, client: Client, namespace: str, observer: Observer, elector: LeaderElector, say: Callable[[str], None]
    ):
        self._client = client
        self._namespace = namespace
        self._observer = observer
        self._elector = elector
        self._writer = KubeWriter(client, observer)
        self._say = say
        self.what_is_left = "the cluster's objects have not been listed yet"
        """In one sentence."""
        self._reported: list[str] = []
        self._say_next = 0.0
        self._refused: set[str] = set()

    async def run(self) -> bool:
        """True, once nothing is left."""
        await self._observer.ready_or_refused()
        self._say_next = _now() + UNINSTALL_MESSAGE_PERIOD_S
        while True:
            if await self._round():
                return True
            await asyncio.sleep(UNINSTALL_POLL_PERIOD_S)

    async def _round(self) -> bool:
        """Whether nothing is left; if something is, some of it is removed now where this process leads."""
        snapshot = await self._observer.snapshot(nodes_to_inspect)
        if snapshot.other_namespace:
            raise UninstallError(other_namespace(snapshot))
        outcome = reconcile(snapshot)
        actions, snapshot = outcome.actions, without(snapshot, outcome.isolated)
        if not snapshot.policies and not actions and is_clean(snapshot):
            return await self._strip_after_agents()
        if not self._elector.is_leader and not await is_namespace(self._client, self._namespace):
            raise UninstallError(missing_namespace_text(self._namespace))
        await self._delete_policies(snapshot)
        self._report_waiting(remaining(snapshot, actions, blocked_removals(snapshot)))
        if self._elector.is_leader and all(is_leaving(each) for each in snapshot.policies):
            result = await perform(actions, self._writer, lambda: self._elector.is_leader)
            self._report_refusals(result)
        return False

    def _report_waiting(self, left: list[str]) -> None:
        """What is waited for; not what takes moments, and nothing twice in a row."""
        who = "this command" if self._elector.is_leader else "the operator that holds the lease"
        self.what_is_left = f"{'; '.join(left)} (to be removed by {who})"
        if left != self._reported and _now() >= self._say_next:
            for line in left:
                self._say(f"waiting for {line}")
            self._reported, self._say_next = left, _now() + UNINSTALL_MESSAGE_PERIOD_S

    def _report_refusals(self, result: RoundResult) -> None:
        for failure in result.failures:
            if failure.permanent:
                self._report_refusal(subject(failure.action), failure.error)

    def _report_refusal(self, what: ObjectKey, why: str) -> None:
        line = f"refused: {what}: {why}"
        if line not in self._refused:
            self._refused.add(line)
            self._say(line)

    async def _strip_after_agents(self) -> bool:
        """Take away what agents wrote; true, once none of it is found."""
        nodes = await nodes_to_strip(self._client, self._namespace)
        names = some([node.metadata.name for node in nodes])
        self.what_is_left = f"agents' annotations, conditions, taints and resources on nodes: {names}"
        for node in nodes:
            await self._strip(node)
        return not nodes

    async def _strip(self, node: Node) -> None:
        try:
            await strip_node(self._client, node)
        except NotFoundError:
            log.debug("A node was already gone", node=node.metadata.name)
        except ApiError as error:
            self._report_refusal(ObjectKey.of_node(node.metadata.name), str(error))

    async def _delete_policies(self, snapshot: Snapshot) -> None:
        for policy in snapshot.policies:
            metadata = policy["metadata"]
            if is_leaving(policy):
                continue
            try:
                await self._client.delete(CLUSTER_POLICIES, metadata["name"], uid=metadata["uid"])
                self._say(f"ClusterPolicy {metadata['name']}: deletion requested")
            except NotFoundError:
                log.debug("A policy was already gone", policy=metadata["name"])


async def _remove_lease(client: Client, namespace: str, identity: str) -> None:
    """Where no operator runs: the lease is free."""
    try:
        lease = await client.get(LEASES, LEASE, namespace)
        if lease.spec.holder_identity in ("", identity):
            await client.delete(LEASES, LEASE, namespace, uid=lease.metadata.uid)
    except NotFoundError:
        log.debug("The lease does not exist", lease=LEASE)


async def _remove_definition(client: Client, say: Callable[[str], None]) -> None:
    try:
        await client.delete(DEFINITIONS, DEFINITION)
        say(f"CustomResourceDefinition {DEFINITION} was removed")
    except NotFoundError:
        say(f"CustomResourceDefinition {DEFINITION} does not exist")


def _now() -> float:
    return asyncio.get_running_loop().time()
