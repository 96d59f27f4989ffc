"""Nodes on which another operator was, or still is: what it left lets nobody in; while it works nothing is written."""

from typing import Any

import msgspec
import pytest
from tests.unit.operator.world import NAMESPACE, World, same_order

from purser.core.names import GPU_PRESENT_LABEL
from purser.operator.deciding import is_clean, reconcile
from purser.operator.model import Action, Apply, Delete, Gauge, ObjectKey, Reconciliation, WriteStatus
from purser.operator.names import OPENED_BOOT_ANNOTATION
from purser.operator.order import Operand
from purser.operator.policy.decoding import namespace_of_operator

LEFT = {each.deploy_label: "true" for each in Operand} | {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.deploy.sandbox-validator": "true",
    "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
}


@pytest.fixture
def world() -> World:
    found = World()
    found.add_policy()
    return found


def in_order(order: list[str]) -> bool:
    node_assignments = [
        order.index(each) for each in ("container-toolkit", "device-plugin", "operator-validator", "dcgm-exporter")
    ]
    return node_assignments == sorted(node_assignments)


@pytest.mark.parametrize("value", ["true", "paused-for-driver-upgrade", "paused-for-mig-change"])
def test_what_another_operator_left_is_closed_and_opened_in_order(world: World, value: str) -> None:
    world.add_node("a", labels=dict.fromkeys(LEFT, value) | {"nvidia.com/gpu.present": "true"})
    for _ in range(3):
        world.round()
    assert set(world.deployed("a")) == {"driver"}
    world.settle()
    assert in_order(same_order(world.let_in, "a"))
    assert world.condition("Ready")["status"] == "True"


def test_labels_that_were_left_are_closed_before_anything_selects_them(world: World) -> None:
    world.add_node("a", labels=LEFT)
    world.round()

    def look(action: Action) -> None:
        if isinstance(action, Apply) and action.object["kind"] == "DaemonSet":
            assert set(world.deployed("a")) == {"driver"}

    world.watchers.append(look)
    world.settle()


def test_what_people_wrote_before_purser_came_stays_theirs(world: World) -> None:
    world.add_node("a", labels=LEFT | {Operand.DCGM_EXPORTER.deploy_label: "false", Operand.GFD.deploy_label: "mine"})
    world.settle()
    assert world.deployed("a")["dcgm-exporter"] == "false"
    assert world.deployed("a")["gpu-feature-discovery"] == "mine"


def test_an_earlier_purser_is_known_without_a_boot_id(world: World) -> None:
    world.add_node("a", boot_id="")
    world.settle()
    assert world.nodes["a"].annotations[OPENED_BOOT_ANNOTATION] == ""
    assert world.condition("Ready")["status"] == "True"
    assert world.round().actions == ()


def test_while_another_operator_is_there_nothing_but_status_is_written(world: World) -> None:
    world.rivals = ("gpu-cluster-policy",)
    world.add_node("a", labels=LEFT)
    world.settle()
    assert {type(each) for each in world.history} == {WriteStatus}
    for kind, status in (("Ready", "False"), ("Degraded", "True")):
        found = world.condition(kind)
        assert (found["status"], found["reason"]) == (status, "AnotherOperator")
        assert "kubectl delete clusterpolicies.nvidia.com gpu-cluster-policy" in found["message"]
    world.rivals = ()
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert in_order(same_order(world.let_in, "a"))


def test_another_operator_that_comes_later_stops_everything_as_it_is(world: World) -> None:
    world.add_node("a")
    world.settle()
    world.history.clear()
    world.rivals = ("theirs",)
    world.change_policy({"driver": {"version": "600.1.1"}, "gfd": {"version": "v9"}})
    world.settle()
    assert {type(each) for each in world.history} == {WriteStatus}
    assert world.status()["nodes"]["total"] == 1


def test_nodes_in_the_middle_of_a_change_are_named_while_another_operator_is_there(world: World) -> None:
    world.add_node("a")
    world.settle()
    in_the_middle_of_an_upgrade(world)
    world.rivals = ("theirs",)
    world.round()
    assert "in the middle of a change: a" in world.condition("Degraded")["message"]


