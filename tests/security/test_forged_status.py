"""What may be written through pods/status beside phases: a node's name as a nomination, and kubelet's word that it
rejected the pod."""

import json

import pytest

from purser.core.fleet import Fleet
from purser.core.model import Device, NodeInventory
from purser.kube.codec import codec_of
from purser.kube.resources import PODS
from purser.scheduler.cache import nominations
from purser.scheduler.cache.disputes import INITIAL_GPU_CLOSURE_S
from purser.scheduler.cache.nominations import UNCONFIRMED_NOMINATION_HOLD_S, Nominations
from purser.scheduler.cache.readings import Readings
from tests.unit.agent.builders import A
from tests.unit.kube.servers import ManualClock
from tests.unit.scheduler.extender_world import BINPACK, eventually, replica, server

NOMINATED_NODE_HOLD_S = nominations.NOMINATED_NODE_HOLD_S


def pod(uid, node="n", **spec):
    body = {
        "metadata": {"name": uid, "namespace": "ns", "uid": uid},
        "spec": {
            "schedulerName": "purser-scheduler",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            **spec,
        },
        "status": {"nominatedNodeName": node},
    }
    return codec_of(PODS).object(json.dumps(body).encode())


class Node:
    """One card, and what is kept of it."""

    def __init__(self):
        self.clock = ManualClock()
        fleet, readings = Fleet(), Readings()
        fleet.set_inventory(NodeInventory("n", (Device(A, 0, "T4", 1000, slots=10),)))
        self.nominations = Nominations(fleet, self.clock, readings)
        self.honest = readings.of(pod("honest")).request()

    def put(self, *pods):
        for each in pods:
            self.nominations.put_pod(each)

    def keeps(self):
        """Whether another pod finds no room."""
        return bool(self.nominations.held("n", self.honest, BINPACK))


def test_a_node_is_not_kept_for_good_for_a_pod_about_which_kube_scheduler_never_asks():
    """Its affinity may fit no node."""
    node = Node()
    node.put(pod("p"))
    node.clock.advance(NOMINATED_NODE_HOLD_S - 1)
    assert node.keeps()
    node.clock.advance(1)
    assert not node.keeps()


@pytest.mark.parametrize("others", ["m", ""], ids=["another node", "none"])
def test_naming_the_node_anew_does_not_keep_it_longer(others):
    node = Node()
    for _ in range(4):
        node.put(pod("p"), pod("p", others), pod("p"))
        node.clock.advance(NOMINATED_NODE_HOLD_S / 4)
    node.put(pod("p", others), pod("p"))
    assert not node.keeps()


def test_a_pod_that_kube_scheduler_tries_again_keeps_its_node_as_long_as_it_names_it():
    node = Node()
    node.put(pod("p"))
    for _ in range(3):
        node.clock.advance(NOMINATED_NODE_HOLD_S - 1)
        assert node.keeps()
        node.nominations.asked("p")
    node.put(pod("p", ""))
    node.clock.advance(UNCONFIRMED_NOMINATION_HOLD_S)
    assert not node.keeps()


def test_a_pod_with_scheduling_gates_keeps_nothing():
    """kube-scheduler does not try it before they are removed, which is for its author to do."""
    node = Node()
    node.put(pod("p", schedulingGates=[{"name": "example.com/later"}]))
    assert not node.keeps()
    node.put(pod("p"))
    assert node.keeps()


REJECTED = {
    "phase": "Failed",
    "reason": "UnexpectedAdmissionError",
    "message": "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
    "nvidia.com/gpu, which is unexpected",
}


async def test_pods_that_kubelet_took_keep_no_node_closed_by_one_forged_rejection_after_the_other():
    async with server() as api, replica(api) as world:
        await world.add_node("n", cards=2)
        disputes, pods = world.cache.disputes, {name: await world.add_pod(name) for name in ("one", "two", "late")}

        async def say(name, **status):
            await world.client.patch_merge(PODS, name, {"status": status}, "default", subresource="status")

        async def reject(name):
            await say(name, **REJECTED)
            await eventually(lambda: world.ledger.grant(pods[name].metadata.uid) is None)

        def closed_after(seconds):
            world.clock.ahead_s += seconds
            disputes.tick()
            return len(disputes.closed("n"))

        for name, each in pods.items():
            assert await world.bind(each, "n") == ""
            if name != "late":
                await say(name, startTime="2030-01-01T00:00:00Z")
                await eventually(lambda each=each: world.cache.pod_by_uid(each.metadata.uid).status.start_time)
        await reject("one")
        assert closed_after(INITIAL_GPU_CLOSURE_S - 1) == 2  # a kubelet that has restarted rejects what ran, too
        await reject("two")
        assert closed_after(1) == 0
        await reject("late")  # as kubelet does: with its start time, and not after that
        assert closed_after(INITIAL_GPU_CLOSURE_S) == 2
