"""An agent's steps by its own code: `Arbiter`, `Resolver`, `NodePods` and `Book` answer one call of kubelet's.

Where several pods wait, their uids' order may decide: uids are random, so every order is tried.
"""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from purser.agent.allocation.answers import AllocationFacts
from purser.agent.allocation.arbiter import Arbiter
from purser.agent.allocation.book import Book, BookedContainer, BookedPod
from purser.agent.allocation.lingering import LingeringPods
from purser.agent.allocation.pods import NodePods
from purser.agent.allocation.resolver import Resolver
from purser.agent.kubelet.calls import AllocateCall, PreferredAllocationCall
from purser.agent.kubelet.pod_resources import ListedPod
from purser.agent.kubelet.refusals import AllocationRefused
from purser.agent.settings import AgentSettings
from purser.core.model import ContainerGrant, Enforcement, Grant
from purser.kube.errors import ApiUnavailableError, NotFoundError
from purser.kube.objects import Pod
from tests.model.parts import KEY, Booked, Listed, PodVersion, inventory, pod
from tests.model.renaming import renamed
from tests.model.scheduler import FAILURES, LOOP


class Memory(NamedTuple):
    """What an agent knows."""

    book: tuple[Booked, ...] = ()
    heard: tuple[PodVersion, ...] = ()
    refused: frozenset[str] = frozenset()
    released: tuple[Grant, ...] = ()
    """Of pods that kubelet still lists."""

    def freed(self, uids: Collection[str]) -> "Memory":
        """These pods have ended."""
        book = tuple(each for each in self.book if each.grant.pod_uid not in uids)
        free = {each.grant.pod: each.grant for each in self.book if each.grant.pod_uid in uids}
        released = {each.pod: each for each in self.released} | free
        return self._replace(
            book=book,
            refused=self.refused - frozenset(uids),
            released=tuple(released[name] for name in sorted(released)),
        )

    def while_listed(self, listed: Iterable[Listed]) -> "Memory":
        """Without released grants that change nothing any more."""
        names = {each.name for each in listed if each.id} - {each.grant.pod for each in self.book}
        return self._replace(released=tuple(each for each in self.released if each.pod in names))


class Answer(NamedTuple):
    gpu: str
    """Empty: refused."""
    id: str
    after: Memory
    why: str = ""


class ApiStub:
    failures = FAILURES

    def __init__(self, pods: tuple[PodVersion, ...] | None) -> None:
        self._pods = None if pods is None else {each.name: each for each in pods}
        self.told: dict[str, PodVersion | None] = {}
        """What it was asked for, and answered."""

    async def get(self, _: object, name: str, namespace: str) -> Any:
        if self._pods is None:
            raise ApiUnavailableError("no answer", outcome_unknown=False)
        self.told[name] = self._pods.get(name)
        if name in self._pods:
            return pod(self._pods[name])
        raise NotFoundError(404, "NotFound", name)


class KubeletStub:
    def __init__(self, listing: tuple[Listed, ...]) -> None:
        self._listing = listing

    async def list(self) -> tuple[ListedPod, ...]:
        return tuple(ListedPod("ns", each.name, {"c": (each.id,) if each.id else ()}) for each in self._listing)


class MemoryBook(Book):
    async def save(self) -> None:
        """To disk: a step of the model."""


class NoInstances:
    """No GPU is cut on demand."""

    def part_with_instances(self, part: ContainerGrant) -> ContainerGrant:
        return part

    async def give(self, *_: object, **__: object) -> None:
        return None

    def released(self) -> None:
        return None


async def _without_processes(_: Collection[str]) -> frozenset[str]:
    """Containers have ended when the model's next step comes."""
    return frozenset()


class StubClock:
    def monotonic(self) -> float:
        return 0.0


@cache
def _settings(node: str) -> AgentSettings:
    return AgentSettings(node_name=node)


