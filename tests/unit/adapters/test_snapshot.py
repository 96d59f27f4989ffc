"""The fleet of what was listed once: which pods without a grant close GPUs."""

import json

import pytest
from tests.unit.scheduler.explained import Raw, gpus, node, pod

from purser.adapters.snapshot import fleet_of
from purser.kube.codec import codec_of
from purser.kube.resources import NODES, PODS

LISTED = codec_of(NODES).object(json.dumps(node("n", gpus("n", 1))).encode())


def closed_by(body: Raw) -> bool:
    """Whether a running pod without a grant closes the node's GPU."""
    fleet, problems = fleet_of([LISTED], [codec_of(PODS).object(json.dumps(body).encode())])
    assert not problems
    state = fleet.node("n")
    assert state is not None
    return any(each.device.uuid in fleet.disputes("n") for each in state.devices)


def test_a_pod_that_asked_kubelet_for_a_gpu_does() -> None:
    assert closed_by(pod("p", {"nvidia.com/gpu": "1"}, on="n"))


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "purser-scheduler"])
def test_whoever_adds_an_annotation_to_a_pod_that_runs_does_not(scheduler: str) -> None:
    """Such a pod has asked kubelet for nothing, and holds nothing: its author could close any GPU otherwise."""
    assert not closed_by(pod("p", {}, on="n", annotations={"gpu-fraction": "0.5"}, schedulerName=scheduler))


def test_a_grant_on_a_pod_that_asks_for_nothing_holds_nothing() -> None:
    """Anybody can write one, and no agent is ever asked about such a pod."""
    (device,) = gpus("n", 1)
    for limits, held in (({}, 0), ({"nvidia.com/gpu": "1"}, 1000)):
        body = pod("p", limits, on="n", share={device.uuid: 1000})
        fleet, problems = fleet_of([LISTED], [codec_of(PODS).object(json.dumps(body).encode())])
        assert not problems
        assert sum(each.memory_mib for each in fleet.ledger.usage("n").values()) == held
