"""Taking memory and giving it back."""

import pytest

from purser.core.kubelet.hints import NO_AFFINITY, Hint
from purser.core.kubelet.memorymanager import allocate, allocation, free_all_but, remove, start
from purser.core.kubelet.pod import KubeletPod
from purser.core.kubelet.state import KubeletNode, MemoryBlock, MemoryNode, MemoryState, MemoryTable

from .machines import GIB, HUGE, container, init, node_of, pod, sidecar

TWO = ({"memory": 10 * GIB}, {"memory": 10 * GIB})


def admit(
    node: KubeletNode, state: MemoryState, ask: KubeletPod, hint: Hint = NO_AFFINITY
) -> tuple[MemoryState, str | None]:
    reusable = {}
    error = None
    for each in ask.containers:
        state, error, reusable = allocate(node, state, ask, each, hint, reusable)
        if error is not None:
            break
    return state, error


def free(state: MemoryState, number: int, resource: str = "memory") -> int:
    return state.nodes[number].tables[resource].free


def test_the_hint_says_where_from() -> None:
    node = node_of(*TWO)
    state, error = admit(node, start(node), pod("a", container("c", 4 * GIB)), Hint(0b10, True))
    assert error is None
    assert state.blocks == {("a", "c"): (MemoryBlock(0b10, "memory", 4 * GIB),)}
    assert (free(state, 0), free(state, 1)) == (10 * GIB - 1, 6 * GIB)


def test_without_a_hint_the_narrowest_lowest_nodes_are_taken() -> None:
    node = node_of(*TWO)
    state, error = admit(node, start(node), pod("a", container("c", 4 * GIB)))
    assert (error, state.blocks["a", "c"][0].nodes) == (None, 0b01)


def test_a_hint_that_is_too_narrow_is_widened() -> None:
    node = node_of(*TWO)
    state, error = admit(node, start(node), pod("a", container("c", 15 * GIB)), Hint(0b10, False))
    assert (error, state.blocks["a", "c"][0].nodes) == (None, 0b11)
    assert (free(state, 0), free(state, 1)) == (0, 5 * GIB - 1), "the lowest node is emptied first"
    assert [state.nodes[n].group for n in (0, 1)] == [0b11, 0b11]


def test_every_resource_is_an_assignment_of_its_own() -> None:
    node = node_of({"memory": 10 * GIB, HUGE: 2 * GIB})
    state, _ = admit(node, start(node), pod("a", container("c", GIB, huge=GIB)))
    assert state.nodes[0].assignments == 2
    assert (free(state, 0), free(state, 0, HUGE)) == (7 * GIB - 1, GIB)


@pytest.mark.parametrize(
    ("first", "ask", "message"),
    [
        pytest.param(
            None,
            (21 * GIB, NO_AFFINITY),
            "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
            id="more than the machine has",
        ),
        pytest.param(
            (15 * GIB, Hint(0b11, True)),
            (4 * GIB, Hint(None, True)),
            "failed to find the default preferred hint",
            id="only a group has room, which is not preferred",
        ),
        pytest.param(
            None,
            (21 * GIB, Hint(0b01, False)),
            "failed to find NUMA nodes to extend the current topology hint",
            id="nothing wider suffices",
        ),
        pytest.param(
            (2 * GIB, Hint(0b01, True)),
            (9 * GIB, Hint(0b01, True)),
            "failed to find NUMA nodes to extend the current topology hint",
            id="the node is used alone, so it cannot be widened",
        ),
        pytest.param(
            None,
            (10 * GIB, Hint(0b01, True)),
            "failed to find the extended preferred hint",
            id="node 0 lacks the system's byte, and node 1 alone would do",
        ),
    ],
)
def test_errors_are_kubelets(first: tuple[int, Hint] | None, ask: tuple[int, Hint], message: str) -> None:
    node = node_of(*TWO)
    state = start(node)
    if first is not None:
        state, error = admit(node, state, pod("first", container("c", first[0])), first[1])
        assert error is None
    after, error = admit(node, state, pod("a", container("c", ask[0])), ask[1])
    assert error == f"[memorymanager] {message}"
    assert after == state, "nothing was taken"


