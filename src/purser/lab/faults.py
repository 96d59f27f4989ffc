"""Faults that are asked for with kubectl: an annotation on a node names the GPUs that are lost.

``kubectl annotate node NAME purser.dev/lab-lost-gpus=0,3`` loses two GPUs, taking the annotation away brings them
back.
"""

from collections.abc import Mapping
from typing import Protocol

import structlog

from purser.kube.client import Client
from purser.kube.informer import Informer
from purser.kube.objects import Node
from purser.kube.resources import NODES

LOST_GPUS_ANNOTATION = "purser.dev/lab-lost-gpus"
"""On a node of the lab: the GPUs that are lost, by their place from 0, separated by commas."""

_log = structlog.get_logger("purser.lab")


class FailingGpus(Protocol):
    """What a simulated driver can be told."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """The node's GPUs, in order."""
        ...

    def lose_gpu(self, gpu: int | str) -> None:
        """A GPU falls off the bus."""
        ...

    def recover_gpu(self, gpu: int | str) -> None:
        """It is back."""
        ...


async def follow_annotations(client: Client, drivers: Mapping[str, FailingGpus]) -> None:
    """Lose and recover GPUs as the annotations of their nodes say, until cancelled."""
    lost: dict[str, frozenset[int]] = {}

    def follow(node: Node) -> None:
        name = node.metadata.name
        driver = drivers.get(name)
        if driver is None:
            return
        before = lost.get(name, frozenset())
        try:
            now = lost_gpus(node.metadata.annotations.get(LOST_GPUS_ANNOTATION, ""), len(driver.uuids))
        except ValueError as error:
            _log.warning("an annotation was not understood", node=name, error=str(error))
            return
        for gpu in sorted(now - before):
            driver.lose_gpu(gpu)
        for gpu in sorted(before - now):
            driver.recover_gpu(gpu)
        lost[name] = now

    nodes = Informer(client, NODES)
    nodes.add_handler(on_add=follow, on_update=lambda _old, node: follow(node))
    await nodes.run()


def lost_gpus(text: str, count: int) -> frozenset[int]:
    """The places that an annotation names. Raises ValueError for what is no place of one of ``count`` GPUs."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    bad = [word for word in words if not word.isdecimal() or int(word) >= count]
    if bad:
        raise ValueError(f"{LOST_GPUS_ANNOTATION}={text}: {bad[0]} is no GPU: write numbers from 0 to {count - 1}")
    return frozenset(map(int, words))
