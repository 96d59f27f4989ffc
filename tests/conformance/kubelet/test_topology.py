"""The topology manager against the tables of upstream's unit tests and against random inputs of the real functions."""

from tests.conformance.vectors import (
    ALL_FOLDERS,
    TABLES_1_20,
    TABLES_1_36,
    Check,
    CheckVectors,
    Vector,
    VectorFile,
    suites,
)

from purser.core.kubelet.admission import align
from purser.core.kubelet.config import KubeletConfig, TopologyOptions, TopologyPolicy
from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.machine import Machine, NumaNode
from purser.core.kubelet.masks import Mask, mask_of
from purser.core.kubelet.topologymanager import policy_for
from purser.core.kubelet.topologymanager.merge import Factor, max_of_min_counts
from purser.core.kubelet.topologymanager.order import Key, average_distance, closeness, narrowness, nearness
from purser.core.kubelet.topologymanager.single_numa_node import single_node_hints


def mask(nodes: list[int] | None) -> Mask | None:
    return None if nodes is None else mask_of(nodes)


def hint(entry: Vector) -> Hint:
    return Hint(mask(entry["mask"]), entry["preferred"])


def hints(entries: list[Vector] | None) -> Factor:
    return tuple(map(hint, entries or ()))


def provider(entry: dict[str, list[Vector] | None] | None) -> ProviderHints:
    if entry is None:
        return None
    return {resource: None if listed is None else hints(listed) for resource, listed in entry.items()}


def distances(vector: Vector) -> dict[int, tuple[int, ...]]:
    return {int(node): tuple(row) for node, row in (vector.get("numa_distances") or {}).items()}


def config(vector: Vector, version: str) -> KubeletConfig:
    return KubeletConfig(
        version,
        topology_policy=TopologyPolicy(vector["policy"]),
        topology_options=TopologyOptions(prefer_closest_numa_nodes=vector.get("prefer_closest_numa", False)),
    )


def merges(vector: Vector, version: str) -> None:
    rows = distances(vector)
    machine = Machine(tuple(NumaNode(node, distances=rows.get(node, ())) for node in vector["numa_nodes"]))
    policy = policy_for(config(vector, version), machine)
    merged, admitted = policy.merge([provider(entry) for entry in vector["providers_hints"]])
    assert (merged, admitted) == (hint(vector["expected_hint"]), vector["expected_admit"])


def admits(vector: Vector, version: str) -> None:
    """For both scopes: they differ in how often hints are asked for, which the table does not see."""
    policy = policy_for(config(vector, version), Machine(tuple(map(NumaNode, vector["numa_nodes"]))))
    _, refusal = align(policy, [provider(entry) for entry in vector["providers_hints"]])
    assert (refusal is None) == vector["expected_admit"]
    found = ("", "") if refusal is None else (refusal.reason, refusal.message)
    assert found == (vector["observed_reason"], vector["observed_message"])


def keeps_hints_of_single_nodes(vector: Vector, version: str) -> None:
    kept = single_node_hints([hints(listed) for listed in vector["all_resources"]])
    assert kept == tuple(hints(listed) for listed in vector["expected"] or ())


def compares(vector: Vector, version: str) -> None:
    """A table of the comparison of two hints, which is an order here."""
    current = None if vector["current"] is None else hint(vector["current"])
    candidate = hint(vector["candidate"])
    fitness = nearness(vector["best_non_preferred_affinity_count"], narrowness)

    def key(one: Hint) -> tuple[bool, Key]:
        assert one.mask is not None
        return not one.preferred, narrowness(one.mask) if one.preferred else fitness(one.mask)

    if candidate.mask == 0:  # never reached by a merge
        assert vector["expected"] == "current"
    else:
        replaces = current is None or key(candidate) < key(current)
        assert vector["expected"] == ("candidate" if replaces else "current")


def finds_the_closest(vector: Vector, version: str) -> None:
    closest = min((mask_of(vector["current"]), mask_of(vector["candidate"])), key=closeness(distances(vector)))
    assert closest == mask_of(vector[vector["expected"]])


def counts_the_max_of_min(vector: Vector, version: str) -> None:
    assert max_of_min_counts([hints(listed) for listed in vector["hints"]]) == vector["expected"]


def averages_distances(vector: Vector, version: str) -> None:
    assert average_distance(distances(vector), mask_of(vector["mask"])) == vector["expected"]


@suites(
    ("topology_merge.json", merges, ALL_FOLDERS),
    ("topology_admit.json", admits, (TABLES_1_20,)),
    ("topology_filter_single_numa.json", keeps_hints_of_single_nodes, (TABLES_1_20, TABLES_1_36)),
    ("topology_compare_hints.json", compares, (TABLES_1_36,)),
    ("topology_closest.json", finds_the_closest, (TABLES_1_36,)),
    ("topology_max_of_min.json", counts_the_max_of_min, (TABLES_1_36,)),
    ("topology_avg_distance.json", averages_distances, (TABLES_1_36,)),
)
def test_vectors(file: VectorFile, check: Check, check_vectors: CheckVectors) -> None:
    check_vectors(file, check)
