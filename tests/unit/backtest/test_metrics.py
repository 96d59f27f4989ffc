"""A history out of Prometheus: of which pods too little is known. tests/cluster/test_backtest.py asks a real one."""

import math
import re

import pytest
from tests.unit.backtest.told import BEGIN_S
from tests.unit.cli.test_report import prometheus

from purser.backtest.history import Omissions
from purser.backtest.metrics import history_of_metrics
from purser.usage import Prometheus

END_S = BEGIN_S + 7200.0
P, Q, DONE = ({"namespace": "ns", "pod": name, "uid": f"u-{name}", "node": "n1"} for name in ("p", "q", "done"))
SAMPLES = {
    "kube_pod_container_resource_requests": [
        (pod | {"container": "c", "resource": "nvidia_com_gpu"}, 1.0) for pod in (P, Q, DONE)
    ],
    "kube_pod_created": [(pod, BEGIN_S + 60) for pod in (P, Q, DONE)],
    "kube_pod_status_scheduled_time": [(pod, BEGIN_S + 90) for pod in (P, Q, DONE)],
    "kube_pod_completion_time": [(DONE, BEGIN_S + 900)],
    "kube_pod_info": [(P, END_S - 30)],
    "kube_node_info": [({"node": "n1"}, END_S - 30)],
    "kube_node_status_allocatable": [({"node": "n1", "resource": "nvidia_com_gpu"}, 4)],
}


def answer(asked):
    """By the first metric of what is asked; scraped each 30 s."""
    if asked.startswith(("min(", "max(count")):
        return [({}, BEGIN_S if asked.startswith("min(") else 240)]
    found = re.search("kube_[a-z_]+", asked)
    return SAMPLES.get(found[0], []) if found else []


async def test_a_pod_of_which_no_metric_says_when_it_ended_is_counted():
    omissions = Omissions()
    async with prometheus(answer) as (url, _), Prometheus(url) as server:
        found = await history_of_metrics(server, 7200.0, END_S, "", omissions)
    assert [(each.name, each.ended_s - BEGIN_S) for each in found.pods] == [("ns/done", 900), ("ns/p", math.inf)]
    assert [(each.count, each.example, "kube_pod_info" in each.what) for each in found.left_out] == [(1, "ns/q", True)]


@pytest.mark.parametrize(("gpus", "omitted"), [((0.0,), 0), ((0.0, 1.0), 0), ((1.0, 1.0), 1)])
async def test_only_a_pod_with_gpus_in_several_containers_is_said_to_have_them(monkeypatch, gpus, omitted):
    pod = DONE | {"pod": "x", "uid": "u-x"}
    asked = [
        (pod | {"container": f"c{place}", "resource": "nvidia_com_gpu"}, count) for place, count in enumerate(gpus)
    ]
    for metric, more in (
        ("kube_pod_container_resource_requests", asked),
        ("kube_pod_created", [(pod, BEGIN_S + 60)]),
        ("kube_pod_completion_time", [(pod, BEGIN_S + 900)]),
    ):
        monkeypatch.setitem(SAMPLES, metric, [*SAMPLES[metric], *more])
    omissions = Omissions()
    async with prometheus(answer) as (url, _), Prometheus(url) as server:
        await history_of_metrics(server, 7200.0, END_S, "", omissions)
    assert [each.count for each in omissions.found if "several containers" in each.what] == [1] * omitted
