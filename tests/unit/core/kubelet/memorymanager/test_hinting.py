"""Which NUMA nodes the memory manager offers."""

from purser.core.kubelet.hints import Hint
from purser.core.kubelet.memorymanager import allocate, hints, pod_hints, start

from .machines import GIB, HUGE, container, init, node_of, pod, sidecar

TWO = ({"memory": 10 * GIB}, {"memory": 10 * GIB})


def test_a_request_that_one_node_can_meet_prefers_single_nodes() -> None:
    node = node_of(*TWO)
    ask = pod("a", container("c", 4 * GIB))
    assert hints(node, start(node), ask, ask.containers[0], {}) == {
        "memory": (Hint(0b01, True), Hint(0b10, True), Hint(0b11, False))
    }


def test_preferred_goes_by_what_the_nodes_have_and_not_by_what_is_free() -> None:
    node = node_of(*TWO)
    state = start(node)
    for uid in "ab":
        taken = pod(uid, container("c", 8 * GIB))
        state, error, _ = allocate(node, state, taken, taken.containers[0], Hint(None, True), {})
        assert error is None
    ask = pod("x", container("c", 3 * GIB))
    assert hints(node, state, ask, ask.containers[0], {}) == {}, "and both nodes are used alone"


def test_a_node_in_a_group_serves_only_that_group() -> None:
    node = node_of(*TWO, {"memory": 10 * GIB})
    wide = pod("wide", container("c", 15 * GIB))
    state, error, _ = allocate(node, start(node), wide, wide.containers[0], Hint(0b011, True), {})
    assert error is None
    small, another = pod("s", container("c", GIB)), pod("w", container("c", 5 * GIB))
    assert hints(node, state, small, small.containers[0], {}) == {"memory": (Hint(0b100, True), Hint(0b011, False))}
    again = hints(node, state, another, another.containers[0], {})
    assert again == {"memory": (Hint(0b100, True),)}, "what is left in the group is 5 GiB less a byte"


def test_every_kind_of_memory_must_be_there() -> None:
    node = node_of({"memory": 10 * GIB, HUGE: 2 * GIB}, {"memory": 10 * GIB, HUGE: 0})
    ask = pod("a", container("c", GIB, huge=2 * GIB))
    found = (Hint(0b01, True), Hint(0b11, False))
    assert hints(node, start(node), ask, ask.containers[0], {}) == {"memory": found, HUGE: found}


def test_hugepages_are_not_there_as_regular_memory() -> None:
    node = node_of({"memory": 10 * GIB, HUGE: 4 * GIB}, reserved={0: {"memory": GIB}})
    fits, too_much = pod("a", container("c", 5 * GIB)), pod("b", container("c", 5 * GIB + 1))
    assert hints(node, start(node), fits, fits.containers[0], {}) == {"memory": (Hint(0b1, True),)}
    assert hints(node, start(node), too_much, too_much.containers[0], {}) == {}


def test_a_container_with_memory_has_the_hint_of_its_blocks() -> None:
    node = node_of(*TWO)
    ask = pod("a", container("c", 4 * GIB))
    state, _, _ = allocate(node, start(node), ask, ask.containers[0], Hint(0b10, True), {})
    held = {"memory": (Hint(0b10, True),)}
    assert hints(node, state, ask, ask.containers[0], {}) == held
    assert pod_hints(node, state, ask) == held
    other = pod("a", container("c", 5 * GIB))
    assert hints(node, state, other, other.containers[0], {}) is None, "asked for another amount"


def test_a_pod_asks_for_the_most_it_holds_at_any_time() -> None:
    node = node_of(*TWO)
    parts = (sidecar("s", GIB), init("i", 9 * GIB), container("c", 4 * GIB), container("d", 4 * GIB))
    assert pod_hints(node, start(node), pod("a", *parts)) == {"memory": (Hint(0b10, True), Hint(0b11, False))}
    old = node_of(*TWO, version="v1.27.9")
    preferred = {"memory": (Hint(0b01, True), Hint(0b10, True), Hint(0b11, False))}
    assert pod_hints(old, start(old), pod("a", *parts)) == preferred, "without sidecars it is one init container more"


def test_what_init_containers_left_counts_for_the_same_nodes_only() -> None:
    node = node_of(*TWO)
    ask = pod("a", init("i", 9 * GIB), container("c", 9 * GIB))
    state, _, reusable = allocate(node, start(node), ask, ask.containers[0], Hint(0b01, True), {})
    assert reusable == {(0b01, "memory"): 9 * GIB}
    found = hints(node, state, ask, ask.containers[1], reusable)
    assert found == {"memory": (Hint(0b01, True), Hint(0b10, True))}, "node 0 is used alone, so no wider set"


def test_34_numa_nodes_of_which_two_have_memory_answer_at_once() -> None:
    node = node_of(*TWO, *({"memory": 0} for _ in range(32)))
    ask = pod("a", container("c", 15 * GIB))
    assert hints(node, start(node), ask, ask.containers[0], {}) == {"memory": (Hint(0b11, True),)}
