"""What becomes of a ready stack when the policy, objects or people's labels change."""

from copy import deepcopy
from typing import Any

import pytest
from tests.unit.operator.world import NAMESPACE, World, settled_world

from purser.operator.model import AppliedObject, Apply, Delete, DeletePod, ObjectKey, PatchNode
from purser.operator.order import Operand


@pytest.fixture
def world() -> World:
    found = settled_world("a", "b")
    found.history.clear()
    return found


def daemon_set(world: World, beginning: str) -> dict[str, Any]:
    (found,) = [each for key, each in world.objects.items() if key.kind == "DaemonSet" and beginning in key.name]
    return found


def changed(world: World, beginning: str) -> dict[str, Any]:
    """A live DaemonSet that somebody is free to write into."""
    key = ObjectKey.of(daemon_set(world, beginning))
    world.objects[key] = deepcopy(world.objects[key])
    return world.objects[key]


def applied(world: World) -> dict[str, str]:
    return {each.object["metadata"]["name"]: each.why for each in world.history if isinstance(each, Apply)}


def test_a_disabled_operand_leaves_and_comes_back(world: World) -> None:
    before = world.final()
    world.change_policy({"dcgmExporter": {"enabled": False}})
    world.settle()
    assert world.pod("a", Operand.DCGM_EXPORTER) is None
    assert "dcgm-exporter" not in world.deployed("a")
    assert not any("dcgm-exporter" in key.name for key in world.objects)
    states = {each["name"]: each["state"] for each in world.status()["operands"]}
    assert states["dcgm-exporter"] == "disabled"
    assert world.status()["state"] == "ready"
    world.change_policy({})
    world.settle()
    world.policies["gpus"]["status"]["observedGeneration"] = 1
    assert world.final()[:3] == before[:3]


def test_drift_is_repaired_and_only_there(world: World) -> None:
    live = changed(world, "container-toolkit")
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "somebody/else:1"
    world.round()
    where = "spec.template.spec.containers[0].image"
    assert applied(world) == {"purser-container-toolkit-containerd": f"drift: {where}"}
    assert "somebody" not in str(daemon_set(world, "container-toolkit"))


def test_a_server_that_spells_values_its_own_way_costs_one_write(world: World) -> None:
    world.change_policy({"devicePlugin": {"resources": {"limits": {"memory": "1024Mi"}}}})
    world.round()
    live = changed(world, "device-plugin")
    live["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Gi"
    key = ObjectKey.of(live)
    world.settled[key] = AppliedObject(world.settled[key].wanted_hash, live)
    world.history.clear()
    world.settle()
    assert applied(world) == {}
    world.settled = {}
    world.round()
    assert list(applied(world).values()) == ["drift: spec.template.spec.containers[0].resources.limits.memory"]


def test_a_new_version_of_an_operand_rolls_out_and_closes_no_gate(world: World) -> None:
    world.change_policy({"dcgmExporter": {"version": "9.9.9"}, "gfd": {"version": "v9"}})
    world.round()
    world.tick()
    world.round()
    assert world.condition("Progressing")["status"] == "True"
    assert world.condition("Ready")["status"] == "False"
    world.settle()
    assert not any(each.labels for each in world.history if isinstance(each, PatchNode))
    assert world.condition("Progressing")["status"] == "False"
    assert len(applied(world)) == 2


def test_what_is_not_updated_yet_is_distinguished_from_what_is_not_ready(world: World) -> None:
    world.change_policy({"gfd": {"version": "v9"}})
    world.round()
    world.round()
    (gfd,) = [each for each in world.status()["operands"] if each["name"] == "gpu-feature-discovery"]
    assert (gfd["state"], gfd["desired"], gfd["ready"], gfd["updated"]) == ("progressing", 2, 2, 0)
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "Updating")
    assert world.condition("Progressing")["message"] == "updating: gpu-feature-discovery"


def test_that_something_is_updated_is_no_warning(world: World) -> None:
    world.change_policy({"gfd": {"version": "v9"}})
    [said] = [each for _ in range(2) for each in world.round().events]
    assert (said.reason, said.warning) == ("Updating", False)
    world.settle()
    world.crash("a", Operand.GFD)
    [said] = [each for each in world.round().events if each.kind == "ClusterPolicy"]
    assert (said.reason, said.warning) == ("OperandsNotReady", True)


def test_a_daemon_set_that_its_controller_has_not_seen_is_not_rolled_out(world: World) -> None:
    live = changed(world, "container-toolkit")
    live["metadata"]["generation"] += 1
    world.round()
    assert (
        world.condition("Progressing")["message"]
        == "DaemonSets not yet rolled out: purser-container-toolkit-containerd"
    )


def test_an_excluded_node_is_not_judged(world: World) -> None:
    world.label("a", **{"nvidia.com/gpu.deploy.operands": "false"})
    world.set_node("a", ready=False)
    world.settle()
    assert world.status()["failingNodes"] == []
    assert world.status()["state"] == "ready"


def test_a_driver_that_fails_later_takes_nothing_away(world: World) -> None:
    before = world.deployed("a")
    world.crash("a", Operand.DRIVER)
    world.settle()
    assert world.deployed("a") == before
    assert world.pod("a", Operand.DEVICE_PLUGIN) is not None
    assert world.status()["failingNodes"][0]["operand"] == "driver"


