"""What nodes that HAMi's device plugin serves list of memory and compute.

kube-scheduler counts these words (`purser.core.node.amounts`), and HAMi's plugin lists ``nvidia.com/gpu`` alone:
without an agent on such a node, the scheduler lists them. They are what all its GPUs have, well or ill, so that they
change with the registration alone: which pod fits, the extender says.
"""

from collections.abc import Callable, Mapping

import msgspec
import structlog

from purser.adapters.nodes import InventoryError, hami_inventory
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.core.node.amounts import Amounts, changed_amounts, listed_amounts
from purser.kube.client import Client
from purser.kube.informer import Informer
from purser.kube.objects import Node
from purser.kube.resources import NODES
from purser.kube.workqueue import WorkQueue, run_workers
from purser.scheduler.leadership_gate import INACTIVE_RECHECK_PERIOD_S

log = structlog.get_logger("purser.scheduler")


class HamiAmounts:
    """Keeps the amounts in the status of such nodes what they should be."""

    def __init__(
        self, client: Client, nodes: Informer[Node], is_active: Callable[[], bool], units_mib: Mapping[str, int]
    ) -> None:
        """``is_active``: whether this replica is the one that acts. ``units_mib``: as `listed_amounts` takes them."""
        self._units_mib = units_mib
        self._client = client
        self._nodes = nodes
        self._is_active = is_active
        self._queue: WorkQueue[str] = WorkQueue()

    async def run(self) -> None:
        """Follow the nodes until cancelled."""
        self._nodes.add_handler(self._put, lambda _, node: self._put(node))
        await run_workers(self._queue, self._reconcile)

    def _put(self, node: Node) -> None:
        if self._changes(node):
            self._queue.add(node.metadata.name)

    async def _reconcile(self, name: str) -> None:
        node = self._nodes.store.get(name)
        changes = {} if node is None else self._changes(node)
        if not changes:
            return
        if not self._is_active():
            self._queue.add_after(name, INACTIVE_RECHECK_PERIOD_S)
            return
        await self._client.patch_merge(NODES, name, {"status": changes}, subresource="status")
        log.info("Published a HAMi node's amounts", node=name)

    def _changes(self, node: Node) -> dict[str, dict[str, str | None]]:
        """What must be written of the node's status."""
        wanted = _wanted_amounts(node, self._units_mib)
        if wanted is None:
            return {}
        there = {"capacity": node.status.capacity, "allocatable": node.status.allocatable}
        changes = {field: changed_amounts(_unlisted_amounts(wanted, listed), {}) for field, listed in there.items()}
        return changes if any(changes.values()) else {}


def _unlisted_amounts(wanted: Amounts, listed: Mapping[str, QuantityLike]) -> Amounts:
    """Those that are not listed, or too low: HAMi's mock device plugin has kubelet list some, which kubelet repeats."""
    return {name: amount for name, amount in wanted.items() if name not in listed or _value(listed[name]) < amount}


def _value(amount: QuantityLike) -> int:
    try:
        return quantity_ceil(amount)
    except QuantityError:
        return 0


def _wanted_amounts(node: Node, units_mib: Mapping[str, int]) -> Amounts | None:
    try:
        inventory = hami_inventory(node)
    except InventoryError:  # the cache tells of it
        return None
    if inventory is None:
        return None
    as_healthy = (msgspec.structs.replace(device, healthy=True) for device in inventory.devices)
    return listed_amounts(msgspec.structs.replace(inventory, devices=tuple(as_healthy), cordoned=()), (), units_mib)
