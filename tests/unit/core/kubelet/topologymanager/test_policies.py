"""Which policy a kubelet runs with, what each of them admits, and when kubelet does not start."""

from collections.abc import Sequence

import pytest

from purser.core.kubelet.config import KubeletConfig, TopologyOptions, TopologyPolicy, TopologyScope
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.machine import Machine, NumaNode
from purser.core.kubelet.masks import all_masks, mask_of
from purser.core.kubelet.topologymanager import HintMerger, policy_for

ALIGNING = (TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)
DISTANCES = ((10, 20, 30, 30), (20, 10, 30, 30), (30, 30, 10, 12), (30, 30, 12, 10))


def machine(nodes: int, distances: Sequence[tuple[int, ...]] = ()) -> Machine:
    return Machine(tuple(NumaNode(node, distances=distances[node] if distances else ()) for node in range(nodes)))


def policy(
    name: TopologyPolicy | str, nodes: int = 2, version: str = "v1.36.2", options: TopologyOptions | None = None
) -> HintMerger:
    distances = DISTANCES if nodes <= len(DISTANCES) else ()
    config = KubeletConfig(version, TopologyPolicy(name), topology_options=options or TopologyOptions())
    return policy_for(config, machine(nodes, distances))


def hints(preferred_width: int, nodes: int = 2) -> ProviderHints:
    """Any set of that many nodes or more will do."""
    masks = [mask for mask in all_masks(range(nodes)) if mask.bit_count() >= preferred_width]
    return {f"resource-{preferred_width}": tuple(Hint(mask, mask.bit_count() == preferred_width) for mask in masks)}


IMPOSSIBLE: ProviderHints = {"nvidia.com/gpu": ()}
ANYWHERE: ProviderHints = {"nvidia.com/gpu": None}


def test_none_asks_for_nothing_and_admits() -> None:
    none = policy("none")
    assert not none.asks_for_hints
    assert none.merge([IMPOSSIBLE]) == (Hint(None, False), True)


@pytest.mark.parametrize("name", ALIGNING)
def test_all_others_ask_for_hints(name: TopologyPolicy) -> None:
    assert policy(name).asks_for_hints


@pytest.mark.parametrize("name", ALIGNING)
@pytest.mark.parametrize("said", [[], [None], [{}], [ANYWHERE], [None, ANYWHERE]])
def test_no_opinion_is_met_by_all_nodes(name: TopologyPolicy, said: list[ProviderHints]) -> None:
    everywhere = None if name == TopologyPolicy.SINGLE_NUMA_NODE else 0b11
    assert policy(name).merge(said) == (Hint(everywhere, True), True)


@pytest.mark.parametrize("name", ALIGNING)
def test_on_a_machine_without_numa_nodes_nothing_is_aligned(name: TopologyPolicy) -> None:
    expected = Hint(None if name == TopologyPolicy.SINGLE_NUMA_NODE else 0, False)
    assert policy(name, nodes=0).merge([ANYWHERE]) == (expected, name == TopologyPolicy.BEST_EFFORT)


@pytest.mark.parametrize(
    ("wanted", "nodes", "old", "new"),
    [
        pytest.param((2, 1), 2, (Hint(0b01, True), True), (Hint(0b11, False), False), id="8 GPUs of both, CPUs of one"),
        pytest.param((2, 2), 2, (Hint(0b11, True), True), (Hint(0b11, True), True), id="8 GPUs and CPUs of both"),
        pytest.param((1, 1), 2, (Hint(0b01, True), True), (Hint(0b01, True), True), id="4 GPUs and CPUs of one"),
        pytest.param((2, 1), 4, (Hint(1, True), True), (Hint(0b11, False), False), id="GPUs of 2 of 4, CPUs of one"),
        pytest.param((4, 1), 4, (Hint(1, True), True), (Hint(15, False), False), id="GPUs of all four, a NIC of one"),
    ],
)
def test_restricted_since_1_24_wants_the_same_nodes_for_all(
    wanted: tuple[int, ...], nodes: int, old: tuple[Hint, bool], new: tuple[Hint, bool]
) -> None:
    """What this means for GPU nodes: the table of facts, from the rule itself."""
    said = [hints(width, nodes) for width in wanted]
    for version in ("v1.20.2", "v1.23.17"):
        assert policy("restricted", nodes, version).merge(said) == old
    for version in ("v1.24.0", "v1.29.4-gke.100", "v1.36.2"):
        assert policy("restricted", nodes, version).merge(said) == new


