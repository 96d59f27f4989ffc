"""What the memory manager accepts when kubelet starts."""

import msgspec
import pytest

from purser.core.kubelet.hints import Hint
from purser.core.kubelet.memorymanager import KubeletStartError, allocate, start
from purser.core.kubelet.memorymanager.checkpoint import decode, encode
from purser.core.kubelet.state import MemoryBlock, MemoryState, MemoryTable

from .machines import GIB, HUGE, container, node_of, pod

DIFFERENT = "the expected machine state is different from the real one"


def test_the_system_keeps_what_is_reserved() -> None:
    node = node_of(
        {"memory": 10 * GIB, HUGE: 3 * GIB}, {"memory": 5 * GIB}, reserved={0: {"memory": GIB, HUGE: GIB}, 1: {}}
    )
    state = start(node)
    assert state.nodes[0].tables == {
        "memory": MemoryTable(10 * GIB, GIB, 6 * GIB, 0, 6 * GIB),
        HUGE: MemoryTable(3 * GIB, GIB, 2 * GIB, 0, 2 * GIB),
    }
    assert state.nodes[1].tables == {"memory": MemoryTable(5 * GIB, 0, 5 * GIB, 0, 5 * GIB)}
    assert [numa.group for numa in state.nodes.values()] == [0b01, 0b10]


@pytest.mark.parametrize(
    ("reserved", "message"),
    [
        pytest.param({}, "you should specify the system reserved memory", id="nothing reserved"),
        pytest.param({0: {HUGE: GIB}}, "you should specify the system reserved memory", id="no memory reserved"),
        pytest.param({7: {"memory": 1}}, "references a NUMA node 7 that does not exist on this machine", id="no node"),
    ],
)
def test_a_reservation_that_kubelet_would_not_start_with(reserved: dict[int, dict[str, int]], message: str) -> None:
    with pytest.raises(KubeletStartError, match=message):
        start(node_of({"memory": GIB}, reserved=reserved))


def test_a_restart_from_the_state_file_changes_nothing() -> None:
    node = node_of({"memory": 10 * GIB, HUGE: GIB}, {"memory": 10 * GIB, HUGE: GIB})
    ask = pod("a", container("c", 12 * GIB, huge=GIB))
    state, error, _ = allocate(node, start(node), ask, ask.containers[0], Hint(0b11, True), {})
    assert error is None
    _, saved = decode(encode("Static", state))
    assert start(node, saved) == state


def test_an_empty_state_file_is_a_fresh_start() -> None:
    node = node_of({"memory": GIB})
    assert start(node, MemoryState({})) == start(node)


def _taken() -> MemoryState:
    node = node_of({"memory": 10 * GIB})
    ask = pod("a", container("c", GIB))
    state, _, _ = allocate(node, start(node), ask, ask.containers[0], Hint(0b1, True), {})
    return state


def _with_blocks(*blocks: MemoryBlock) -> MemoryState:
    return msgspec.structs.replace(_taken(), blocks={("a", "c"): blocks})


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        pytest.param(
            MemoryState({}, {("a", "c"): ()}),
            "machine state can not be empty when it has memory assignments",
            id="assignments without a machine",
        ),
        pytest.param(start(node_of({"memory": 11 * GIB})), DIFFERENT, id="memory was removed"),
        pytest.param(start(node_of({"memory": GIB}, {"memory": GIB})), DIFFERENT, id="a node was removed"),
        pytest.param(_with_blocks(), DIFFERENT, id="taken by nobody"),
        pytest.param(_with_blocks(MemoryBlock(0b1, "memory", 2 * GIB)), DIFFERENT, id="another size"),
        pytest.param(
            _with_blocks(MemoryBlock(0b10, "memory", GIB)),
            r"\(pod: a, container: c\) the memory assignment uses the NUMA that does not exist",
            id="an unknown node",
        ),
        pytest.param(
            _with_blocks(MemoryBlock(0b1, HUGE, GIB)),
            "the memory assignment uses memory resource that does not exist",
            id="an unknown resource",
        ),
    ],
)
def test_a_state_file_of_another_machine_is_refused(saved: MemoryState, message: str) -> None:
    with pytest.raises(KubeletStartError, match=message):
        start(node_of({"memory": 10 * GIB}), saved)