def test_a_wide_hint_over_a_node_that_is_used_alone_is_refused_since_1_32() -> None:
    messages = {}
    for version in ("v1.31.9", "v1.32.0"):
        node = node_of(*TWO, version=version)
        state, _ = admit(node, start(node), pod("first", container("c", GIB)), Hint(0b01, True))
        _, messages[version] = admit(node, state, pod("a", container("c", GIB)), Hint(0b11, False))
    assert messages == {
        "v1.31.9": None,
        "v1.32.0": "[memorymanager] preferred hint violates NUMA node allocation",
    }


def test_app_containers_use_again_what_init_containers_had() -> None:
    node = node_of(*TWO)
    ask = pod("a", init("i", 4 * GIB), init("j", 6 * GIB), container("c", 5 * GIB), container("d", 3 * GIB))
    state, error = admit(node, start(node), ask, Hint(0b10, True))
    assert error is None
    assert free(state, 1) == 2 * GIB, "eight in all: six from the init containers, two more"
    sizes = {name: blocks[0].size for (_, name), blocks in state.blocks.items()}
    assert sizes == {"i": 0, "j": 0, "c": 5 * GIB, "d": 3 * GIB}


def test_sidecars_keep_what_they_have() -> None:
    ask = pod("a", sidecar("s", 4 * GIB), container("c", 4 * GIB))
    free_of = {}
    for version in ("v1.27.0", "v1.36.2"):
        node = node_of(*TWO, version=version)
        state, _ = admit(node, start(node), ask, Hint(0b10, True))
        free_of[version] = free(state, 1)
    assert free_of == {"v1.27.0": 6 * GIB, "v1.36.2": 2 * GIB}


def test_freeing_keeps_those_that_are_active() -> None:
    node = node_of(*TWO)
    state, _ = admit(node, start(node), pod("a", container("c", GIB)), Hint(0b01, True))
    before, _ = admit(node, start(node), pod("b", container("c", GIB)), Hint(0b10, True))
    state, _ = admit(node, state, pod("b", container("c", GIB)), Hint(0b10, True))
    assert free_all_but(state, {"b", "z"}) == before
    assert free_all_but(state, ()) == start(node)
    assert remove(state, ("nobody", "c")) == state


def test_a_node_leaves_its_group_with_the_last_assignment() -> None:
    node = node_of(*TWO)
    state, _ = admit(node, start(node), pod("a", container("c", 12 * GIB)), Hint(0b11, True))
    state, _ = admit(node, state, pod("b", container("c", 2 * GIB)), Hint(0b11, False))
    state = free_all_but(state, {"b"})
    assert [state.nodes[n].group for n in (0, 1)] == [0b11, 0b11]
    assert free_all_but(state, ()) == start(node)


def test_thousands_that_are_gone_are_freed_in_one_go(monkeypatch) -> None:
    """Not by one copy of what all others hold for each: a report may name so many."""
    table = MemoryTable(8 * GIB, 0, 8 * GIB, 4000, 8 * GIB - 4000)
    held = {(f"u{n}", "c"): (MemoryBlock(0b1, "memory", 1),) for n in range(4000)}
    state, made = MemoryState({0: MemoryNode({"memory": table}, 0b1, 4000)}, held), []

    def counted(*fields) -> MemoryState:
        made.append(MemoryState(*fields))
        return made[-1]

    monkeypatch.setattr(allocation, "MemoryState", counted)
    left = free_all_but(state, {"u7"})
    assert list(left.blocks) == [("u7", "c")]
    assert (left.nodes[0].assignments, left.nodes[0].tables["memory"].reserved) == (1, 1)
    assert made == [left]
