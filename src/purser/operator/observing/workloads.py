"""Pods of nodes that are to be emptied. They are listed when they are asked for: all pods of a cluster are too many."""

import asyncio
from collections.abc import Collection

from purser.kube import Client
from purser.operator.model import Workload
from purser.operator.names import OPERAND_LABEL
from purser.operator.observing.objects import OPERATOR_PODS, Pod
from purser.operator.observing.views import workload_view

AT_A_TIME = 8
"""Lists under way at once."""


async def workloads_of(client: Client, nodes: Collection[str], namespace: str) -> dict[str, tuple[Workload, ...]]:
    """By node: every pod but the operands', which are in the operator's namespace. Raises `KubeError`."""
    slots = asyncio.Semaphore(AT_A_TIME)

    async def one(node: str) -> tuple[Workload, ...]:
        async with slots:
            listed = await client.list(OPERATOR_PODS, field_selector=f"spec.nodeName={node}")
        found = (workload_view(pod) for pod in listed.items if not _is_operand(pod, namespace))
        return tuple(sorted(found, key=lambda each: (each.namespace, each.name)))

    names = sorted(nodes)
    return dict(zip(names, await asyncio.gather(*(one(name) for name in names)), strict=True))


def _is_operand(pod: Pod, namespace: str) -> bool:
    return pod.metadata.namespace == namespace and OPERAND_LABEL in pod.metadata.labels
