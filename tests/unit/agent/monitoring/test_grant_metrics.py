"""Metrics of what containers hold, whose sums are what their pods hold."""

import pytest
from tests.unit.agent.builders import A, B, grant, init, part, sidecar

from purser.agent.allocation.book import BookedContainer, BookedPod
from purser.agent.metrics import AgentMetrics
from purser.agent.monitoring import NodeSnapshot, NodeStateCollector
from purser.core.model import Enforcement

INIT, SIDECAR, MAIN = init("init", A, memory_mib=10), sidecar("side", A, memory_mib=1), part("main", A, memory_mib=10)
MOVED, LARGER = part("main", B, memory_mib=10), init("init", A, memory_mib=11)


@pytest.mark.parametrize(
    ("parts", "runs", "held_mib"),
    [
        ((INIT, MAIN), False, {"main": 10}),
        ((INIT, MAIN), True, {"main": 10}),
        ((LARGER, MAIN), False, {"init": 11}),
        ((LARGER, MAIN), True, {"main": 10}),
        ((INIT, MOVED), False, {"init": 10, "main": 10}),
        ((INIT, MOVED), True, {"main": 10}),
        ((SIDECAR, LARGER, MAIN), False, {"side": 1, "init": 11}),
        ((SIDECAR, LARGER, MAIN), True, {"side": 1, "main": 10}),
        ((INIT,), False, {"init": 10}),
    ],
)
def test_what_an_app_container_took_over_counts_once(parts, runs, held_mib):
    given = {each.container: BookedContainer(each.uuids, Enforcement.NONE) for each in parts}
    pod = BookedPod(grant("p", *parts), given)
    running = frozenset({"uid-p"} if runs else ())
    metrics = AgentMetrics()
    metrics.registry.register(
        NodeStateCollector(lambda: NodeSnapshot(None, {}, {}, (pod,), 0, registered=True, streams=1, running=running))
    )
    found = {
        sample.labels["container"]: sample.value / 1024 / 1024
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "purser_grant_memory_bytes"
    }
    assert found == held_mib
