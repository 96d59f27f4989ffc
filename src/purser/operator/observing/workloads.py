"""Pods of nodes that are to be emptied, or whose driver is to leave: followed while there are such nodes. All pods of a
cluster are many."""

import asyncio
from collections.abc import Callable, Collection
from typing import Never

from purser.kube import Client, Informer, key_of
from purser.kube.racing import until
from purser.operator.model import NodeWorkload
from purser.operator.names import OPERAND_LABEL
from purser.operator.observing.views import workload_view
from purser.operator.observing.workload_pods import WORKLOAD_PODS, WorkloadPod

POD_LIST_TIMEOUT_S = 10.0
"""How long a round waits for a list of all pods: then it goes on, and another one comes when the list is there."""


class Workloads:
    """One informer on all pods, kept by node, that runs while `run` does and a node's pods are needed."""

    def __init__(self, client: Client, namespace: str, on_change: Callable[[], None]):
        """``on_change`` is called when an asked node's pods changed, or are known at last."""
        self._client = client
        self._namespace = namespace
        self._on_change = on_change
        self._wanted: frozenset[str] = frozenset()
        """What the last round asked for."""
        self._listing: frozenset[str] = frozenset()
        """Of these nodes pods are being listed, and they are wanted since before that began: a list that is older than
        the node's cordon may lack the pod that came just before it."""
        self._known: frozenset[str] = frozenset()
        """Of these they were listed."""
        self._by_node: dict[str, dict[str, WorkloadPod]] = {}
        self._change = asyncio.Condition()
        """Of what is wanted or known."""

    async def run(self) -> Never:
        """Follow all pods whenever a node is asked for, until cancelled."""
        while True:
            await self._until(lambda: bool(self._wanted))
            try:
                await until(self._follow(), self._until(lambda: not self._wanted))
            finally:
                self._by_node.clear()
                self._known = frozenset()

    async def on(self, nodes: Collection[str]) -> dict[str, tuple[NodeWorkload, ...]]:
        """Every pod but the operands', by node. A node that is left out is one whose pods are not known yet."""
        wanted = frozenset(nodes)
        has_new = not wanted <= self._wanted
        self._wanted, self._listing, self._known = wanted, self._listing & wanted, self._known & wanted
        await self._changed()
        if has_new:
            await until(self._until(lambda: self._wanted <= self._known), asyncio.sleep(POD_LIST_TIMEOUT_S))
        return {node: self._workloads_on(node) for node in sorted(self._known)}

    async def _follow(self) -> Never:
        informer = Informer(self._client, WORKLOAD_PODS)
        informer.add_handler(self._put, lambda old, new: self._put(new, old), self._drop)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            while True:
                await self._until(lambda: not self._wanted <= self._known)
                self._listing = self._wanted
                await informer.wait_for_relist()
                self._known |= self._listing
                await self._changed()
                self._on_change()

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with self._change:
            await self._change.wait_for(holds)

    async def _changed(self) -> None:
        async with self._change:
            self._change.notify_all()

    def _put(self, pod: WorkloadPod, old: WorkloadPod | None = None) -> None:
        node = pod.spec.node_name
        if not node or self._is_operand(pod):
            return
        self._by_node.setdefault(node, {})[key_of(pod)] = pod
        if node in self._wanted and (old is None or workload_view(old) != workload_view(pod)):
            self._on_change()

    def _drop(self, pod: WorkloadPod) -> None:
        there = self._by_node.get(pod.spec.node_name, {})
        if there.pop(key_of(pod), None) is not None and pod.spec.node_name in self._wanted:
            self._on_change()

    def _workloads_on(self, node: str) -> tuple[NodeWorkload, ...]:
        found = (workload_view(pod) for pod in self._by_node.get(node, {}).values())
        return tuple(sorted(found, key=lambda each: (each.namespace, each.name)))

    def _is_operand(self, pod: WorkloadPod) -> bool:
        return pod.metadata.namespace == self._namespace and OPERAND_LABEL in pod.metadata.labels
