"""Which labels say where a node is."""

import pytest

from purser.core.node.topology_labels import MAX_TOPOLOGY_LABELS, topology_labels


@pytest.mark.parametrize(
    "key",
    [
        "topology.kubernetes.io/zone",
        "topology.k8s.aws/network-node-layer-1",
        "cloud.google.com/gce-topology-block",
        "network.topology.nvidia.com/leaf",
        "nvidia.com/gpu.clique",
        "example.com/rack",
        "rack_id",
    ],
)
def test_zones_racks_and_domains(key):
    assert topology_labels({key: "a", "kubernetes.io/hostname": "n", "nvidia.com/gpu.count": "8"}) == {key: "a"}


def test_there_are_not_too_many():
    assert len(topology_labels({f"example.com/rack-{number}": "a" for number in range(20)})) == MAX_TOPOLOGY_LABELS
