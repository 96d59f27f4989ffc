"""NodeResourceTopology objects as NFD's topology updater writes them, and what the twin makes of them."""

import msgspec
import pytest

from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import finish
from purser.core.kubelet.config import CpuPolicy, MemoryPolicy, TopologyPolicy, TopologyScope
from purser.core.kubelet.cpuset import parse_cpuset
from purser.core.kubelet.noderesourcetopology import Attribute, TopologyError, Zone, read
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.report import decode, encode, node_of, report_of, state_of
from purser.core.kubelet.state import KubeletState, MemoryTable

GPU = "nvidia.com/gpu"
GIB = 1 << 30
VERSION = "v1.33.0"


def zone(number, *resources, costs=()):
    return {
        "name": f"node-{number}",
        "type": "Node",
        "costs": [{"name": f"node-{other}", "value": value} for other, value in enumerate(costs)],
        "resources": [
            {"name": name, "capacity": str(c), "allocatable": str(a), "available": str(v)}
            for name, c, a, v in resources
        ],
    }


TWO = [
    zone(0, ("cpu", 8, 7, 4), ("memory", 16 * GIB, "15Gi", "10Gi"), (GPU, 4, 4, 1), costs=(10, 20)),
    zone(1, ("cpu", 8, 8, 8), ("memory", 16 * GIB, "16Gi", "16Gi"), (GPU, 4, 4, 4), costs=(20, 10)),
    {"name": "socket-0", "type": "Socket"},
]


def attributes(policy="single-numa-node", scope="container"):
    return [Attribute("topologyManagerPolicy", policy), Attribute("topologyManagerScope", scope)]


def node_from(zones, said=None, deprecated=()):
    return read(VERSION, msgspec.convert(zones, list[Zone]), attributes() if said is None else said, deprecated)


def test_zones_are_numa_nodes_with_so_many_of_everything():
    node, state = node_from(TWO)
    assert [(numa.node, numa.memory, numa.distances) for numa in node.machine.numa_nodes] == [
        (0, {"memory": 16 * GIB}, (10, 20)),
        (1, {"memory": 16 * GIB}, (20, 10)),
    ]
    assert node.machine.cpus_by_numa == {0: parse_cpuset("0-7"), 1: parse_cpuset("8-15")}
    assert state.cpus.reserved == parse_cpuset("0")
    assert state.cpus.default == parse_cpuset("0,4-15"), "three of the first zone are taken"
    assert state.memory.nodes[0].tables["memory"] == MemoryTable(16 * GIB, GIB, 15 * GIB, 5 * GIB, 10 * GIB)
    assert [state.memory.nodes[number].assignments for number in (0, 1)] == [1, 0]
    gpus = state.devices.resources[GPU]
    assert {n: sum(d.numa_nodes == (n,) for d in gpus.devices.values()) for n in (0, 1)} == {0: 4, 1: 4}
    assert gpus.healthy == {"node-0/0", *(f"node-1/{n}" for n in range(4))}
    assert node.config.cpu_policy is CpuPolicy.STATIC
    assert node.config.memory_policy is MemoryPolicy.STATIC


def pod(gpus, cpus, memory):
    amounts = {"cpu": cpus * 1000, "memory": memory, GPU: gpus}
    return KubeletPod("new", (KubeletContainer("c", limits=amounts, requests=amounts),), QosClass.GUARANTEED)


def refusal(zones, ask, said=None):
    node, state = node_from(zones, said)
    return finish(admit(node, state, ask, active={"new"}), lambda asked: sorted(asked.available)).refusal


@pytest.mark.parametrize(
    ("ask", "fits"),
    [
        pytest.param(pod(4, 8, GIB), True, id="all of the second node"),
        pytest.param(pod(1, 4, GIB), True, id="the rest of the first"),
        pytest.param(pod(5, 2, GIB), False, id="more GPUs than any node has"),
        pytest.param(pod(4, 9, GIB), False, id="more CPUs than the node with the GPUs has"),
        pytest.param(pod(2, 2, 17 * GIB), False, id="more memory than any node has"),
    ],
)
def test_the_twin_predicts_by_counts(ask, fits):
    assert (refusal(TWO, ask) is None) is fits


def test_what_is_taken_stays_taken_after_a_change_of_leaders():
    """Nobody holds it, so there is nobody whose end would free it."""
    node, state = node_from(TWO)
    outcome = finish(admit(node, state, pod(5, 1, GIB), active={"new"}), lambda asked: sorted(asked.available))
    assert outcome.refusal is not None
    assert outcome.state.cpus == state.cpus
    assert outcome.state.devices.resources == state.devices.resources


