"""Whatever comes and goes: no byte is given twice, groups stay whole, and what is freed is free."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.kubelet.hints import Hint
from purser.core.kubelet.masks import nodes_of
from purser.core.kubelet.memorymanager import allocate, free_all_but, hints, start
from purser.core.kubelet.memorymanager.checkpoint import decode, encode
from purser.core.kubelet.pod import KubeletPod
from purser.core.kubelet.state import KubeletNode, MemoryState
from purser.core.pod.manifest import ContainerKind

from .machines import HUGE, container, node_of, pod

RESOURCES = ("memory", HUGE)
amounts = st.integers(0, 12)
machines = st.lists(
    st.fixed_dictionaries({"memory": st.integers(1, 14), HUGE: st.integers(0, 4)}), min_size=1, max_size=4
)
containers = st.tuples(amounts, st.integers(0, 4), st.sampled_from(ContainerKind))
pods = st.lists(containers, min_size=1, max_size=4)
steps = st.lists(st.tuples(pods, st.sets(st.integers(0, 9), max_size=2)), max_size=8)


def admit(node: KubeletNode, state: MemoryState, ask: KubeletPod, data: st.DataObject) -> MemoryState:
    """As kubelet does: each container by one of the manager's own hints, or by none."""
    reusable = {}
    for each in ask.containers:
        offered = (hints(node, state, ask, each, reusable) or {}).get("memory") or ()
        for hint in offered:
            assert allocate(node, state, ask, each, hint, reusable)[1] is None, "what is offered can be had"
        hint = data.draw(st.sampled_from([Hint(None, False), Hint(None, True), *offered]))
        state, error, reusable = allocate(node, state, ask, each, hint, reusable)
        check(state)
        if error is not None:
            break
    return state


def check(state: MemoryState) -> None:
    held = [block for blocks in state.blocks.values() for block in blocks]
    for number, numa in state.nodes.items():
        assert numa.assignments == sum(1 for block in held if block.nodes >> number & 1)
        assert all(block.nodes == numa.group for block in held if block.nodes >> number & 1), "one group per node"
        for table in numa.tables.values():
            assert min(table.free, table.reserved) >= 0
            assert table.free + table.reserved == table.allocatable
    for resource in RESOURCES:
        taken = sum(numa.tables[resource].reserved for numa in state.nodes.values())
        assert taken == sum(block.size for block in held if block.resource == resource)


@examples(250)
@given(machines, steps, st.data())
def test_nothing_is_given_twice_and_what_is_freed_is_free(machine, steps, data) -> None:
    node = node_of(*machine)
    state = fresh = start(node)
    for number, (parts, ended) in enumerate(steps):
        state = free_all_but(state, {uid for uid, _ in state.blocks if int(uid) not in ended})
        check(state)
        names = (container(f"c{i}", memory, huge, kind) for i, (memory, huge, kind) in enumerate(parts))
        state = admit(node, state, pod(str(number), *sorted(names, key=lambda c: c.kind is ContainerKind.APP)), data)
        assert start(node, decode(encode("Static", state))[1]) == state, "a restart changes nothing"
    assert free_all_but(state, ()) == fresh


@examples(250)
@given(machines, amounts, st.integers(0, 4))
def test_every_hint_of_an_unused_node_can_be_met_and_the_preferred_ones_are_narrowest(machine, memory, huge) -> None:
    node = node_of(*machine)
    ask = pod("a", container("c", memory, huge))
    found = (hints(node, start(node), ask, ask.containers[0], {}) or {}).get("memory", ())
    for hint in found:
        state, error, _ = allocate(node, start(node), ask, ask.containers[0], hint, {})
        assert error is None
        assert {block.nodes for block in state.blocks["a", "c"]} == {hint.mask}
    widths = {len(nodes_of(hint.mask or 0)) for hint in found if hint.preferred}
    assert widths == ({min(len(nodes_of(hint.mask or 0)) for hint in found)} if found else set())
