"""Changes of a node's MIG layout. P46: a node never ends without GPUs and without a word."""

import msgspec
import pytest
from tests.unit.operator.mig.nodes import Node

from purser.core.names import (
    CORDONED_BY_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_RESULT_ANNOTATION,
    MIG_STATE_LABEL,
    MIG_WANTED_ANNOTATION,
)
from purser.operator.mig import advance, failure_of, needs_workloads, pause_of
from purser.operator.mig.states import current_change
from purser.operator.model import Budget
from purser.operator.names import MIG_STEP_ANNOTATION
from purser.operator.order import Operand
from purser.operator.policy.sections import MigManagerSpec, PluginConfig


def steps(node: Node, rounds: int = 30) -> list[str]:
    seen: list[str] = []
    for _ in range(rounds):
        change = current_change(node.node)
        now = change.step if change is not None else node.state or "-"
        if not seen or seen[-1] != now:
            seen.append(now)
        node.round()
    return seen


def assert_given_back(node: Node) -> None:
    assert MIG_STEP_ANNOTATION not in node.node.annotations
    assert MIG_WANTED_ANNOTATION not in node.node.annotations
    assert CORDONED_BY_ANNOTATION not in node.node.annotations
    assert pause_of(node.node) is None
    assert node.offers_gpus
    assert not node.violations


def until(node: Node, step: str) -> None:
    for _ in range(30):
        change = current_change(node.node)
        if change is not None and change.step == step:
            return
        node.round()
    raise AssertionError(f"never came to {step}: {node.node}")


def forget_result(node: Node) -> None:
    node.change(annotations={k: v for k, v in node.node.annotations.items() if k != MIG_RESULT_ANNOTATION})


def test_a_change_goes_through_every_step_and_gives_the_node_back() -> None:
    node = Node("all-1g.10gb")
    assert steps(node) == ["-", "checking", "draining", "applying", "success"]
    assert node.layout == "all-1g.10gb"
    assert_given_back(node)


def test_afterwards_nothing_is_written() -> None:
    node = Node("all-1g.10gb")
    node.run()
    before = node.writes
    node.run()
    assert node.writes == before


def test_operands_are_paused_from_draining_to_the_end_and_workloads_are_asked_for_while_they_leave() -> None:
    node = Node("all-1g.10gb")
    found = {}
    for step in ("checking", "draining", "applying"):
        until(node, step)
        found[step] = (pause_of(node.node) is not None, needs_workloads(node.node))
    assert found == {"checking": (False, False), "draining": (True, True), "applying": (True, False)}


def test_gpu_pods_of_a_daemon_set_are_asked_once_the_device_plugin_is_gone() -> None:
    """Before, they would be back at once."""
    node = Node("all-1g.10gb")
    node.run_pod("monitor", controller="DaemonSet")
    until(node, "draining")
    node.pods[Operand.DEVICE_PLUGIN] = node._pod(Operand.DEVICE_PLUGIN)
    assert not advance(node.fleet()).evictions
    del node.pods[Operand.DEVICE_PLUGIN]
    assert [each.workload.name for each in advance(node.fleet()).evictions] == ["monitor"]


def test_a_layout_that_is_there_already_disturbs_no_pod() -> None:
    node = Node("all-disabled")
    node.run_pod("training")
    assert steps(node) == ["-", "checking", "success"]
    assert [pod.name for pod in node.workloads] == ["training"]


def test_a_name_that_means_nothing_drains_no_node() -> None:
    node = Node("all-1g.tengb")
    node.run_pod("training")
    assert steps(node) == ["-", "checking", "failed"]
    assert failure_of(node.node) == "MIG layout all-1g.tengb: layout all-1g.tengb does not exist"
    assert [pod.name for pod in node.workloads] == ["training"]
    assert_given_back(node)


