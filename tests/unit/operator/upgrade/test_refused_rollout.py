"""A DaemonSet that the API server refuses, or that its controller has not seen: no node gives anything up for it."""

from typing import Any

import pytest
from tests.unit.operator.upgrade.fleets import Cluster, all_done, names, pod_of, workload
from tests.unit.operator.world import NAMESPACE, World

from purser.operator.model import Action, DeletePod, Evict, NodeWorkload, PatchNode
from purser.operator.names import PAUSED_FOR_UPGRADE
from purser.operator.order import Operand
from purser.operator.policy.driver import UpgradePolicy
from purser.operator.upgrade import State, plan

ALL_AT_ONCE = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}
OTHER_DRIVER = {"driver": {"version": "600.1.1", "upgradePolicy": ALL_AT_ONCE}}
OTHER_POD = {"driver": {"upgradePolicy": ALL_AT_ONCE}, "daemonsets": {"tolerations": [{"operator": "Exists"}]}}
LATE = "does not match the policy yet"


class Refusing(World):
    """Three nodes at work, and everything that is taken from them."""

    def __init__(self) -> None:
        super().__init__()
        self.add_policy(spec={"driver": {"upgradePolicy": ALL_AT_ONCE}})
        for name in "abc":
            self.add_node(name)
            self.workloads[name] = NodeWorkload(
                namespace="d", name=name, uid=name, node=name, uses_gpu=True, controller="Job"
            )
        self.settle()
        self.taken: list[Action] = []
        self.watchers.append(self._see)

    @property
    def driver_set(self) -> str:
        (name,) = [key.name for key in self.objects if key.kind == "DaemonSet" and "driver" in key.name]
        return name

    def refuse(self) -> None:
        self.refusing[f"DaemonSet {NAMESPACE}/{self.driver_set}"] = "limits.cpu: must be at least 0"

    def live(self) -> None:
        """For longer than anything is waited for."""
        for _ in range(40):
            self.round()
            self.tick()
            self.now += 150

    def _see(self, action: Action) -> None:
        if isinstance(action, Evict | DeletePod):
            self.taken.append(action)
        if isinstance(action, PatchNode) and (action.unschedulable or PAUSED_FOR_UPGRADE in action.labels.values()):
            self.taken.append(action)


@pytest.mark.parametrize("spec", [OTHER_DRIVER, OTHER_POD], ids=["another driver", "only its pod is another"])
def test_a_refused_daemon_set_costs_nobody_anything(spec: dict[str, Any]) -> None:
    world = Refusing()
    world.refuse()
    world.change_policy(spec)
    world.live()
    assert not world.taken
    assert LATE in world.status()["upgrade"]["message"]
    world.refusing.clear()
    world.settle()
    assert world.status()["state"] == "ready"
    assert world.taken


def test_nobody_begins_before_the_daemon_sets_controller_has_seen_it() -> None:
    world = Refusing()
    world._daemon_sets = lambda: None  # type: ignore[method-assign]
    world.change_policy(OTHER_DRIVER)
    world.live()
    assert not world.taken
    del world._daemon_sets  # type: ignore[method-assign]
    world.settle()
    assert world.status()["state"] == "ready"


@pytest.mark.parametrize("when", [State.CORDON, State.PODS, State.RESTART, State.VALIDATION])
def test_a_node_under_way_waits_without_a_clock_until_its_daemon_set_is_right(when: State) -> None:
    cluster = Cluster("a")
    cluster.run_pod(workload("w", "a"))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is when)
    cluster.release("newer")
    cluster.late = {"purser-driver-p"}
    for _ in range(20):
        cluster.round()
        cluster.now += 10_000
    assert cluster.state("a") is when
    assert cluster.status().message == f"node a: DaemonSet purser-driver-p {LATE}"
    cluster.late = set()
    cluster.run(until=lambda: all_done(cluster))
    assert not cluster.violations


def test_a_node_whose_new_driver_is_there_goes_on() -> None:
    cluster = Cluster("a")
    cluster.release()
    cluster.run(until=lambda: (pod := pod_of(cluster, "a", Operand.DRIVER)) is not None and pod.template == "new")
    cluster.late = {"purser-driver-p"}
    cluster.run(until=lambda: all_done(cluster))


def test_other_pools_go_on() -> None:
    cluster = Cluster(*names(3), policy=UpgradePolicy(max_unavailable="100%"))
    cluster.join("q0", "q")
    cluster.run()
    cluster.late = {"purser-driver-p"}
    cluster.release()
    cluster.run(until=lambda: all_done(cluster, ["q0"]))
    cluster.run()
    assert {cluster.state(name) for name in names(3)} == {State.REQUIRED}
    assert LATE in cluster.status().message


def test_a_plan_takes_for_granted_that_daemon_sets_are_taken() -> None:
    cluster = Cluster(*names(2))
    cluster.release()
    cluster.late = {"purser-driver-p"}
    assert [node.name for wave in plan(cluster.fleet()).waves for node in wave] == names(2)