def test_an_invalid_policy_names_the_nodes_that_stay_in_the_middle_of_an_upgrade(world: World) -> None:
    world.add_node("a")
    world.add_node("b")
    world.settle()
    in_the_middle_of_an_upgrade(world)
    world.change_policy({"driver": {"version": 7}})
    world.settle()
    told = world.condition("Degraded")
    assert told["reason"] == "InvalidSpec"
    assert told["message"].endswith("; nodes left cordoned or paused in the middle of a change: a")
    assert [name for name, node in world.nodes.items() if node.unschedulable] == ["a"]


def in_the_middle_of_an_upgrade(world: World) -> None:
    world.change_policy({"driver": {"version": "600.1.1"}})
    world.run_until(lambda: any(node.unschedulable for node in world.nodes.values()))


def test_a_policy_that_leaves_takes_from_another_operators_nodes_only_what_is_pursers(world: World) -> None:
    world.add_node("a")
    world.settle()
    in_the_middle_of_an_upgrade(world)
    before = world.nodes["a"]
    world.rivals = ("theirs",)
    world.delete_policy()
    world.settle()
    after = world.nodes["a"]
    assert world.policies == {} and world.objects == {}
    assert not after.unschedulable
    assert theirs(after.labels) == theirs(before.labels) and GPU_PRESENT_LABEL in after.labels
    assert theirs(after.annotations) == theirs(before.annotations)
    assert not [key for key in (*after.labels, *after.annotations) if key.startswith("purser.dev/")]
    assert is_clean(world.snapshot()) and world.round().actions == ()


def theirs(found: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if key.startswith("nvidia.com/")}


def test_a_runtime_class_of_others_is_used_as_it_is(world: World) -> None:
    key = ObjectKey("node.k8s.io/v1", "RuntimeClass", "", "nvidia")
    world.foreign = frozenset({key})
    world.add_node("a")
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    world.delete_policy()
    world.settle()
    touched: list[Any] = [ObjectKey.of(each.object) for each in world.history if isinstance(each, Apply)]
    touched += [each.key for each in world.history if isinstance(each, Delete)]
    assert touched and key not in touched


def test_policies_of_an_operator_in_another_namespace_are_left_alone_and_named(world: World) -> None:
    world.add_node("a")
    world.settle()
    world.change_policy({"driver": {"version": "600.1.1"}})
    world.delete_policy()
    world.add_policy("younger", finalizers=["purser.dev/operator-cleanup"])
    outcome = reconcile(msgspec.structs.replace(world.snapshot(), other_namespace="theirs"))
    assert outcome.actions == ()
    [said] = outcome.events
    assert (said.kind, said.name, said.reason, said.warning) == ("ClusterPolicy", "younger", "AnotherNamespace", True)
    assert said.message == outcome.blocked
    assert "purser operator uninstall --namespace theirs" in said.message
    assert outcome.gauges == {Gauge.RECONCILIATION: Reconciliation.NOT_READY}
    assert outcome.requeue_after_s


def test_policies_that_leave_are_left_alone_too_where_they_are_anothers(world: World) -> None:
    world.add_node("a")
    world.settle()
    world.delete_policy()
    outcome = reconcile(msgspec.structs.replace(world.snapshot(), other_namespace="theirs"))
    assert outcome.actions == ()
    assert [each.name for each in outcome.events] == ["gpus"]


def test_whose_policies_are_is_reported_by_the_one_that_counts_most(world: World) -> None:
    assert namespace_of_operator([]) == ""
    world.settle()
    world.add_policy("younger")
    assert namespace_of_operator(tuple(world.policies.values())) == NAMESPACE
    world.delete_policy()
    assert namespace_of_operator(tuple(world.policies.values())) == NAMESPACE, "what leaves still belongs to it"
    world.policies["younger"]["status"] = {"namespace": "theirs"}
    assert namespace_of_operator(tuple(world.policies.values())) == "theirs"


def test_a_new_policy_is_claimed_before_anything_is_made_for_it(world: World) -> None:
    """On condition of its version: of two operators in two namespaces one gets a conflict."""
    world.add_node("a")
    world.round()
    version = world.policies["gpus"]["metadata"]["resourceVersion"]
    [claim] = world.round().actions
    assert isinstance(claim, WriteStatus)
    assert (claim.status.namespace, claim.resource_version) == (NAMESPACE, version)
    assert world.objects == {}