def test_gpu_pods_leave_and_others_stay() -> None:
    node = Node("all-1g.10gb")
    node.run_pod("training")
    node.run_pod("monitor", controller="DaemonSet")
    node.run_pod("web", uses_gpu=False)
    node.run()
    assert node.state == "success"
    assert [pod.name for pod in node.workloads] == ["web"]
    assert_given_back(node)


@pytest.mark.parametrize(
    ("devices", "stays"),
    [
        ({"GPU-0"}, True),
        ({"GPU-0", "MIG-of-2"}, True),
        ({"GPU-1"}, False),
        ({"GPU-0", "GPU-1"}, False),
        (set(), False),
        (None, False),
    ],
)
def test_only_pods_of_gpus_that_change_leave(devices: set[str] | None, stays: bool) -> None:
    """Whoever holds what is not known may hold any of them."""
    node = Node("all-1g.10gb")
    node.untouched = ("GPU-0", "GPU-2", "MIG-of-2")
    node.run_pod("training", devices=None if devices is None else frozenset(devices), controller="")
    node.run()
    assert node.state == ("success" if stays else "failed")
    assert [pod.name for pod in node.workloads] == ["training"]
    assert_given_back(node)


def test_a_worker_that_does_not_say_what_it_changes_has_the_node_to_itself() -> None:
    node = Node("all-1g.10gb")
    node.run_pod("training", devices=frozenset({"GPU-0"}))
    node.run()
    assert (node.state, node.workloads) == ("success", [])


def test_the_event_names_whom_it_waits_for() -> None:
    node = Node("all-1g.10gb")
    node.run_pod("precious", controller="")
    until(node, "draining")
    (said,) = advance(node.fleet()).events
    assert said.message.startswith("MIG layout all-1g.10gb is pending: pod team/precious has no controller")
    node.workloads = []
    node.run_pod("leaving", terminating=True)
    (said,) = advance(node.fleet()).events
    assert said.message == "MIG layout all-1g.10gb is pending: waiting for pod team/leaving to terminate"


@pytest.mark.parametrize("changes", [{"controller": ""}, {"empty_dir": True}, {"mirror": True}])
def test_a_pod_with_which_something_would_be_lost_is_waited_for_and_then_it_fails(changes: dict[str, object]) -> None:
    node = Node("all-1g.10gb")
    node.run_pod("precious", **changes)
    node.run()
    assert node.state == "failed"
    assert "GPUs were still in use after 300 s: pod team/precious" in failure_of(node.node)
    assert [pod.name for pod in node.workloads] == ["precious"]
    assert node.layout == "all-disabled"
    assert_given_back(node)


def test_a_failure_is_not_tried_again_by_itself() -> None:
    """Else GPUs would come and go for ever."""
    node = Node("all-1g.10gb")
    node.run_pod("precious", controller="")
    node.run()
    before = node.writes
    node.now += 100_000
    node.run()
    assert node.writes == before


@pytest.mark.parametrize("chance", ["a user takes the state away", "a reboot"])
def test_a_failure_is_tried_again_after(chance: str) -> None:
    node = Node("all-1g.10gb")
    node.worker = "unable"
    node.run()
    assert node.state == "failed"
    node.worker = "well"
    if chance == "a reboot":
        node.change(boot_id="another")
    else:
        node.change(labels={key: value for key, value in node.node.labels.items() if key != MIG_STATE_LABEL})
    node.run()
    assert (node.state, node.layout) == ("success", "all-1g.10gb")


@pytest.mark.parametrize("capable", [True, False])
def test_a_failure_ends_when_nobody_wants_the_layout_any_more(capable: bool) -> None:
    node = Node("all-nonsense")
    node.run()
    assert failure_of(node.node)
    node.change(labels={key: value for key, value in node.node.labels.items() if key != MIG_CONFIG_LABEL})
    node.capable = capable
    node.run()
    assert (node.state, failure_of(node.node)) == (None, "")
    assert_given_back(node)
    before = node.writes
    node.run()
    assert node.writes == before


