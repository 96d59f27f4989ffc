"""The invariants of the agent's book, checked once per minute: against itself, and against what kubelet lists.

kubelet and the book change while they are compared, and pods end in one before the other: what differs counts as a
violation if the next check finds it again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from purser.agent.allocation.book import Book, BookInvariant
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError, ListedPod
from purser.agent.metrics import AgentMetrics
from purser.core.consistency import Invariant, InvariantViolation
from purser.invariants import InvariantReports
from purser.kube.clock import Clock

CHECK_PERIOD_S = 60.0
INVARIANTS = (Invariant.NODE_USAGE, Invariant.NAMESPACE_DEMAND, Invariant.GRANT_INDEX, *BookInvariant)
"""All that a check can find violated."""


def book_violations(book: Book, listing: Iterable[ListedPod] | None) -> tuple[InvariantViolation, ...]:
    """Everything that does not hold now. ``listing``: None while kubelet does not answer.

    A pod that has ended stays in the book until kubelet's list says that its ids are free. kubelet knows that first,
    and may have given them to the next pod: where it does not answer, two pods with one id are no violation.
    """
    alone = (*book.inconsistencies(), *_pod_violations(book))
    return alone if listing is None else (*alone, *_id_violations(book), *_listing_violations(book, listing))


def _pod_violations(book: Book) -> Iterator[InvariantViolation]:
    kept = {uid: pod.grant for uid, pod in book.pods.items()}
    counted = {grant.pod_uid: grant for grant in book.grants()}
    for uid in sorted(kept.keys() | counted.keys()):
        if kept.get(uid) != counted.get(uid):
            yield InvariantViolation(BookInvariant.BOOK_GRANTS, uid, str(counted.get(uid)), str(kept.get(uid)))


def _id_violations(book: Book) -> Iterator[InvariantViolation]:
    holders: dict[str, set[str]] = defaultdict(set)
    for uid, pod in book.pods.items():
        for given in pod.containers.values():
            for each in given.ids:
                holders[each].add(uid)
    for each, uids in sorted(holders.items()):
        if len(uids) > 1:
            yield InvariantViolation(BookInvariant.IDS_GIVEN_ONCE, each, f"held by {sorted(uids)}", "held by one pod")


def _listing_violations(book: Book, listing: Iterable[ListedPod]) -> Iterator[InvariantViolation]:
    by_key = defaultdict(list)
    for pod in book.pods.values():
        by_key[pod.grant.key].append(pod)
    for listed in listing:
        booked = by_key.get(listed.key, [])
        if len(booked) != 1:  # a pod of the same name is ending
            continue
        for container, ids in listed.containers.items():
            given = booked[0].containers.get(container)
            if given is not None and sorted(given.ids) != sorted(ids):
                subject, kept = f"{listed.key} {container}", f"the agent's records list {sorted(given.ids)}"
                yield InvariantViolation(BookInvariant.KUBELET_IDS, subject, kept, f"kubelet lists {sorted(ids)}")


class BookInvariantWatch:
    """Checks, and checks again."""

    def __init__(self, book: Book, kubelet: KubeletBooks, metrics: AgentMetrics, clock: Clock) -> None:
        self._book = book
        self._kubelet = kubelet
        metrics.declare_invariants(INVARIANTS)
        self._reports = InvariantReports(metrics.count_violation)
        self._clock = clock
        self._seen: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(CHECK_PERIOD_S)
            await self.check()

    async def check(self) -> None:
        """Once."""
        try:
            listing: Iterable[ListedPod] | None = await self._kubelet.list()
        except KubeletError:  # others report it
            listing = None
        found = book_violations(self._book, listing)
        self._reports.report(each for each in found if (each.invariant, each.subject) in self._seen)
        self._reports.end_sweep()
        self._seen = {(each.invariant, each.subject) for each in found}