CLOSEST = TopologyOptions(prefer_closest_numa_nodes=True)


@pytest.mark.parametrize(("version", "expected"), [("v1.25.0", 0b0011), ("v1.26.0", 0b1100), ("v1.36.2", 0b1100)])
def test_the_closest_nodes_are_taken_by_kubelets_that_have_the_option(version: str, expected: int) -> None:
    merged, _ = policy("best-effort", 4, version, CLOSEST).merge([hints(2, 4)])
    assert merged == Hint(expected, True)


def test_on_a_single_node_distance_says_nothing() -> None:
    """Nodes 2 and 3 are the closest to themselves; the policy keeps kubelet's plain order."""
    uneven = machine(2, ((30, 10), (10, 10)))
    said: list[ProviderHints] = [{"nvidia.com/gpu": (Hint(0b01, True), Hint(0b10, True))}]
    for name, expected in (("single-numa-node", 0b01), ("restricted", 0b10)):
        config = KubeletConfig("v1.36.2", TopologyPolicy(name), topology_options=CLOSEST)
        assert policy_for(config, uneven).merge(said)[0] == Hint(expected, True)


def refusal_to_start(config: KubeletConfig, on: Machine) -> str:
    with pytest.raises(KubeletStartError) as caught:
        policy_for(config, on)
    return str(caught.value)


def test_more_than_eight_nodes_keep_kubelet_from_starting_unless_allowed() -> None:
    config = KubeletConfig("v1.36.2", TopologyPolicy.BEST_EFFORT)
    assert refusal_to_start(config, machine(9)) == "unsupported on machines with more than 8 NUMA Nodes"
    few = KubeletConfig("v1.36.2", TopologyPolicy.BEST_EFFORT, topology_options=limit(16))
    assert refusal_to_start(few, machine(34)) == "unsupported on machines with more than 16 NUMA Nodes"
    assert policy("best-effort", 34, options=limit(34)).merge([])[1]
    assert policy("none", 34).merge([])[1]


def limit(nodes: int) -> TopologyOptions:
    return TopologyOptions(max_allowable_numa_nodes=nodes)


def test_the_limit_of_nodes_can_only_be_raised() -> None:
    config = KubeletConfig("v1.36.2", TopologyPolicy.RESTRICTED, topology_options=limit(7))
    assert refusal_to_start(config, machine(1)) == (
        'the minimum value of "max-allowable-numa-nodes" should not be less than 8'
    )


def test_the_limit_of_nodes_is_unknown_before_1_31() -> None:
    config = KubeletConfig("v1.30.9", TopologyPolicy.RESTRICTED, topology_options=limit(9))
    assert refusal_to_start(config, machine(9)) == (
        'unknown Topology Manager Policy option: "max-allowable-numa-nodes"'
    )


def test_kubelets_without_options_do_not_read_them() -> None:
    config = KubeletConfig("v1.22.0", TopologyPolicy.RESTRICTED, topology_options=limit(9))
    assert refusal_to_start(config, machine(9)) == "unsupported on machines with more than 8 NUMA Nodes"


def test_distances_must_be_known_where_they_count() -> None:
    config = KubeletConfig("v1.36.2", TopologyPolicy.RESTRICTED, topology_options=CLOSEST)
    assert refusal_to_start(config, machine(2)) == (
        "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
    )
    assert policy_for(KubeletConfig("v1.36.2", TopologyPolicy.NONE, topology_options=CLOSEST), machine(2))


def test_names_of_no_policy_and_no_scope_are_named() -> None:
    strange = KubeletConfig("v1.36.2", "strict")  # type: ignore[arg-type]
    assert refusal_to_start(strange, machine(1)) == 'unknown policy: "strict"'
    strange = KubeletConfig("v1.36.2", TopologyPolicy.RESTRICTED, "node")  # type: ignore[arg-type]
    assert refusal_to_start(strange, machine(1)) == 'unknown scope: "node"'


def test_the_nodes_of_a_mask_are_numbers_not_places() -> None:
    sparse = Machine((NumaNode(1), NumaNode(3)))
    config = KubeletConfig("v1.36.2", TopologyPolicy.BEST_EFFORT)
    assert policy_for(config, sparse).merge([ANYWHERE])[0] == Hint(mask_of([1, 3]), True)


def test_every_scope_is_known() -> None:
    for scope in TopologyScope:
        assert policy_for(KubeletConfig("v1.36.2", TopologyPolicy.RESTRICTED, scope), machine(1)).asks_for_hints