@pytest.mark.parametrize("loss", ["a reboot", "another driver"])
def test_a_layout_that_did_not_outlive_something_is_applied_again(loss: str) -> None:
    node = Node("all-1g.10gb")
    node.run()
    node.layout = "all-disabled"
    if loss == "a reboot":
        node.change(boot_id="another")
    else:
        node.driver = "driver-2"
        node.pods[Operand.DRIVER] = node._pod(Operand.DRIVER)
    node.run()
    assert (node.state, node.layout) == ("success", "all-1g.10gb")
    assert_given_back(node)


def test_a_budget_holds_its_pods() -> None:
    node = Node("all-1g.10gb")
    node.run_pod("db", labels={"app": "db"})
    node.budgets = (Budget(namespace="team", name="db", selector={"matchLabels": {"app": "db"}}, allowed=0),)
    node.run()
    assert "is protected by PodDisruptionBudget db" in failure_of(node.node)
    assert [pod.name for pod in node.workloads] == ["db"]


@pytest.mark.parametrize("step", ["checking", "draining", "applying"])
def test_a_worker_that_dies_leaves_the_node_with_its_gpus(step: str) -> None:
    node = Node("all-1g.10gb")
    until(node, step)
    node.worker = "away"
    forget_result(node)
    node.run()
    assert node.state == "failed"
    assert failure_of(node.node)
    assert_given_back(node)


@pytest.mark.parametrize("step", ["checking", "draining", "applying"])
def test_a_worker_that_comes_back_goes_on(step: str) -> None:
    node = Node("all-1g.10gb")
    node.worker = "away"
    for _ in range(3):
        node.round()
    node.worker = "well"
    until(node, step)
    node.worker = "away"
    for _ in range(3):
        node.round()
    node.worker = "well"
    node.run()
    assert node.state == "success"
    assert_given_back(node)


def test_a_worker_that_was_late_is_believed() -> None:
    node = Node("all-1g.10gb")
    until(node, "applying")
    request = node.node.annotations[MIG_WANTED_ANNOTATION]
    node.worker = "away"
    forget_result(node)
    node.run()
    assert node.state == "failed"
    answer = msgspec.json.encode({**msgspec.json.decode(request), "error": ""}).decode()
    node.change(annotations=node.node.annotations | {MIG_RESULT_ANNOTATION: answer})
    node.run()
    assert node.state == "success"


@pytest.mark.parametrize("step", ["checking", "draining", "applying"])
def test_switched_off_in_the_middle_the_node_is_given_back(step: str) -> None:
    node = Node("all-1g.10gb")
    until(node, step)
    node.worker = "away"
    forget_result(node)
    node.spec = MigManagerSpec(enabled=False)
    node.terminating(node.pods[Operand.MIG_MANAGER].uid)
    node.run()
    assert node.state == "failed"
    assert failure_of(node.node) == "MIG layout all-1g.10gb: the MIG manager no longer runs on the node"
    assert_given_back(node)


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"step": "dancing"}', "x" * 20_000])
def test_a_record_that_cannot_be_read_ends_the_change(garbage: str) -> None:
    node = Node("all-1g.10gb")
    until(node, "draining")
    node.change(annotations=node.node.annotations | {MIG_STEP_ANNOTATION: garbage})
    assert pause_of(node.node) is None
    node.run()
    assert node.state == "failed"
    assert_given_back(node)


@pytest.mark.parametrize("step", ["checking", "draining"])
def test_a_label_that_changes_meanwhile_begins_another_change(step: str) -> None:
    node = Node("all-1g.10gb")
    until(node, step)
    node.want("all-balanced")
    node.run()
    assert (node.state, node.layout) == ("success", "all-balanced")
    assert_given_back(node)


def test_a_layout_that_is_being_applied_is_finished_first() -> None:
    node = Node("all-1g.10gb")
    node.worker = "well"
    until(node, "applying")
    forget_result(node)
    node.worker = "away"
    node.want("all-balanced")
    node.round()
    change = current_change(node.node)
    assert change is not None
    assert (change.step, change.profile) == ("applying", "all-1g.10gb")
    node.worker = "well"
    node.run()
    assert (node.state, node.layout) == ("success", "all-balanced")
    assert_given_back(node)


