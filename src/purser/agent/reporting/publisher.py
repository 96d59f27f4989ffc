"""Publishes the node's inventory, what its kubelet does, and what pods hold beyond their grants, as annotations on its
Node, and the amounts that it lists, as its capacity: on change only, and again when one was removed. What pods
hold beyond their grants, and what is wrong with GPUs, are Node conditions, for users."""

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec
import structlog

from purser.adapters.nodes import InventoryError, published_inventory
from purser.agent.host.latest import Latest
from purser.agent.kubelet.registration import KubeletConnection
from purser.agent.reasons import AgentReason
from purser.agent.reporting.disputes import DisputeWatch
from purser.agent.reporting.volcano_handshake import VolcanoHandshake
from purser.core.grant.disputes import DisputeReason, NodeDisputes, closed_gpus, sentence, text_of
from purser.core.health.messages import HealthCondition
from purser.core.model import NodeInventory
from purser.core.names import (
    AGENT_STOPPING,
    DISPUTED_CONDITION,
    DISPUTES_ANNOTATION,
    HEALTH_CONDITION,
    INVENTORY_ANNOTATION,
    KUBELET_ANNOTATION,
)
from purser.core.node.amounts import Amounts, changed_amounts
from purser.core.sriov.pcie import NodePcie, pcie_of, with_pcie
from purser.core.vendors.hami_nodes import REGISTER_ANNOTATION, registration
from purser.core.vendors.volcano_nodes import VGPU_REGISTER_ANNOTATION, vgpu_registration
from purser.kube.backoff import Backoff, WritePace
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock, timestamp
from purser.kube.errors import KubeError
from purser.kube.informer import Informer
from purser.kube.objects import Node
from purser.kube.resources import NODES

log = structlog.get_logger("purser.agent")

T = TypeVar("T")

MAX_CONDITION = 1024
"""Characters of its message."""

WRITE_PAUSE_S = 0.2
"""After a write: the informer sees its effect meanwhile."""

MAX_WRITE_PAUSE_S = 5.0
"""After a write that is undone repeatedly. Changes of GPUs wait for it, too."""

KUBELET_HEAD_START_S = 1.0
"""Before more healthy GPUs are published than were: kubelet hears of them meanwhile. A pod that the scheduler puts on
a GPU which kubelet does not offer yet is refused for good."""

KUBELET_LIST_TIMEOUT_S = 15.0
"""And how long kubelet may take to ask for its list at all, as it has yet to of an agent that has just started. It may
not be there: then the GPUs are published all the same, and kube-scheduler goes by what kubelet lists."""

MAX_LISTING_BACKOFF_S = 10.0
"""Between two tries to list amounts: shares wait for the node meanwhile, and rules that refuse it are soon replaced."""

MAX_CONDITION_BACKOFF_S = 30.0
"""Between two tries to write a condition of the node."""

LEAVING_NOTICE_TIMEOUT_S = 2.0
"""How long an agent that stops tries to publish that."""


