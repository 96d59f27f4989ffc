"""Labels that say where a node is: in which zone, rack, block or NVLink domain."""

from collections.abc import Mapping

MAX_TOPOLOGY_LABELS = 8
"""Of a node that are shown."""
_CLIQUE_LABEL = "nvidia.com/gpu.clique"
"""NVLink domain and partition, as NVIDIA's feature discovery writes them."""


def topology_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those of a node's labels. There is no common key for racks, so the key's words decide: Kubernetes' own zones and
    regions (``topology.kubernetes.io/zone``), cloud providers' levels (``cloud.google.com/gce-topology-block``,
    ``topology.k8s.aws/network-node-layer-1``), NVIDIA's Topograph (``network.topology.nvidia.com/leaf``), and whatever
    an administrator calls a rack."""
    found = sorted(key for key in labels if _is_topology_key(key))
    return {key: labels[key] for key in found[:MAX_TOPOLOGY_LABELS]}


def _is_topology_key(key: str) -> bool:
    return "topology" in key or "rack" in key.rpartition("/")[2] or key == _CLIQUE_LABEL