class Agents:
    """Answers, each computed once for all that it depends on: of the API server that is what the agent asked it for."""

    book_class: type[MemoryBook] = MemoryBook
    learns = True

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._known: dict[object, list[tuple[dict[str, PodVersion | None], Any]]] = {}

    def allocate(
        self,
        node: str,
        memory: Memory,
        pods: tuple[PodVersion, ...] | None,
        listing: tuple[Listed, ...],
        free: tuple[str, ...],
        chosen: str,
    ) -> tuple[Answer, ...]:
        """kubelet asks which of the free ids to prefer, and allocates that one; or just allocates the ``chosen``."""
        ask = (memory, pods, listing)
        return _in_any_order(listing, ask, lambda *now: self._allocated(node, *now, free, chosen))

    def may_start(
        self, node: str, memory: Memory, pods: tuple[PodVersion, ...], listing: tuple[Listed, ...], held: str
    ) -> tuple[Answer, ...]:
        """PreStartContainer of the container that has this id."""
        ask = (memory, pods, listing)
        return _in_any_order(listing, ask, lambda *now: self._checked(node, *now, held))

    def start(
        self, node: str, disk: tuple[Booked, ...], pods: tuple[PodVersion, ...], listing: tuple[Listed, ...]
    ) -> Memory:
        """A new process: its checkpoint, without pods that have ended, and what kubelet lists."""
        heard = tuple(each for each in pods if each.node == node)

        def started(api: ApiStub) -> Memory:
            memory = Memory(disk if self.learns else (), heard)
            book, seen = self._book(node, memory), self._pods(node, memory, api)
            live = {each.uid for each in heard if each.phase != "Failed"}
            for uid in set(book.pods) - live:
                book.release(uid)
            if self.learns:
                book.adopt_listing(LOOP.run_until_complete(KubeletStub(listing).list()), seen.view().grants)
            return memory._replace(book=_kept(book))

        return self._once(("start", node, disk, heard, listing), pods, started)

    def sweep(self, node: str, memory: Memory, pods: tuple[PodVersion, ...]) -> Memory:
        """The agent asks for pods of its book of which its informer has none, or that have ended."""
        heard = {each.uid: each for each in memory.heard}
        uids = (each.grant.pod_uid for each in memory.book)
        odd = [uid for uid in uids if uid not in heard or heard[uid].phase == "Failed"]
        if not odd:
            return memory

        def end_sweep(api: ApiStub) -> Memory:
            arbiter, book, resolver = self._process(node, memory, api, ())
            LOOP.run_until_complete(arbiter.release_ended(odd))
            return _after(memory, arbiter, book, resolver)

        return self._once(("sweep", node, memory), pods, end_sweep)

    def _once(self, key: object, pods: tuple[PodVersion, ...] | None, compute: Callable[[ApiStub], Any]) -> Any:
        answers = self._known.setdefault((key, pods is None), [])
        now = {each.name: each for each in pods or ()}
        for told, found in answers:
            if all(now.get(name) == version for name, version in told.items()):
                return found
        api = ApiStub(pods)
        found = compute(api)
        answers.append((api.told, found))
        return found

    def _allocated(
        self,
        node: str,
        memory: Memory,
        pods: tuple[PodVersion, ...] | None,
        listing: tuple[Listed, ...],
        free: tuple[str, ...],
        chosen: str,
    ) -> Answer:
        def answered(api: ApiStub) -> Answer:
            return LOOP.run_until_complete(self._allocate(node, memory, api, listing, free, chosen))

        return self._once(("allocate", node, memory, listing, free, chosen), pods, answered)

    async def _allocate(
        self,
        node: str,
        memory: Memory,
        api: ApiStub,
        listing: tuple[Listed, ...],
        free: tuple[str, ...],
        chosen: str,
    ) -> Answer:
        arbiter, book, resolver = self._process(node, memory, api, listing)
        gpu = why = ""
        try:
            if not chosen:
                (chosen,) = await arbiter.prefer(PreferredAllocationCall(1, free))
            given = await arbiter.allocate(AllocateCall((chosen,)))
            gpu = given.environment["NVIDIA_VISIBLE_DEVICES"]
        except AllocationRefused as error:
            why = str(error)
        return Answer(gpu, chosen, _after(memory, arbiter, book, resolver), why)

    def _checked(
        self, node: str, memory: Memory, pods: tuple[PodVersion, ...], listing: tuple[Listed, ...], held: str
    ) -> Answer:
        def answered(api: ApiStub) -> Answer:
            arbiter, book, resolver = self._process(node, memory, api, listing)
            why = ""
            try:
                LOOP.run_until_complete(arbiter.check_start((held,)))
            except AllocationRefused as error:
                why = str(error)
            return Answer("", held, _after(memory, arbiter, book, resolver), why)

        return self._once(("may_start", node, memory, listing, held), pods, answered)

    def _process(
        self, node: str, memory: Memory, api: ApiStub, listing: tuple[Listed, ...]
    ) -> tuple[Arbiter, MemoryBook, Resolver]:
        book = self._book(node, memory)
        pods = self._pods(node, memory, api, book)
        kubelet = KubeletStub(listing)
        resolver = Resolver(kubelet, pods, book, StubClock(), 0.0)
        for uid in memory.refused:
            resolver.remember_refused(uid)
        devices = {each.uuid: each for each in inventory(node, self._gpus).devices}
        facts = AllocationFacts(devices, "/lib", "/lock")
        arbiter = Arbiter(
            _settings(node),
            kubelet,
            pods,
            book,
            resolver,
            lambda: facts,
            NoInstances(),
            LingeringPods(book, _without_processes),
        )
        for each in memory.released:
            arbiter._released.put(each.key, each)
        return arbiter, book, resolver

    def _pods(self, node: str, memory: Memory, api: ApiStub, book: MemoryBook | None = None) -> NodePods:
        def remembered(of: Pod) -> Grant | None:
            found = None if book is None else book.pods.get(of.metadata.uid)
            return None if found is None else found.grant

        pods = NodePods(api, node, "purser-system", remembered)
        pods._keys = (KEY.public_key(),)
        for each in memory.heard:
            pods.pods.store.put(pod(each))
        return pods

    def _book(self, node: str, memory: Memory) -> MemoryBook:
        booked = (BookedPod(grant, {"c": BookedContainer((id_,), Enforcement.NONE)}) for grant, id_ in memory.book)
        book = self.book_class(Path("nowhere"), node, booked)
        book.set_inventory(inventory(node, self._gpus))
        return book


