"""The node's book and its checkpoint."""

import pytest
from tests.unit.agent.builders import NODE, A, B, device, grant, grants_of, listed, part, slot

from purser.agent.allocation.book import AgentCheckpointError, Book, BookedContainer, read_checkpoint
from purser.core.ledger import OvercommitError, UnknownDeviceError
from purser.core.mig import MigPlacement
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Enforcement, GrantState, NodeInventory

INVENTORY = NodeInventory(NODE, (device(A, memory_mib=3000, slots=4), device(B, memory_mib=3000, slots=4)))


@pytest.fixture
def book(tmp_path):
    book = Book(tmp_path / "state" / "book.json", NODE)
    book.set_inventory(INVENTORY)
    return book


def given(*ids):
    return BookedContainer(ids, Enforcement.NONE)


def test_a_pod_is_on_the_book_until_it_is_released(book):
    pod = grant("p", part("one", A), part("two", B))
    book.allocate(pod, "one", given(slot(A, 0)))
    book.allocate(pod, "two", given(slot(B, 0)))
    assert book.served == {"uid-p": {"one", "two"}}
    assert book.held_ids.keys() == {slot(A, 0), slot(B, 0)}
    assert {uuid: usage.memory_mib for uuid, usage in book.usage.items()} == {A: 1000, B: 1000}
    assert book.release("uid-p").containers["one"].ids == (slot(A, 0),)
    assert (book.served, dict(book.usage)) == ({}, {})
    assert book.release("uid-p") is None


def test_what_overcommits_a_gpu_is_refused_and_leaves_no_trace(book):
    book.allocate(grant("p", part("main", A, memory_mib=2000)), "main", given(slot(A, 0)))
    with pytest.raises(OvercommitError, match="4000 MiB would be allocated, but the device has only 3000 MiB"):
        book.allocate(grant("q", part("main", A, memory_mib=2000)), "main", given(slot(A, 1)))
    assert set(book.pods) == {"uid-p"}
    assert book.usage[A].memory_mib == 2000


def test_a_gpu_that_the_node_does_not_have_is_refused(book):
    with pytest.raises(UnknownDeviceError):
        book.allocate(grant("p", part("main", "GPU-other")), "main", given("GPU-other"))


def test_asking_again_for_a_container_changes_only_its_ids(book):
    pod = grant("p", part("main", A, memory_mib=2000))
    book.allocate(pod, "main", given(slot(A, 0)))
    book.allocate(pod, "main", given(slot(A, 1)))
    assert book.held_ids == {slot(A, 1): "nvidia.com/gpu"}
    assert book.usage[A].memory_mib == 2000


def test_states_move_from_bound_to_running(book):
    pod = grant("p", part("one", A), part("two", B))
    book.allocate(pod, "one", given(slot(A, 0)))
    assert book.state("uid-p", "one") is GrantState.ALLOCATED
    book.run("uid-p")
    assert book.state("uid-p", "one") is GrantState.RUNNING
    assert book.state("uid-p", "two") is not GrantState.RUNNING
    book.allocate(pod, "one", given(slot(A, 0)))
    assert book.state("uid-p", "one") is GrantState.RUNNING


async def test_a_saved_book_is_read_back(book, tmp_path):
    book.allocate(grant("p", part("one", A)), "one", given(slot(A, 0)))
    await book.save()
    again = Book(tmp_path / "x", NODE, read_checkpoint(tmp_path / "state" / "book.json", NODE).pods)
    again.set_inventory(INVENTORY)
    assert again.pods == book.pods
    assert again.usage == book.usage
    assert again.state("uid-p", "one") is GrantState.ALLOCATED
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["book.json"]


async def test_a_book_that_cannot_be_written_is_still_a_book(tmp_path):
    (tmp_path / "state").write_text("a file where the folder should be")
    book = Book(tmp_path / "state" / "book.json", NODE)
    book.set_inventory(INVENTORY)
    book.allocate(grant("p", part("one", A)), "one", given(slot(A, 0)))
    await book.save()
    assert set(book.pods) == {"uid-p"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("{", "truncated", id="cut off"),
        pytest.param('{"node": "node-1", "pods": [{}]}', "required field `grant`", id="of another shape"),
        pytest.param('{"node": "node-1", "version": 99}', "version 99", id="of another version"),
        pytest.param('{"node": "other"}', "belongs to node other", id="of another node"),
    ],
)
def test_a_checkpoint_is_refused(tmp_path, content, problem):
    path = tmp_path / "book.json"
    path.write_text(content)
    with pytest.raises(AgentCheckpointError, match=problem):
        read_checkpoint(path, NODE)


def test_no_checkpoint_is_an_empty_book(tmp_path):
    assert read_checkpoint(tmp_path / "none", NODE).pods == ()


def test_kubelets_list_fills_the_book_unchecked(book):
    grants = grants_of(
        grant("p", part("main", A, memory_mib=2000)), grant("q", part("main", A, memory_mib=2000)), grant("r", part())
    )
    listing = [
        listed("p", main=[slot(A, 0)]),
        listed("q", main=[slot(A, 1)]),
        listed("r", main=[]),
        listed("stranger", main=[slot(B, 0)]),
    ]
    assert book.adopt_listing(listing, grants) == 2
    assert set(book.pods) == {"uid-p", "uid-q"}
    assert [violation.uuid for violation in book.violations()] == [A]
    assert book.adopt_listing(listing, grants) == 0


HALF, OTHER_HALF = MigPlacement("3g.20gb", 0), MigPlacement("3g.20gb", 4)


def cut_part(uuid, placement):
    return ContainerGrant("main", ContainerKind.APP, (DeviceShare(uuid, 20096, 100, placement),))


@pytest.mark.parametrize(
    ("there", "parts", "too_much"),
    [
        ((), (part("main", A),), []),  # lost, or not listed yet
        ((HALF,), (cut_part(A, HALF), cut_part(A, OTHER_HALF)), []),  # no record says any more that it is the agent's
        ((HALF, MigPlacement("1g.5gb", 4)), (cut_part(A, HALF), cut_part(A, OTHER_HALF)), [A]),
        ((), (cut_part(A, HALF), cut_part(A, HALF)), [A]),
    ],
    ids=["gone", "own", "foreign", "twice"],
)
def test_what_a_gpu_is_said_to_be_overcommitted_by_is_more_than_its_own_instances(book, there, parts, too_much):
    names = "pq"[: len(parts)]
    grants = grants_of(*(grant(name, each) for name, each in zip(names, parts, strict=True)))
    is_partitioned = parts[0].shares[0].mig is not None
    cut = device(A, memory_mib=40192, slots=7, mig_kind="A100-40GB", mig_held=there)
    book.set_inventory(NodeInventory(NODE, (cut,) if is_partitioned else ()))
    book.adopt_listing([listed(name, main=[slot(A, at)]) for at, name in enumerate(names)], grants)
    assert [violation.uuid for violation in book.violations()] == too_much


def test_the_holder_of_ids_is_found_in_any_order(book):
    pod = grant("p", part("main", A, B))
    book.allocate(pod, "main", given(slot(A, 0), slot(B, 0)))
    assert book.holder([slot(B, 0), slot(A, 0)]) == (book.pods["uid-p"], "main")
    assert book.holder([slot(B, 0)]) is None