def test_a_label_that_is_taken_away_while_pods_leave_ends_it() -> None:
    node = Node("all-1g.10gb")
    until(node, "draining")
    node.change(labels={k: v for k, v in node.node.labels.items() if k != MIG_CONFIG_LABEL})
    node.run()
    assert node.state is None
    assert node.layout == "all-disabled"
    assert_given_back(node)


def test_a_foreign_cordon_is_left() -> None:
    node = Node("all-1g.10gb")
    node.change(unschedulable=True)
    node.run()
    assert node.state == "success"
    assert node.node.unschedulable
    assert CORDONED_BY_ANNOTATION not in node.node.annotations


def test_a_cordon_that_is_lifted_meanwhile_is_set_again() -> None:
    node = Node("all-1g.10gb")
    node.run_pod("precious", controller="")
    until(node, "draining")
    node.change(unschedulable=False)
    node.round()
    assert node.node.unschedulable
    node.workloads.clear()
    node.run()
    assert_given_back(node)


@pytest.mark.parametrize("why", ["away", "busy", "no manager", "cannot"])
def test_a_change_does_not_begin_where_it_cannot_go_well(why: str) -> None:
    node = Node("all-1g.10gb")
    if why == "away":
        node.change(ready=False)
    if why == "busy":
        node.busy = True
    if why == "no manager":
        node.remakes_manager = False
        del node.pods[Operand.MIG_MANAGER]
    if why == "cannot":
        node.capable = False
    node.run()
    assert node.writes == 0


def test_without_a_label_the_policys_default_counts() -> None:
    node = Node(default="all-balanced")
    node.run()
    assert node.layout == "all-balanced"


def test_what_is_not_known_is_waited_for() -> None:
    node = Node("all-1g.10gb")
    until(node, "draining")
    assert not advance(msgspec.structs.replace(node.fleet(), workloads={})).patches


def test_a_timeout_of_nothing_means_none() -> None:
    node = Node("all-1g.10gb")
    node.spec = MigManagerSpec(config=PluginConfig(), gpu_pod_timeout_seconds=0)
    node.run_pod("precious", controller="")
    until(node, "draining")
    node.now += 100_000
    node.round()
    assert pause_of(node.node) is not None


@pytest.mark.parametrize("writes", range(6))
def test_an_operator_that_is_gone_for_long_at_any_step_gives_the_node_back_when_it_returns(writes: int) -> None:
    node = Node("all-1g.10gb")
    node.run_pod("precious", controller="")
    for _ in range(writes):
        node.round()
    node.now += 100_000
    node.workloads.clear()
    node.run()
    assert node.state in ("success", "failed")
    assert bool(failure_of(node.node)) == (node.state == "failed")
    assert_given_back(node)


def test_a_time_that_is_still_to_come_restarts() -> None:
    node = Node("all-1g.10gb")
    node.run_pod("precious", controller="")
    until(node, "draining")
    record = msgspec.json.decode(node.node.annotations[MIG_STEP_ANNOTATION]) | {"since": 9e99}
    node.change(annotations=node.node.annotations | {MIG_STEP_ANNOTATION: msgspec.json.encode(record).decode()})
    node.run()
    assert node.state == "failed"
    assert_given_back(node)


@pytest.mark.parametrize("profile", ["all-1g.10gb", ""])
@pytest.mark.parametrize("step", ["checking", "draining", "applying"])
def test_a_record_that_a_user_takes_away_leaves_no_node_cordoned(step: str, profile: str) -> None:
    node = Node("all-1g.10gb")
    until(node, step)
    node.change(annotations={k: v for k, v in node.node.annotations.items() if k != MIG_STEP_ANNOTATION})
    node.want(profile)
    node.run()
    assert_given_back(node)
    assert node.layout == (profile or node.layout)
