"""Which policy a kubelet runs with, what each of them admits, and when kubelet does not start."""

from collections.abc import Sequence

import pytest

from purser.core.kubelet.config import KubeletConfig, TopologyOptions, TopologyPolicy
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


@pytest.mark.parametrize("name", ALIGNING)
def test_on_a_machine_without_numa_nodes_nothing_is_aligned(name: TopologyPolicy) -> None:
    expected = Hint(None if name == TopologyPolicy.SINGLE_NUMA_NODE else 0, False)
    assert policy(name, nodes=0).merge([ANYWHERE]) == (expected, name == TopologyPolicy.BEST_EFFORT)


CLOSEST = TopologyOptions(prefer_closest_numa_nodes=True)


@pytest.mark.parametrize(("version", "expected"), [("v1.25.0", 0b0011), ("v1.26.0", 0b1100), ("v1.36.2", 0b1100)])
def test_the_closest_nodes_are_taken_by_kubelets_that_have_the_option(version: str, expected: int) -> None:
    merged, _ = policy("best-effort", 4, version, CLOSEST).merge([hints(2, 4)])
    assert merged == Hint(expected, True)


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
