"""Pods that were released while their processes may still run: no container starts on top of them.

kubelet takes the devices of a pod back as soon as the API server has no pod of that uid, and ends its containers then,
with the pod's grace period (HandlePodRemoves; after its own restart HandlePodCleanups). Pods are deleted by force, and
vanish when an older snapshot of etcd is restored. The pod that gets the devices is admitted, and waits here: kubelet
fails a pod that a plugin refuses in Allocate, and starts a container again that it refuses in PreStartContainer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from purser.agent.allocation.book import Book
from purser.core.ledger import Violation, pod_usage
from purser.core.model import Grant

START_WAIT_S = 20.0
"""kubelet waits 30 s for PreStartContainer (KubeletPreStartContainerRPCTimeoutInSecs)."""

SCAN_PERIOD_S = 0.5
"""Each scan reads a file of every process of the node."""


class LingeringPods:
    """Looks for the processes of released pods, one look at a time."""

    def __init__(self, book: Book, with_processes: Callable[[Collection[str]], Awaitable[frozenset[str]]]) -> None:
        """``with_processes``: those of some pods, by uid, that have processes on the node."""
        self._book = book
        self._with_processes = with_processes
        self._scanning = asyncio.Lock()

    async def wait(self, uuids: Collection[str]) -> tuple[Violation, Grant] | None:
        """Return once no released pod overcommits these GPUs by processes that it still has; after `START_WAIT_S`, what
        they overcommit, and one of the pods."""
        deadline = asyncio.get_running_loop().time() + START_WAIT_S
        while (found := await self._look(frozenset(uuids))) is not None:
            if asyncio.get_running_loop().time() >= deadline:
                return found
            await asyncio.sleep(SCAN_PERIOD_S)
        return None

    async def _look(self, uuids: frozenset[str]) -> tuple[Violation, Grant] | None:
        if self._overcommitted(uuids) is None:
            return None
        async with self._scanning:
            released = {grant.pod_uid for grant in self._book.lingering}
            running = await self._with_processes(released)
            self._book.forget_lingering(released - running)
        return self._overcommitted(uuids)

    def _overcommitted(self, uuids: frozenset[str]) -> tuple[Violation, Grant] | None:
        suspects = [grant for grant in self._book.lingering if not uuids.isdisjoint(pod_usage(grant))]
        if not suspects:
            return None
        found = (each for each in self._book.violations(suspects) if each.uuid in uuids)
        return next(((each, holder) for each in found for holder in _grants_on(each.uuid, suspects)), None)


def _grants_on(uuid: str, grants: Iterable[Grant]) -> Iterable[Grant]:
    return (grant for grant in grants if uuid in pod_usage(grant))
