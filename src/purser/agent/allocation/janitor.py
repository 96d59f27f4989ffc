"""Takes pods off the book when they end, and rebuilds the book after a restart.

That a pod has ended is the API server's word; what kubelet lists for it stays in the book until kubelet lets go.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from purser.adapters.pods import ref_of_grant
from purser.agent.allocation.arbiter import Arbiter
from purser.agent.allocation.book import Book
from purser.agent.allocation.holding import pods_still_listed
from purser.agent.allocation.pods import NodePods
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import PODS

log = structlog.get_logger("purser.agent")

ENDED_PODS_CHECK_PERIOD_S = 60.0
"""Between two looks for pods in the book that are over: they came and went while the informer was cut off, say."""

UNLISTED_CHECK_PERIOD_S = 1.0
"""Between two looks whether kubelet lets go of what pods hold that are over: it gives no notice."""


class Janitor:
    """Follows the pods of the node."""

    def __init__(
        self,
        pods: NodePods,
        book: Book,
        arbiter: Arbiter,
        kubelet: KubeletBooks,
        on_released: Callable[[], None] = lambda: None,
        on_learned: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_released``: called when pods are off the book, and kubelet has let go of what they held. ``on_learned``:
        when what kubelet lists is in the book."""
        self._pods = pods
        self._book = book
        self._arbiter = arbiter
        self._kubelet = kubelet
        self._on_released = on_released
        self._on_learned = on_learned
        self._failures = pods.pods.failures
        self._ended: asyncio.Queue[Pod] = asyncio.Queue()
        self._lingers = asyncio.Event()
        """Pods are over, and kubelet had not let go of their devices at the last look."""
        pods.pods.add_handler(
            on_add=self._look,
            on_update=lambda _, new: self._look(new),
            on_delete=self._ended.put_nowait,
        )

    async def run(self) -> None:
        """Release until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._failures.keep_going("learning", self._complete_book))
            tasks.create_task(self._release_forever())
            tasks.create_task(self._failures.keep_going("sweeping", self._sweep_forever))
            tasks.create_task(self._failures.keep_going("letting go", self._release_unlisted_forever))

    async def sweep(self) -> None:
        """Release pods that are in the book and over: the API server has none of them, or they have ended, and kubelet
        lists nothing for them any more."""
        pods = {uid: self._pods.pods.store.by_uid(uid) for uid in self._book.pods}
        over = [uid for uid, pod in pods.items() if pod is None or is_terminal(pod)]
        if await self._arbiter.release_ended(await self._release_unlisted(over)):
            self._on_released()

    async def _release_unlisted(self, uids: Iterable[str]) -> list[str]:
        """Those of some pods for which kubelet lists nothing that the book has; where it does not answer, those that
        are not in the book."""
        over = tuple(uids)
        booked = self._book.pods.keys() & over
        if not booked:
            return list(over)
        try:
            held = booked & pods_still_listed(self._book.pods, await self._kubelet.list())
        except KubeletError as error:
            log.warning("Cannot check with kubelet whether finished pods still hold devices", error=str(error))
            held = booked
        if held:
            self._lingers.set()
        return [uid for uid in over if uid not in held]

    async def _complete_book(self) -> None:
        """Complete the book with what kubelet lists; each Allocate does so too, this is for metrics until then."""
        try:
            listing = await self._kubelet.list()
        except KubeletError as error:
            log.warning("Cannot list allocations from kubelet; using the checkpoint", error=str(error))
            return
        news, grants = 0, self._pods.view().grants
        for listed in listing:
            if listed.key in grants:
                with self._failures.guard(PODS, ref_of_grant(grants[listed.key])):
                    news += self._book.adopt_listing((listed,), grants)
        if news:
            await self._book.save()
        self._on_learned()
        log.info("Completed the checkpoint from kubelet's list", pods=len(self._book.pods), learned_from_kubelet=news)
        for violation in self._book.violations():
            log.error("A GPU is overcommitted", uuid=violation.uuid, problem=violation.problem)

    async def _release_forever(self) -> None:
        while True:
            pod = await self._ended.get()
            with self._failures.guard(PODS, pod):
                for uid in await self._release_unlisted((pod.metadata.uid,)):
                    was_booked = uid in self._book.pods
                    await self._arbiter.release(uid)
                    if was_booked:
                        self._on_released()

    async def _release_unlisted_forever(self) -> None:
        while True:
            await self._lingers.wait()
            await asyncio.sleep(UNLISTED_CHECK_PERIOD_S)
            self._lingers.clear()
            await self.sweep()

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(ENDED_PODS_CHECK_PERIOD_S)
            await self.sweep()

    def _look(self, pod: Pod) -> None:
        if is_terminal(pod):
            self._ended.put_nowait(pod)
        elif pod.status.phase == "Running":
            self._book.run(pod.metadata.uid)