def test_a_node_with_a_newer_driver_is_validated_again(world: World) -> None:
    old = world.pod("a", Operand.VALIDATOR)
    world.restart_driver("a")
    world.settle()
    new = world.pod("a", Operand.VALIDATOR)
    assert old is not None and new is not None and new.uid != old.uid
    assert [each.pod.uid for each in world.history if isinstance(each, DeletePod)] == [old.uid]
    assert world.status()["state"] == "ready"


def test_a_policy_that_makes_no_sense_changes_nothing_and_says_why(world: World) -> None:
    before = world.final()
    world.change_policy({"devicePlugin": {"slots": 0}})
    world.settle()
    assert world.final()[:3] == before[:3]
    degraded = world.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "InvalidSpec")
    assert "spec.devicePlugin.slots is 0" in degraded["message"]
    assert world.status()["observedGeneration"] == 2
    assert len(world.history) == 1
    world.change_policy({})
    world.settle()
    assert world.status()["state"] == "ready"


def test_a_younger_policy_is_ignored_and_says_so(world: World) -> None:
    world.add_policy("second", {"dcgmExporter": {"enabled": False}})
    world.settle()
    assert world.status("second")["state"] == "ignored"
    ready = world.condition("Ready", "second")
    assert (ready["status"], ready["reason"]) == ("False", "Ignored")
    assert "older ClusterPolicy gpus is active" in ready["message"]
    assert "finalizers" not in world.policies["second"]["metadata"]
    assert world.status()["state"] == "ready"
    world.history.clear()
    assert world.round().actions == ()


def test_the_next_policy_takes_over_and_no_pod_ends_for_it(world: World) -> None:
    world.add_policy("second")
    world.settle()
    pods = set(world.pods)
    world.delete_policy()
    world.settle()
    assert list(world.policies) == ["second"]
    assert world.status("second")["state"] == "ready"
    assert set(world.pods) == pods
    uid = world.policies["second"]["metadata"]["uid"]
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in world.objects.values()} == {uid}


def test_a_policy_does_not_go_while_its_successor_makes_no_sense(world: World) -> None:
    world.add_policy("second", {"devicePlugin": {"slots": 0}})
    world.settle()
    world.delete_policy()
    world.settle()
    assert set(world.policies) == {"gpus", "second"}
    assert world.pod("a", Operand.DRIVER) is not None
    assert "once ClusterPolicy second has taken over" in world.condition("Ready")["message"]
    world.change_policy({}, "second")
    world.settle()
    assert set(world.policies) == {"second"}


def test_with_the_last_policy_everything_goes(world: World) -> None:
    world.add_node("c", nfd=False)
    world.label("b", **{Operand.GFD.deploy_label: "false"})
    world.settle()
    world.set_node("a", unschedulable=True)
    world.annotate("a", "purser.dev/cordoned-by", "driver-upgrade")
    world.set_node("b", unschedulable=True)
    world.delete_policy()
    world.settle()
    assert (world.policies, world.objects, world.pods) == ({}, {}, {})
    for node in world.nodes.values():
        assert node.annotations == {}
        assert not [key for key in node.labels if "purser.dev" in key]
    assert world.deployed("a") == world.deployed("c") == {}
    assert world.deployed("b") == {"gpu-feature-discovery": "false"}
    assert not world.nodes["a"].unschedulable and world.nodes["b"].unschedulable
    world.history.clear()
    assert world.round().actions == ()


def test_the_policy_waits_for_pods_that_could_still_write(world: World) -> None:
    world.add_node("c", nfd=False)
    world.settle()
    world.lingering = True
    world.delete_policy()
    world.settle()
    assert {obj["metadata"]["labels"]["purser.dev/operand"] for obj in world.objects.values()} == {"driver"}
    assert world.condition("Ready")["reason"] == "Leaving"
    assert "purser.dev/node-facts" in world.nodes["c"].annotations
    world.lingering = False
    world.settle()
    assert world.policies == {}
    assert world.nodes["c"].annotations == {}


def test_labels_of_another_operator_are_left_alone_without_a_policy() -> None:
    world = World()
    world.add_node("a", labels={"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true"})
    assert world.round().actions == ()


def test_only_its_own_objects_are_removed_and_each_once(world: World) -> None:
    world.change_policy({"gfd": {"enabled": False}})
    world.round()
    removed = [each for each in world.history if isinstance(each, Delete)]
    assert removed and all("gpu-feature-discovery" in each.key.name for each in removed)
    assert all(each.key.namespace in ("", NAMESPACE) for each in removed)
    world.history.clear()
    world.settle()
    assert not any(isinstance(each, Delete) for each in world.history)


@pytest.mark.parametrize("broken", [Operand.DRIVER, Operand.TOOLKIT, Operand.DEVICE_PLUGIN])
def test_what_is_switched_on_waits_for_all_that_it_stands_on(world: World, broken: Operand) -> None:
    """The validator stays ready when a driver crashes after it."""
    world.crash("a", broken)
    world.round()
    world.change_policy({"dcgm": {"enabled": True}})
    world.settle()
    assert "dcgm" not in world.deployed("a")
    assert world.deployed("b")["dcgm"] == "true"
    assert world.deployed("a")["operator-validator"] == "true", "what is in stays"
    world.heal("a", broken)
    world.settle()
    assert world.deployed("a")["dcgm"] == "true"
