"""What this node is to list of the amounts that pods ask for, kept up to date: see `purser.core.node.amounts`."""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from purser.adapters.pods import pod_spec
from purser.agent.allocation.pods import NodePods
from purser.agent.host.latest import Latest
from purser.core.ledger import pod_usage
from purser.core.model import NodeInventory
from purser.core.node.amounts import Amounts, Holder, asked_amounts, listed_amounts
from purser.kube.objects import Pod

T = TypeVar("T")


class NodeAmounts:
    """Keeps ``listed`` what it should be: None until the GPUs, the pods and their grants are known."""

    def __init__(
        self,
        pods: NodePods,
        inventory: Latest[NodeInventory | None],
        cordoned: Latest[tuple[str, ...]],
        units_mib: Mapping[str, int],
    ) -> None:
        """``cordoned``: uuids of the node's cordoned GPUs. ``units_mib``: as `listed_amounts` takes them."""
        self._units_mib = units_mib
        self._pods = pods
        self._inventory = inventory
        self._cordoned = cordoned
        self._look = asyncio.Event()
        self.listed: Latest[Amounts | None] = Latest(None)
        """What is to be listed."""
        pods.pods.add_handler(on_add=self._on_pod, on_update=lambda _, new: self._on_pod(new), on_delete=self._on_pod)
        pods.key_maps.add_handler(
            on_add=lambda _: self._look.set(),
            on_update=lambda *_: self._look.set(),
            on_delete=lambda _: self._look.set(),
        )

    async def run(self) -> None:
        """Follow pods and GPUs until cancelled."""
        await self._pods.pods.synced()
        await self._pods.key_maps.synced()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(self._inventory))
            tasks.create_task(self._follow(self._cordoned))
            tasks.create_task(self._pods.pods.failures.keep_going("counting amounts", self._recount_forever))

    async def _follow(self, latest: Latest[T]) -> None:
        value = latest.value
        while True:
            value = await latest.wait_for_change(value)
            self._look.set()

    async def _recount_forever(self) -> None:
        self._look.set()
        while True:
            await self._look.wait()
            self._look.clear()
            inventory = self._inventory.value
            if inventory is not None:
                inventory = msgspec.structs.replace(inventory, cordoned=self._cordoned.value)
                self.listed.set(listed_amounts(inventory, self._holders(), self._units_mib))

    def _holders(self) -> list[Holder]:
        view = self._pods.view()
        live = {key: self._pods.get(key) for key in view.live}
        asking = [(key, pod, asked_amounts(pod_spec(pod))) for key, pod in live.items() if pod is not None]
        grants = view.grants
        return [
            Holder(asks, pod_usage(grants[key]) if key in grants else {}, self._pods.awaits_grant(pod))
            for key, pod, asks in asking
            if asks
        ]

    def _on_pod(self, pod: Pod) -> None:
        if asked_amounts(pod_spec(pod)):
            self._look.set()
