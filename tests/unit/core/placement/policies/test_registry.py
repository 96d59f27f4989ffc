"""Policies by name."""

import pytest

from purser.core import model
from purser.core.placement.policies import GPU_POLICIES, NODE_POLICIES, NodeAndGpuPolicy, policy
from purser.core.placement.policies.best_fit import BEST_FIT_GPUS, BestFitNodes
from purser.core.placement.policies.fragmentation import Fragmentation
from purser.core.placement.policies.topology import TopologyGpus
from purser.core.placement.policies.weighted import WeightedNodes


def pair(node: str, gpu: str = "") -> NodeAndGpuPolicy:
    found = policy(node, gpu)
    assert isinstance(found, NodeAndGpuPolicy)
    return found


def test_node_and_gpu_are_named_separately() -> None:
    found = pair("best-fit", "topology")
    assert isinstance(found.node, BestFitNodes)
    assert isinstance(found.gpu, TopologyGpus)


def test_gpus_are_chosen_by_best_fit_where_the_policy_has_no_way_of_its_own() -> None:
    assert pair("packing").gpu is BEST_FIT_GPUS
    assert pair("spread").gpu is not BEST_FIT_GPUS


def test_fragmentation_is_both_at_once() -> None:
    assert isinstance(policy("fragmentation"), Fragmentation)
    assert isinstance(pair("fragmentation", "best-fit").node, Fragmentation)


def test_several_are_weighed() -> None:
    node = pair("fragmentation=3, spread").node
    assert isinstance(node, WeightedNodes)
    assert [weight for _, weight in node.parts] == [3.0, 1.0]


@pytest.mark.parametrize(
    ("node", "gpu", "message"),
    [
        ("bestfit", "", "policy 'bestfit' for nodes: must be one of best-fit, binpack"),
        ("best-fit", "best", "policy 'best' for GPUs: must be one of best-fit"),
        ("best-fit", "mutex", "'mutex' is not a single policy that chooses GPUs"),
        ("best-fit", "numa,spread", "'numa,spread' is not a single policy that chooses GPUs: must be one"),
        ("spread=much", "", "weight 'much' for policy 'spread'"),
    ],
)
def test_what_there_is_none_of_is_refused(node: str, gpu: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy(node, gpu)


def test_topology_alone_is_for_gpus() -> None:
    assert isinstance(pair("topology").node, BestFitNodes)
    assert isinstance(pair("topology").gpu, TopologyGpus)
    assert isinstance(pair("best-fit", "topology-aware").gpu, TopologyGpus)


def test_every_word_has_its_policy_but_for_those_that_only_chain() -> None:
    assert set(NODE_POLICIES) == set(model.NodePolicy)
    assert set(GPU_POLICIES) == set(model.GpuPolicy) - {model.GpuPolicy.MUTEX, model.GpuPolicy.NUMA}


def test_every_name_makes_a_policy() -> None:
    assert all(policy(node, gpu) for node in NODE_POLICIES for gpu in GPU_POLICIES)
