"""What users of other operators have suffered from, on a cluster in memory."""

import pytest
from tests.unit.operator.world import World, settled_world

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.operator.model import Apply, DeletePod, PatchNode
from purser.operator.order import Operand


@pytest.fixture
def world() -> World:
    found = settled_world("a", "b")
    found.history.clear()
    return found


def applied(world: World) -> list[str]:
    return [each.object["metadata"]["name"] for each in world.history if isinstance(each, Apply)]


def test_p1_a_node_of_another_os_changes_no_other_node(world: World) -> None:
    pods, nodes = dict(world.pods), dict(world.nodes)
    world.add_node("new", os="24.04")
    world.settle()
    assert world.status()["nodes"]["ready"] == 3
    (made,) = applied(world)
    assert made.startswith("purser-driver-ubuntu24-04")
    assert {uid: pod for uid, pod in world.pods.items() if pod.node != "new"} == pods
    assert {name: node for name, node in world.nodes.items() if name != "new"} == nodes


def test_p2_a_node_of_another_kind_of_gpu_and_runtime_changes_no_daemon_set(world: World) -> None:
    pods = set(world.pods)
    world.cards["new"] = "20b0"  # an A100
    world.add_node("new", runtime="cri-o://1.31.0")
    world.settle()
    assert pods <= set(world.pods)
    assert all("crio" in name for name in applied(world))
    assert world.nodes["new"].labels["purser.dev/runtime"] == "crio"
    assert world.deployed("new").keys() - world.deployed("a").keys() == {"mig-manager"}
    assert world.status()["state"] == "ready"


def test_p12_versions_differ_by_pool(world: World) -> None:
    world.add_node("gold", labels={"tier": "gold"})
    profiles = [{"name": "gold", "nodeSelector": {"tier": "gold"}, "version": "601.2"}]
    world.change_policy({"driver": {"profiles": profiles}})
    world.settle()
    assert {each["driver"] for each in world.status()["pools"]} == {"595.91.07", "601.2"}
    assert world.status()["state"] == "ready"


def test_p13_labels_that_flap_take_nothing_away(world: World) -> None:
    pods = {uid for uid, pod in world.pods.items() if pod.operand in set(Operand)}
    for _ in range(3):
        world.nfd_leaves()
        world.settle()
        world.wait(300)
        world.settle()
        world.nfd_comes()
        world.settle()
    assert pods <= set(world.pods)
    assert not any(isinstance(each, DeletePod | Apply) for each in world.history)
    assert world.status()["state"] == "ready"


def test_p13_what_discovery_saw_before_there_was_a_gpu_does_not_count_later(world: World) -> None:
    world.add_node("late", nfd=False, gpus=0)
    world.settle()
    world.gpus["late"] = 1
    world.nfd_comes("late")
    world.settle()
    assert len(world.deployed("late")) == 6
    world.troubles["late", "gpu-discovery"] = "ErrImagePull"
    world.nfd_leaves("late")
    world.settle()
    assert len(world.deployed("late")) == 6


def test_p13_a_gpu_that_nobody_sees_is_looked_at_again_when_it_counts_as_gone(world: World) -> None:
    world.change_policy({"discovery": {"enabled": False}})
    world.settle()
    world.annotate("a", NODE_FACTS_ANNOTATION, None)  # nor did Purser's discovery ever see one there
    world.nfd_leaves("a")
    assert world.round().requeue_after_s == 600.0


def test_a_cordon_of_an_upgrade_goes_with_the_gpu_and_a_foreign_one_stays() -> None:
    world = World()
    world.add_policy()
    for name in ("ours", "theirs"):
        world.add_node(name, nfd=False)
    world.settle()
    for name in ("ours", "theirs"):
        world.gpus[name] = 0
        world.set_node(name, unschedulable=True)
    world.annotate("ours", "purser.dev/cordoned-by", "driver-upgrade")
    world.label("ours", **{"nvidia.com/gpu-driver-upgrade-state": "drain-required"})
    world.settle()
    assert not world.nodes["ours"].unschedulable and world.nodes["theirs"].unschedulable


def test_after_a_reboot_all_labels_go_in_one_write(world: World) -> None:
    world.reboot("a")
    world.round()
    (patch,) = [each for each in world.history if isinstance(each, PatchNode)]
    assert sum(value is None for value in patch.labels.values()) == 5
    assert list(patch.annotations) == ["purser.dev/opened-boot"]


def test_a_reboot_into_another_kernel_changes_the_pool_at_once(world: World) -> None:
    world.reboot("a", kernel="6.8.0-60-generic")
    world.round()
    assert "6-8-0-60" in world.nodes["a"].labels["purser.dev/driver-pool"]
    world.settle()
    assert not any(isinstance(each, PatchNode) and each.unschedulable for each in world.history)
    driver = world.pod("a", Operand.DRIVER)
    assert driver is not None and "6-8-0-60" in driver.daemon_set
    assert world.status()["state"] == "ready"
    assert {each["nodes"] for each in world.status()["pools"]} == {1}


def test_a_node_that_does_not_answer_is_named_and_keeps_its_labels(world: World) -> None:
    before = world.deployed("a")
    world.set_node("a", ready=False)
    world.settle()
    assert world.deployed("a") == before
    assert world.status()["failingNodes"][0]["reason"] == "NodeNotReady"
    assert world.status()["nodes"]["ready"] == 1


def test_a_pool_whose_profile_is_gone_runs_until_its_nodes_have_moved(world: World) -> None:
    world.label("a", tier="gold")
    world.change_policy({"driver": {"profiles": [{"name": "gold", "nodeSelector": {"tier": "gold"}}]}})
    world.settle()
    old = world.nodes["a"].labels["purser.dev/driver-pool"]
    world.change_policy({"driver": {"upgradePolicy": {"autoUpgrade": False}}})
    world.settle()
    assert f"purser-driver-{old}" in {key.name for key in world.objects}
    assert world.pod("a", Operand.DRIVER) is not None
    world.change_policy({})
    world.settle()
    assert f"purser-driver-{old}" not in {key.name for key in world.objects}
    assert world.status()["state"] == "ready"


def test_without_automatic_upgrades_a_deleted_driver_comes_back_as_the_policy_says(world: World) -> None:
    profiles = [{"name": "gold", "nodeSelector": {"tier": "gold"}, "version": "601.2"}]
    world.label("a", tier="gold")
    world.change_policy({"driver": {"profiles": profiles, "upgradePolicy": {"autoUpgrade": False}}})
    world.settle()
    before = world.pod("a", Operand.DRIVER)
    assert before is not None and "gold" not in before.daemon_set
    world.restart_driver("a")
    world.settle()
    driver = world.pod("a", Operand.DRIVER)
    assert driver is not None and "gold" in driver.daemon_set
    assert world.status()["state"] == "ready"