def _in_any_order(
    listing: tuple[Listed, ...], ask: tuple[Any, ...], answer: Callable[..., Answer]
) -> tuple[Answer, ...]:
    """The different answers, by every order of the pods that wait for devices."""
    waiting = sorted(each.name for each in listing if not each.id)
    found = (_under_names(dict(zip(waiting, names, strict=True)), ask, answer) for names in permutations(waiting))
    return tuple(dict.fromkeys(found))


def _under_names(names: dict[str, str], ask: tuple[Any, ...], answer: Callable[..., Answer]) -> Answer:
    back = {new: old for old, new in names.items()}
    return renamed(answer(*(renamed(each, names) for each in ask)), back)


def _after(memory: Memory, arbiter: Arbiter, book: Book, resolver: Resolver) -> Memory:
    names = {each.pod for each in memory.released} | {each.grant.pod for each in memory.book}
    released = (arbiter._released.get(f"ns/{name}") for name in sorted(names))
    return Memory(_kept(book), memory.heard, frozenset(resolver._refused), tuple(each for each in released if each))


def _kept(book: Book) -> tuple[Booked, ...]:
    kept = (Booked(each.grant, each.containers["c"].ids[0]) for each in book.pods.values())
    return tuple(sorted(kept, key=lambda each: each.grant.pod_uid))
