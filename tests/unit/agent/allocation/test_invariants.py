"""What is wrong in the agent's book is found, and counted once if it lasts."""

import pytest
from tests.unit.agent.builders import NODE, A, B, device, grant, listed, part, slot

from purser.agent.allocation.book import Book, BookedContainer
from purser.agent.allocation.invariants import BookInvariantWatch, book_violations
from purser.agent.kubelet.pod_resources import KubeletError
from purser.agent.metrics import AgentMetrics
from purser.core.model import Enforcement, NodeInventory
from purser.kube import SystemClock

COUNTED = "purser_agent_invariant_violations_total"


@pytest.fixture
def book(tmp_path):
    book = Book(tmp_path / "book.json", NODE)
    book.set_inventory(NodeInventory(NODE, (device(A, memory_mib=3000, slots=4), device(B, memory_mib=3000, slots=4))))
    for name, id_ in (("p", slot(A, 0)), ("q", slot(A, 1))):
        book.allocate(grant(name, part("main", A)), "main", BookedContainer((id_,), Enforcement.NONE))
    return book


class Listing:
    def __init__(self, *pods):
        self.pods = pods

    async def list(self):
        return self.pods


def counts(metrics):
    samples = (sample for family in metrics.registry.collect() for sample in family.samples)
    return {each.labels["invariant"]: each.value for each in samples if each.name == COUNTED}


def found(book, *listing):
    return {(each.invariant, each.subject) for each in book_violations(book, listing)}


def test_a_corrupted_book_is_found(book):
    assert found(book, listed("p", main=(slot(A, 0),)), listed("stranger", main=(slot(B, 0),))) == set()
    assert found(book, listed("q", main=(slot(A, 3),))) == {("kubelet-ids", "ns/q main")}
    assert found(book, listed("q", main=())) == {("kubelet-ids", "ns/q main")}, "kubelet lost its record"
    book._pods["uid-q"] = book._pods["uid-p"]
    assert found(book) == {("book-grants", "uid-q"), ("ids-given-once", slot(A, 0))}
    book._ledger._usage[NODE] = {}
    assert ("node-usage", NODE) in found(book)


async def test_an_id_that_kubelet_gave_away_again_is_no_violation_while_kubelet_is_away(book):
    """The agent may not release the first pod until kubelet says so."""

    class Away(Listing):
        async def list(self):
            raise KubeletError("no answer")

    book._pods["uid-q"].containers["main"] = book._pods["uid-p"].containers["main"]
    for kubelet, count in ((Away(), 0), (Listing(), 1)):
        metrics = AgentMetrics()
        watch = BookInvariantWatch(book, kubelet, metrics, SystemClock())
        for _ in range(3):
            await watch.check()
        assert counts(metrics)["ids-given-once"] == count


async def test_what_lasts_is_counted_once(book):
    metrics, listing = AgentMetrics(), Listing(listed("q", main=(slot(A, 3),)))
    watch = BookInvariantWatch(book, listing, metrics, SystemClock())
    await watch.check()
    assert set(counts(metrics).values()) == {0}
    for _ in range(3):
        await watch.check()
    assert {name for name, count in counts(metrics).items() if count == 1} == {"kubelet-ids"}