class Publisher:
    """Keeps the annotations of one Node equal to the inventory and to the report of its kubelet, and the node's listed
    amounts equal to these.

    The report's text is empty where there must be none, and None while it is unknown. ``nodes`` knows this one
    Node, and is run here.
    """

    def __init__(
        self,
        client: Client,
        nodes: Informer[Node],
        node: str,
        inventory: Latest[NodeInventory | None],
        kubelet_report: Latest[str | None],
        disputes: DisputeWatch,
        amounts: Latest[Amounts | None],
        connection: Latest[KubeletConnection],
        health: Latest[HealthCondition | None],
        pcie: Latest[NodePcie | None] | None = None,
    ) -> None:
        """``pcie``: of the node's SR-IOV pools; None: it has none."""
        self._pcie = pcie
        self._connection = connection
        self._health = health
        self._client = client
        self._node = node
        self._amounts = amounts
        self._inventory = inventory
        self._kubelet_report = kubelet_report
        self._disputes = disputes
        self._clock = SystemClock()
        self._pace = WritePace(WRITE_PAUSE_S, MAX_WRITE_PAUSE_S, self._clock)
        self._look = asyncio.Event()
        self._is_leaving = False
        self._backoff = Backoff(initial_s=0.5, cap_s=30.0)
        self._volcano = VolcanoHandshake(client, self._clock, self._look)
        self._listing = _Retry(MAX_LISTING_BACKOFF_S, self._clock, self._look)
        self._conditions = {
            type_: _Retry(MAX_CONDITION_BACKOFF_S, self._clock, self._look)
            for type_ in (DISPUTED_CONDITION, HEALTH_CONDITION)
        }
        self.nodes = nodes
        self.nodes.add_handler(
            on_add=lambda _: self._look.set(),
            on_update=lambda *_: self._look.set(),
            on_delete=lambda _: self._look.set(),
        )
        self.problem = "the inventory has not been published yet"
        """Why the annotations are not what they should be; empty when they are."""
        self.untried = "the node's resource amounts have not been published yet"
        """That listing them was not tried yet; empty once it was. Where rules refuse it, as those of an older release
        do until they are replaced, the agent serves its node all the same, and its roll-out must go on."""
        self.lists_amounts = False
        """Whether the node lists the amounts that it should."""

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.nodes.run())
            tasks.create_task(self._follow(self._inventory))
            tasks.create_task(self._follow(self._kubelet_report))
            tasks.create_task(self._follow(self._disputes.report))
            tasks.create_task(self._follow(self._amounts))
            tasks.create_task(self._follow(self._health))
            if self._pcie is not None:
                tasks.create_task(self._follow(self._pcie))
            tasks.create_task(self.nodes.failures.keep_going("publishing", self._publish_forever))

    async def leave(self) -> None:
        """Publish to the scheduler, not to kubelet, that no GPU is available any more; returns once that is published,
        or cannot be. kubelet keeps its devices: it asks for pods that are bound already."""
        self._is_leaving = True
        self._look.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_NOTICE_TIMEOUT_S):
                while self._published_healthy():
                    await self._clock.sleep(WRITE_PAUSE_S)

    async def _follow(self, latest: Latest[T]) -> None:
        value = latest.value
        while True:
            self._look.set()
            value = await latest.wait_for_change(value)

    async def _publish_forever(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if not self._is_leaving and _healthy(self._inventory.value) - self._published_healthy():
                await self._wait_for_kubelet()
                await self._clock.sleep(KUBELET_HEAD_START_S)
            try:
                await self._publish_now()
            except Exception:
                self._look.set()  # else nothing is published before something changes
                raise

    async def _wait_for_kubelet(self) -> None:
        """Return once kubelet listens to this agent's list."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KUBELET_LIST_TIMEOUT_S):
                while not (connection := self._connection.value).ready:
                    await self._connection.wait_for_change(connection)

    async def _publish_now(self) -> None:
        disputes = self._disputes.report.value
        wanted, node = self._wanted_annotations(disputes), self.nodes.store.get(self._node)
        if not wanted:
            return
        if node is None:
            self.problem = f"Node {self._node} does not exist yet"
            return
        await self._publish(wanted, node)
        if self.problem:
            return
        await self._list_amounts(node)
        if disputes is not None:
            self._disputes.published(disputes)
            text = sentence(disputes)
            disputed = ("True", DisputeReason.GPU_DISPUTED, text) if text else None
            await self._publish_condition(DISPUTED_CONDITION, disputed, node)
        await self._publish_condition(HEALTH_CONDITION, _health_condition(self._health.value), node)
        if not self._is_leaving:
            await self._volcano.answer(node)

    def _wanted_annotations(self, disputes: NodeDisputes | None) -> dict[str, str | None]:
        """The annotations that ought to be there, None for one that ought not.

        None before both are known: the scheduler would grant GPUs that kubelet might then reject.
        """
        inventory, report = self._inventory.value, self._kubelet_report.value
        if inventory is None or report is None:
            return {}
        if self._pcie is not None:
            inventory = with_pcie(inventory, self._pcie.value or self._published_pcie())
        if self._is_leaving:
            inventory = _all_unhealthy(inventory)
        wanted = {INVENTORY_ANNOTATION: msgspec.json.encode(inventory).decode(), KUBELET_ANNOTATION: report or None}
        node, closed = self.nodes.store.get(self._node), _disputed_gpus(inventory, disputes)
        there = {} if node is None else node.metadata.annotations
        if REGISTER_ANNOTATION in there:  # HAMi's scheduler knows the node
            wanted[REGISTER_ANNOTATION] = registration(inventory, closed)
        if VGPU_REGISTER_ANNOTATION in there:  # Volcano's does
            wanted[VGPU_REGISTER_ANNOTATION] = vgpu_registration(inventory, closed)
        if disputes is not None:  # what the previous agent published stays until this one has looked
            wanted[DISPUTES_ANNOTATION] = None if disputes.is_empty else text_of(disputes)
        return wanted

    def _published_healthy(self) -> set[str]:
        """What the scheduler goes by now; everything where it has no inventory yet and so uses nothing."""
        node = self.nodes.store.get(self._node)
        try:
            published = published_inventory(node) if node is not None else None
        except InventoryError:
            published = None
        return _healthy(published) if published is not None else _healthy(self._inventory.value)

    def _published_pcie(self) -> NodePcie:
        """What the agent before this one has published: pools are looked at later than GPUs."""
        node = self.nodes.store.get(self._node)
        try:
            published = published_inventory(node) if node is not None else None
        except InventoryError:
            published = None
        return NodePcie() if published is None else pcie_of(published)

    async def _publish(self, wanted: dict[str, str | None], node: Node) -> None:
        there = node.metadata.annotations
        changes = {name: text for name, text in wanted.items() if there.get(name) != text}
        if not changes:
            self.problem = ""
            self._backoff.reset()
            return
        try:
            await self._client.patch_merge(NODES, self._node, {"metadata": {"annotations": changes}})
            self.problem = ""
            for name, text in changes.items():
                log.info("Updated an annotation of the node", node=self._node, annotation=name, bytes=len(text or ""))
            await self._clock.sleep(self._pace.after("annotations", (node.metadata.uid, changes)))
        except KubeError as error:
            delay = self._backoff.next()
            self.problem = f"cannot update the node's annotations: {error}"
            log.warning("Cannot update the node's annotations", error=str(error), retry_in_s=round(delay, 2))
            await self._clock.sleep(delay)
            self._look.set()

    async def _list_amounts(self, node: Node) -> None:
        """After the inventory: what is listed wakes kube-scheduler, which asks the scheduler about the GPUs then.

        kubelet makes the allocatable amounts of the capacity, but not before its next report, and pods would wait. A
        listing that was refused is tried again later, and holds up no news of GPUs meanwhile.
        """
        amounts = self._amounts.value
        if amounts is None or not self._listing.is_due():
            return
        there = {"capacity": node.status.capacity, "allocatable": node.status.allocatable}
        changes = {field: changed_amounts(amounts, listed) for field, listed in there.items()}
        if not any(changes.values()):
            self.untried, self.lists_amounts = "", True
            self._listing.reset()
            return
        try:
            await self._client.patch_merge(NODES, self._node, {"status": changes}, subresource="status")
            self.untried, self.lists_amounts = "", True
            log.info("Updated the node's resource amounts", node=self._node, **changes["capacity"])
            await self._clock.sleep(self._pace.after("amounts", (node.metadata.uid, amounts)))
        except KubeError as error:
            delay = self._listing.schedule_retry()
            self.untried, self.lists_amounts = "", False
            log.warning("Cannot update the node's resource amounts", error=str(error), retry_in_s=round(delay, 2))

    async def _publish_condition(self, type_: str, wanted: tuple[str, str, str] | None, node: Node) -> None:
        """``wanted`` are status, reason and message. The condition is for people: what becomes of it keeps nothing
        else from being published, and a write that was refused is tried again later."""
        retry = self._conditions[type_]
        if not retry.is_due():
            return
        there = next((each for each in node.status.conditions if each.type == type_), None)
        status, reason, message = wanted or ("", "", "")
        message = message[:MAX_CONDITION]
        if (status, message) == ((there.status, there.message) if there else ("", "")):
            retry.reset()
            return
        now = timestamp(self._clock.now())
        entry: dict[str, Any] = {"type": type_, "$patch": "delete"}
        if wanted:
            entry = {"type": type_, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now}
            entry |= {} if there and there.status == status else {"lastTransitionTime": now}
        patch = {"status": {"conditions": [entry]}}
        try:
            await self._client.patch_merge(NODES, self._node, patch, subresource="status", strategic=True)
            await self._clock.sleep(self._pace.after(type_, (node.metadata.uid, wanted)))
        except KubeError as error:
            delay = round(retry.schedule_retry(), 2)
            log.warning("Cannot update a condition of the node", condition=type_, error=str(error), retry_in_s=delay)


class _Retry:
    """When a write that was refused is tried again, while other writes go on; ``look`` is set then."""

    def __init__(self, cap_s: float, clock: Clock, look: asyncio.Event) -> None:
        self._backoff = Backoff(initial_s=0.5, cap_s=cap_s)
        self._clock = clock
        self._look = look
        self._due = 0.0
        """By the monotonic clock."""

    def is_due(self) -> bool:
        """Whether it may be tried now."""
        return self._clock.monotonic() >= self._due

    def schedule_retry(self) -> float:
        """After a failure; returns the seconds until the next try."""
        delay = self._backoff.next()
        self._due = self._clock.monotonic() + delay
        asyncio.get_running_loop().call_later(delay, self._look.set)
        return delay

    def reset(self) -> None:
        """It worked."""
        self._backoff.reset()


def _disputed_gpus(inventory: NodeInventory, disputes: NodeDisputes | None) -> Collection[str]:
    """The GPUs in dispute; all before the first comparison."""
    return (
        [device.uuid for device in inventory.devices] if disputes is None else closed_gpus(disputes, lambda uid: True)
    )


def _health_condition(health: HealthCondition | None) -> tuple[str, str, str] | None:
    """Status, reason and message of the condition of GPUs' health."""
    if health is None:
        return None
    if health.unhealthy:
        return "True", AgentReason.GPU_UNHEALTHY, health.message
    return "False", AgentReason.GPU_DEGRADED, health.message


def _all_unhealthy(inventory: NodeInventory) -> NodeInventory:
    """The same with no GPU that is healthy; those that were not keep their reason."""
    replace = msgspec.structs.replace
    devices = (
        replace(each, healthy=False, unhealthy_reason=AGENT_STOPPING) if each.healthy else each
        for each in inventory.devices
    )
    return replace(inventory, devices=tuple(devices))


def _healthy(inventory: NodeInventory | None) -> set[str]:
    return {device.uuid for device in inventory.devices if device.healthy} if inventory else set()
