"""Answers kubelet's three questions: which ids to prefer, what a container gets, and whether it may start.

It carries out signed grants and decides nothing, with one exception: it refuses what would overcommit a card whatever
the scheduler believes. It is the last arbiter.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from purser.agent.admission import Demand, Preference, key_of_grant, owner_of, stranger_on
from purser.agent.allocation import Answer, NodeFacts, answer, cache_dir, enforcement_of
from purser.agent.book import Book, BookedContainer
from purser.agent.hostfiles import make_shared_dir, remove_dir
from purser.agent.podresources import KubeletBooks
from purser.agent.pods import NodePods, container_facts
from purser.agent.refusals import Reason, Refused
from purser.agent.resolver import Found, Resolver
from purser.agent.settings import AgentSettings
from purser.core.ledger import LedgerError
from purser.core.model import Enforcement, Grant
from purser.kube.adapters import is_terminal
from purser.kube.errors import KubeError
from purser.kube.objects import Pod

log = structlog.get_logger("purser.agent")


class Arbiter:
    """kubelet's questions, one at a time: as kubelet admits pods."""

    def __init__(
        self,
        settings: AgentSettings,
        kubelet: KubeletBooks,
        pods: NodePods,
        book: Book,
        resolver: Resolver,
        node_facts: Callable[[], NodeFacts],
    ) -> None:
        self._settings = settings
        self._kubelet = kubelet
        self._pods = pods
        self._book = book
        self._resolver = resolver
        self._node_facts = node_facts
        self._turn = asyncio.Lock()

    async def prefer(self, ask: Preference) -> tuple[str, ...]:
        """The ids on the devices of the pod under admission. Records nothing. Raises `Refused`, `KubeletError`."""
        async with self._turn:
            found = await self._resolver.find(ask)
            return ask.answer(found.turn.part)

    async def allocate(self, demand: Demand) -> Answer:
        """What the container under admission gets with these ids. Raises `Refused`, `KubeletError`."""
        async with self._turn:
            found = await self._resolver.find(demand)
            try:
                return await self._allocate(demand, found)
            except Refused:
                self._resolver.remember_refused(found.turn.grant.pod_uid)
                raise

    async def check_start(self, ids: tuple[str, ...]) -> None:
        """Compare kubelet's books with the grant once more. Raises `Refused`, `KubeletError`."""
        owner = owner_of(ids, await self._kubelet.list())
        if owner is None:  # an init container, which kubelet does not list
            self._check_booked(ids)
            return
        pod, container = owner
        grant = await self._grant(pod.key)
        part = None if grant is None else grant.of(container)
        if grant is None or part is None:
            raise Refused(
                Reason.NO_GRANT,
                f"kubelet gave {', '.join(ids)} to {pod.key} container {container}, without a grant",
                [pod.key],
            )
        if not Demand(ids).fits(part):
            raise Refused(
                Reason.MISMATCH,
                f"kubelet's books say {', '.join(ids)} for {pod.key} container {container},"
                f" the grant {', '.join(part.uuids)}: delete and create the pod again",
                [pod.key],
            )
        if self._book.reassign(grant, container, ids):
            await self._book.save()

    async def release(self, pod_uid: str) -> None:
        """The pod has ended: its devices are free, its accounting files go."""
        self._resolver.forget(pod_uid)
        booked = self._book.release(pod_uid)
        if booked is None:
            return
        await self._book.save()
        for container in booked.containers:
            part = booked.grant.of(container)
            if part is not None:
                folder = cache_dir(booked.grant, part, str(self._settings.hami_core_dir))
                await asyncio.to_thread(remove_dir, self._settings, Path(folder))
        log.info("released a pod's devices", pod=key_of_grant(booked.grant), uid=pod_uid)

    async def release_ended(self, pod_uids: Iterable[str]) -> int:
        """Release those of some pods on the book that the API server says are over; how many were."""
        keys = {uid: key_of_grant(self._book.pods[uid].grant) for uid in pod_uids}
        try:
            found = await self._pods.fetch(set(keys.values()))
        except KubeError as error:
            log.warning("cannot look for pods that may have ended", error=str(error))
            return 0
        ended = [uid for uid, key in keys.items() if _is_over(found[key], uid)]
        for uid in ended:
            await self.release(uid)
        return len(ended)

    async def _allocate(self, demand: Demand, found: Found) -> Answer:
        grant, part = found.turn.grant, found.turn.part
        facts, node = container_facts(found.pod, part.container), self._node_facts()
        self._check_health(found, node)
        self._check_strangers(found)
        enforcement = enforcement_of(part, facts, node.enforcement)
        if enforcement is Enforcement.HAMI_CORE:
            await self._make_folders(found)
        try:
            await self._enter(found, BookedContainer(demand.ids, enforcement))
        except LedgerError as error:
            raise self._refused(
                Reason.OVERCOMMIT, found, f"{error}: another pod was given that first. Delete and create the pod again"
            ) from error
        await self._book.save()
        log.info("allocated devices", pod=found.key, container=part.container, ids=demand.ids, enforcement=enforcement)
        return answer(grant, part, facts, node)

    async def _enter(self, found: Found, given: BookedContainer) -> None:
        """Enter it in the book.

        Pods that ended are looked for before a refusal: scheduler and kubelet may know sooner than the informer.
        """
        grant, container = found.turn.grant, found.turn.part.container
        self._book.adopt_listing(found.listing, found.view.grants)  # what kubelet gave out is taken, book or no book
        try:
            self._book.allocate(grant, container, given)
        except LedgerError:
            rivals = [uid for uid, pod in self._book.pods.items() if _devices(pod.grant) & _devices(grant)]
            if not await self.release_ended(rivals):
                raise
            self._book.allocate(grant, container, given)

    def _check_health(self, found: Found, node: NodeFacts) -> None:
        for uuid in found.turn.part.uuids:
            device = node.devices.get(uuid)
            if device is not None and not device.healthy:
                raise self._refused(Reason.UNHEALTHY, found, f"device {uuid} is unhealthy: {device.unhealthy_reason}")

    def _check_strangers(self, found: Found) -> None:
        booked = {key_of_grant(pod.grant) for pod in self._book.pods.values()}
        held = stranger_on(found.turn.part.uuids, found.listing, found.view.strangers - booked)
        if held is not None:
            pod, uuid = held
            raise self._refused(
                Reason.STRANGER,
                found,
                f"pod {pod.key} holds device {uuid} without a grant of Purser's: delete it, or wait until it ends",
            )

    async def _make_folders(self, found: Found) -> None:
        folder = cache_dir(found.turn.grant, found.turn.part, str(self._settings.hami_core_dir))
        try:
            await asyncio.to_thread(make_shared_dir, self._settings, Path(folder))
            await asyncio.to_thread(make_shared_dir, self._settings, self._settings.hami_lock_dir)
        except OSError as error:
            raise self._refused(Reason.HOST, found, f"cannot make a folder on the host: {error}") from error

    def _check_booked(self, ids: tuple[str, ...]) -> None:
        held = self._book.holder(ids)
        if held is None:
            raise Refused(
                Reason.MISMATCH, f"neither kubelet nor this agent knows a container that was given {', '.join(ids)}"
            )
        pod, container = held
        part = pod.grant.of(container)
        if part is None or not Demand(ids).fits(part):
            raise Refused(
                Reason.MISMATCH,
                f"container {container} was given {', '.join(ids)}, its grant says otherwise",
                [key_of_grant(pod.grant)],
            )

    async def _grant(self, key: str) -> Grant | None:
        """A listed pod's grant: from the informer, else from the API server, else (it is away) from the book."""
        grant = self._pods.view().grants.get(key)
        if grant is not None:
            return grant
        try:
            return self._pods.view(await self._pods.fetch([key])).grants.get(key)
        except KubeError as error:
            log.warning("cannot confirm a pod with the API server, going by the book", pod=key, error=str(error))
        booked = (pod.grant for pod in self._book.pods.values())
        return next((grant for grant in booked if key_of_grant(grant) == key), None)

    def _refused(self, reason: Reason, found: Found, message: str) -> Refused:
        return Refused(reason, f"{found.key} container {found.turn.part.container}: {message}", [found.key])


def _is_over(pod: Pod | None, uid: str) -> bool:
    """Whether the pod with this uid has ended, if this is what its name leads to now."""
    return pod is None or pod.metadata.uid != uid or is_terminal(pod)


def _devices(grant: Grant) -> set[str]:
    return {uuid for part in grant.containers for uuid in part.uuids}