def test_managers_that_are_not_reported_are_absent():
    node, state = node_from([zone(0, ("cpu", 8, 0, 0), (GPU, 2, 2, 2)), zone(1, ("cpu", 8, 0, 0))])
    assert (state.cpus, state.memory) == (None, None)
    assert (node.config.cpu_policy, node.config.memory_policy) == (CpuPolicy.NONE, MemoryPolicy.NONE)
    assert len(node.machine.cpus) == 16


@pytest.mark.parametrize(
    ("deprecated", "policy", "scope"),
    [
        (["SingleNUMANodeContainerLevel"], TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.CONTAINER),
        (["SingleNUMANodePodLevel"], TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.POD),
        (["Restricted"], TopologyPolicy.RESTRICTED, TopologyScope.CONTAINER),
        (["RestrictedPodLevel"], TopologyPolicy.RESTRICTED, TopologyScope.POD),
        (["BestEffort"], TopologyPolicy.BEST_EFFORT, TopologyScope.CONTAINER),
        (["BestEffortPodLevel"], TopologyPolicy.BEST_EFFORT, TopologyScope.POD),
        (["None"], TopologyPolicy.NONE, TopologyScope.CONTAINER),
        ([], TopologyPolicy.NONE, TopologyScope.CONTAINER),
    ],
)
def test_the_deprecated_field_counts_where_there_are_no_attributes(deprecated, policy, scope):
    config = node_from(TWO, [], deprecated)[0].config
    assert (config.topology_policy, config.topology_scope) == (policy, scope)


def test_attributes_count_before_the_deprecated_field():
    said = [
        *attributes("restricted", "pod"),
        Attribute("topologyManagerMaxNUMANodes", "16"),
        Attribute("nodeTopologyPodsFingerprint", "x"),
    ]
    config = node_from(TWO, said, ["SingleNUMANodeContainerLevel"])[0].config
    assert (config.topology_policy, config.topology_scope) == (TopologyPolicy.RESTRICTED, TopologyScope.POD)
    assert config.topology_options.max_allowable_numa_nodes == 16


def test_distances_are_by_the_number_of_the_zone_or_not_at_all():
    node, _ = node_from([zone(0, costs=(10, 20)), zone(1)])
    assert [numa.distances for numa in node.machine.numa_nodes] == [(10, 20), ()]
    far = zone(2) | {"costs": [{"name": "node-2", "value": 10}]}
    assert node_from([far])[0].machine.numa_nodes[0].distances == ()


def test_an_object_without_zones_is_a_node_without_anything():
    node, state = node_from([])
    assert (node.machine.numa_nodes, state) == ((), KubeletState())


def test_it_can_be_reported_like_any_other():
    node, state = node_from(TWO)
    report = decode(encode(report_of(node, state)))
    assert (node_of(report), state_of(report)) == (node, state)


def test_amounts_that_contradict_each_other_are_made_to_fit():
    _, state = node_from([zone(0, (GPU, 2, 4, 9))])
    assert len(state.devices.resources[GPU].healthy) == 4


@pytest.mark.parametrize(
    ("zones", "said", "message"),
    [
        pytest.param([zone(0, (GPU, "many", 1, 1))], None, "node-0: nvidia.com/gpu: 'many'", id="no quantity"),
        pytest.param([zone(0, (GPU, -1, -1, -1))], None, "negative", id="negative"),
        pytest.param([zone(0), zone(0)], None, "node-0 appears twice", id="twice"),
        pytest.param([zone(64)], None, "is beyond node-63", id="beyond kubelet's masks"),
        pytest.param([zone(0, ("cpu", "1e9", 1, 1))], None, "CPUs or more, but at most 8192", id="too many CPUs"),
        pytest.param([zone(0, (GPU, "1e9", 1, 1))], None, "devices, more than the maximum", id="too many devices"),
        pytest.param([], attributes("strict"), "attributes: 'strict'", id="unknown policy"),
        pytest.param([], [Attribute("topologyManagerMaxNUMANodes", "x")], "attributes: ", id="no number"),
    ],
)
def test_what_describes_no_node_is_an_error(zones, said, message):
    with pytest.raises(TopologyError, match=message):
        node_from(zones, said)


def test_an_unknown_deprecated_policy_is_an_error():
    with pytest.raises(TopologyError, match="unknown policy 'Other'"):
        node_from(TWO, [], ["Other"])
