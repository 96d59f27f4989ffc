"""What is simulated is what runs: pods come and go, and the simulator and a cluster place them alike.

A sample of a published trace is run twice: by `purser.simulator.departures`, and by Purser's webhook, extender and
binder over HTTPS with the lab's API server and kube-scheduler. Node, GPUs and order of all placements must be equal.

The fast tier has one small run, the gate larger ones of each policy; the soak tier adds runs of 400 pods on 40 nodes, a
minute or two for each policy.
"""

from collections import Counter

import msgspec
import pytest

from purser.simulator import departures
from tests.conformance.fgd import trace
from tests.lab.timed.driver import scheduled, simulated
from tests.lab.timed.sample import draw
from tests.tiers import IS_LONG, TIER, Tier

pytestmark = pytest.mark.skipif(not trace.there(), reason=trace.MISSING)

SAMPLE = ("default", 2, 32, 200, 60)
"""Workload, seed, nodes, pods, load in percent."""
WITH_MODELS = ("gpuspec33", 1, 20, 150, 45)
"""Here every third pod insists on some GPU models."""
SMALL = ("gpuspec33", 1, 12, 15, 45)
LARGE = ("default", 2, 40, 400, 60)

POLICIES = ("purser", "fragmentation", "best-fit")
LONG_RUNS = [("purser", WITH_MODELS), ("fragmentation", SAMPLE), ("purser", SAMPLE), ("best-fit", WITH_MODELS)]
LARGE_RUNS = [(policy, LARGE) for policy in POLICIES] if TIER is Tier.SOAK else []


@pytest.mark.parametrize(
    ("policy", "sample"),
    [*(LONG_RUNS if IS_LONG else [("purser", SMALL)]), *LARGE_RUNS],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]}-{value[3]}-pods",
)
async def test_the_scheduler_places_pods_as_the_simulator_does(policy, sample, quiet_logs):
    workload, order = draw(*sample)
    expected = simulated(workload, order, policy)
    found = await scheduled(workload, order, policy)
    assert found == expected


@pytest.mark.gate
@pytest.mark.parametrize(("sample", "insisting"), [(SAMPLE, 0), (WITH_MODELS, 40)], ids=["default", "with models"])
def test_the_samples_have_every_kind_that_differs(sample, insisting):
    workload, order = draw(*sample)
    assert len({gpu.model for node in workload.nodes for gpu in node.gpus}) >= 5
    counts = Counter(pod.shape.gpu_count for pod in workload.pods)
    assert counts[1] > 100 > counts[8] >= 10 and counts[2] and counts[4]
    assert sum(bool(pod.shape.models) for pod in workload.pods) >= insisting
    run = departures.run(workload, order, "purser", learns=True)
    assert int((run.waited_s > 0).sum()) >= 15 and run.placed.all()


@pytest.mark.parametrize("policy", POLICIES)
def test_another_order_of_equal_nodes_is_another_run(policy):
    workload, order = draw(*(SAMPLE if IS_LONG else SMALL))
    backwards = msgspec.structs.replace(order, ranks=tuple(range(len(workload.nodes), 0, -1)))
    assert simulated(workload, backwards, policy) != simulated(workload, order, policy)
