"""What an upgrade does on one node, step by step."""

import msgspec
import pytest
from tests.unit.operator.upgrade.fleets import Cluster, advanced, all_done, marks, pod_of, workload

from purser.core.names import CORDONED_BY_ANNOTATION, POOL_LABEL, UPGRADE_STATE_LABEL
from purser.operator.model import NodeView, PatchNode
from purser.operator.names import UPGRADE_REQUESTED_ANNOTATION, UPGRADE_STEP_START_ANNOTATION
from purser.operator.order import Operand
from purser.operator.policy.driver import Drain, PodDeletion, UpgradePolicy, WaitForCompletion
from purser.operator.upgrade import State, is_under_way, needs_workloads, pause_of
from purser.operator.upgrade.states import is_valid


def path(cluster: Cluster, name: str = "a", rounds: int = 40) -> list[State]:
    """The states that a node goes through."""
    seen = [cluster.state(name)]
    for _ in range(rounds):
        cluster.round()
        if cluster.state(name) is not seen[-1]:
            seen.append(cluster.state(name))
    return seen


def test_a_fresh_node_is_done_before_it_has_a_driver() -> None:
    cluster = Cluster("a")
    cluster.pods.clear()
    cluster.round()
    assert cluster.state("a") is State.DONE
    assert not cluster.nodes["a"].annotations


def test_nothing_is_written_when_nothing_is_due() -> None:
    cluster = Cluster("a", "b")
    cluster.run()
    before = cluster.writes
    cluster.run()
    assert cluster.writes == before


def test_a_node_goes_through_every_state_in_order() -> None:
    cluster = Cluster("a")
    cluster.run()
    cluster.release()
    assert path(cluster) == [
        State.DONE,
        State.REQUIRED,
        State.CORDON,
        State.PODS,
        State.RESTART,
        State.VALIDATION,
        State.UNCORDON,
        State.DONE,
    ]
    assert all_done(cluster)
    assert not cluster.nodes["a"].unschedulable
    assert not marks(cluster.nodes["a"])
    assert not cluster.violations


def test_cordon_and_its_mark_are_one_write() -> None:
    cluster = Cluster("a")
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.CORDON)
    assert not cluster.nodes["a"].unschedulable
    patch = cluster.round().patches["a"]
    assert patch.unschedulable
    assert patch.annotations[CORDONED_BY_ANNOTATION] == "driver-upgrade"
    assert patch.labels[UPGRADE_STATE_LABEL] == State.PODS


def test_the_driver_stays_as_long_as_a_gpu_pod_does() -> None:
    cluster = Cluster("a")
    cluster.run_pod(workload("stays", "a", controller=""))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    assert cluster.failure("a") == (
        "GPU pods did not terminate within 300 s: "
        "pod team/stays has no controller and would not be recreated (force is off)"
    )
    driver = pod_of(cluster, "a", Operand.DRIVER)
    assert driver is not None
    assert driver.template == "old"
    assert not cluster.nodes["a"].unschedulable, "its old driver works: the node is given back"
    assert not marks(cluster.nodes["a"])


def test_a_node_whose_pods_could_not_leave_is_tried_again() -> None:
    cluster = Cluster("a")
    cluster.run_pod(workload("stays", "a", controller=""))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    failed_at = cluster.now
    cluster.workloads.clear()
    cluster.run(until=lambda: all_done(cluster))
    assert cluster.now - failed_at >= cluster.policy.retry_after_seconds
    assert not cluster.failure("a")


def test_force_and_delete_empty_dir_let_such_pods_go() -> None:
    policy = UpgradePolicy(gpu_pod_deletion=PodDeletion(force=True, delete_empty_dir=True))
    cluster = Cluster("a", policy=policy)
    cluster.run_pod(workload("w", "a", controller="", empty_dir=True))
    cluster.release()
    cluster.run(until=lambda: all_done(cluster))
    assert not cluster.workloads


def test_a_drain_comes_where_gpu_pods_did_not_leave() -> None:
    policy = UpgradePolicy(drain=Drain(enable=True, force=True))
    cluster = Cluster("a", "b", policy=policy)
    cluster.run_pod(workload("bare", "a", controller=""))
    cluster.run_pod(workload("web", "a", uses_gpu=False))
    skipped = {"nvidia.com/gpu-driver-upgrade-drain.skip": "true"}
    cluster.run_pod(workload("told", "a", uses_gpu=False, labels=skipped))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.DRAIN)
    cluster.run(until=lambda: all_done(cluster, ["a"]))
    assert sorted((pod.uid, pod.node) for pod in cluster.workloads) == [("told", "a"), ("web+", "b")]


def test_a_drain_honours_its_selector_and_gives_up_in_time() -> None:
    policy = UpgradePolicy(drain=Drain(enable=True, pod_selector="app=train", timeout_seconds=50))
    cluster = Cluster("a", policy=policy)
    cluster.run_pod(workload("bare", "a", controller="", labels={"app": "train"}))
    cluster.run_pod(workload("web", "a", uses_gpu=False))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    assert "drain did not finish within 50 s" in cluster.failure("a")
    assert {pod.uid for pod in cluster.workloads} == {"bare", "web"}


def test_jobs_are_waited_for_as_long_as_the_policy_says() -> None:
    policy = UpgradePolicy(wait_for_completion=WaitForCompletion(pod_selector="job=yes"))
    cluster = Cluster("a", policy=policy)
    cluster.run_pod(workload("j", "a", labels={"job": "yes"}))
    cluster.release()
    cluster.run(60)
    assert cluster.state("a") is State.JOBS
    cluster.workloads.clear()
    cluster.run(until=lambda: all_done(cluster))


def test_a_policy_that_goes_back_before_the_driver_was_touched_gives_the_node_back() -> None:
    cluster = Cluster("a")
    cluster.run_pod(workload("stays", "a", controller=""))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.PODS)
    driver = pod_of(cluster, "a", Operand.DRIVER)
    cluster.release("old")
    cluster.run(until=lambda: all_done(cluster))
    assert pod_of(cluster, "a", Operand.DRIVER) == driver
    assert not cluster.nodes["a"].unschedulable


def test_a_policy_that_goes_back_while_a_failed_node_waits_for_its_turn_leaves_no_mark() -> None:
    cluster = Cluster("a")
    cluster.cordon("a")
    cluster.broken = {"a"}
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    cluster.release("newer")
    cluster.run(until=lambda: cluster.state("a") is State.REQUIRED)
    cluster.release("new")
    cluster.run()
    assert cluster.state("a") is State.DONE
    assert not marks(cluster.nodes["a"])
    assert not cluster.failure("a")
    assert cluster.nodes["a"].unschedulable


def test_a_node_that_is_away_is_not_failed_for_it() -> None:
    cluster = Cluster("a")
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.VALIDATION)
    cluster.change("a", ready=False)
    cluster.round()
    cluster.now += 100_000
    cluster.round()
    assert cluster.state("a") is State.VALIDATION
    cluster.change("a", ready=True)
    cluster.run(until=lambda: all_done(cluster))


def test_a_restart_that_is_asked_for_is_done_once() -> None:
    cluster = Cluster("a")
    cluster.run()
    before = pod_of(cluster, "a", Operand.DRIVER)
    cluster.change("a", annotations={UPGRADE_REQUESTED_ANNOTATION: "true"})
    cluster.run()
    after = pod_of(cluster, "a", Operand.DRIVER)
    assert before is not None
    assert after is not None
    assert before.uid != after.uid
    assert all_done(cluster)
    assert UPGRADE_REQUESTED_ANNOTATION not in cluster.nodes["a"].annotations


def test_a_node_that_belongs_elsewhere_by_now_moves_by_its_label() -> None:
    cluster = Cluster("a")
    cluster.run()
    cluster.pools["a"] = "q"
    cluster.run(until=lambda: cluster.nodes["a"].labels[POOL_LABEL] == "q")
    assert cluster.state("a") is State.RESTART
    cluster.run(until=lambda: cluster.state("a") is State.DONE)
    driver = pod_of(cluster, "a", Operand.DRIVER)
    assert driver is not None
    assert driver.daemon_set == "purser-driver-q"
    assert not cluster.violations


@pytest.mark.parametrize("state", [State.PODS, State.RESTART, State.VALIDATION])
def test_switched_off_in_the_middle_it_leaves_nothing_behind(state: State) -> None:
    cluster = Cluster("a")
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is state)
    cluster.policy = UpgradePolicy(auto_upgrade=False)
    cluster.run()
    assert not cluster.nodes["a"].unschedulable
    assert not cluster.nodes["a"].annotations
    assert UPGRADE_STATE_LABEL not in cluster.nodes["a"].labels


def test_a_node_that_may_have_no_driver_is_released() -> None:
    cluster = Cluster("a")
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.PODS)
    cluster.obstacles["a"] = "570 is ruled out"
    cluster.run()
    assert not cluster.nodes["a"].unschedulable
    assert UPGRADE_STATE_LABEL not in cluster.nodes["a"].labels


@pytest.mark.parametrize("state", [State.PODS, State.RESTART, State.VALIDATION])
def test_a_node_of_which_the_driver_is_not_known_for_a_while_stays_where_it_is(state: State) -> None:
    cluster = Cluster("a")
    cluster.run_pod(workload("w", "a"))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is state)
    cluster.unknown["a"] = "its GPU's model is not known yet"
    cluster.round()
    cluster.now += 100_000
    cluster.run()
    assert cluster.state("a") is state
    assert cluster.nodes["a"].unschedulable
    assert cluster.status().message == "node a: its GPU's model is not known yet"
    cluster.unknown.clear()
    cluster.run(until=lambda: all_done(cluster))


def test_a_node_that_is_done_stays_so_while_its_driver_is_not_known() -> None:
    cluster = Cluster("a")
    cluster.run()
    before = cluster.nodes["a"]
    cluster.unknown["a"] = "its GPU's model is not known yet"
    cluster.run()
    assert cluster.nodes["a"] == before


def test_what_is_not_known_is_waited_for() -> None:
    """A node whose pods nobody listed may be full of them."""
    cluster = Cluster("a")
    cluster.release()
    for state in (State.PODS, State.RESTART):
        cluster.run(until=lambda state=state: cluster.state("a") is state)  # type: ignore[misc]
        fleet = msgspec.structs.replace(cluster.fleet(), workloads={})
        planned = advanced(fleet)
        assert not planned.patches
        assert not planned.deletions


def test_a_word_of_others_counts_as_unknown() -> None:
    cluster = Cluster("a")
    cluster.label("a", **{UPGRADE_STATE_LABEL: "node-maintenance-required"})
    assert cluster.round().patches["a"] == PatchNode(
        node="a", labels={UPGRADE_STATE_LABEL: "upgrade-done"}, why="nothing to upgrade"
    )


def test_a_daemon_set_that_is_behind_does_not_have_drivers_replaced_for_ever() -> None:
    cluster = Cluster("a")
    cluster.run()
    cluster.release()
    cluster.applied = "old"
    before = set(cluster.pods)
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    assert "the DaemonSet was still creating the old driver" in cluster.failure("a")
    assert len([uid for uid in set(cluster.pods) - before if uid.startswith("driver")]) == 1
    assert not cluster.nodes["a"].unschedulable
    cluster.applied = None
    cluster.run(until=lambda: all_done(cluster))


def in_use_while_its_driver_is_replaced(seconds: float, timeout_s: int) -> Cluster:
    """Whose last GPU pod leaves so long after operands were paused: its driver is deleted in the next round."""
    cluster = Cluster("a", policy=UpgradePolicy(gpu_pod_deletion=PodDeletion(timeout_seconds=timeout_s)))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.RESTART)
    cluster.run_pod(workload("late", "a", controller=""))
    cluster.round()
    cluster.now += seconds
    cluster.workloads.clear()
    return cluster


def round_in_which_no_pod_ends(cluster: Cluster) -> None:
    planned = cluster.decide()
    for write in [*planned.patches.values(), *planned.deletions]:
        cluster.write(write)
    cluster.now += 5.0


@pytest.mark.parametrize("timeout_s", [0, 3000])
def test_a_driver_has_its_time_however_long_the_old_one_was_in_use(timeout_s: int) -> None:
    cluster = in_use_while_its_driver_is_replaced(2500.0, timeout_s)
    for _ in range(20):
        round_in_which_no_pod_ends(cluster)
        assert cluster.state("a") is State.RESTART, cluster.failure("a")
    cluster.run(until=lambda: all_done(cluster))
    assert not marks(cluster.nodes["a"])


@pytest.mark.parametrize("timeout_s", [0, 300])
def test_an_old_driver_that_does_not_go_fails_when_the_new_ones_time_is_up(timeout_s: int) -> None:
    cluster = in_use_while_its_driver_is_replaced(200.0, timeout_s)
    told_to_go = cluster.now
    while cluster.state("a") is State.RESTART:
        round_in_which_no_pod_ends(cluster)
    assert cluster.failure("a") == "the new driver was not ready within 1800 s: the old pod is still terminating"
    assert 1800 <= cluster.now - told_to_go < 1830


def test_an_old_driver_that_does_not_go_is_named() -> None:
    cluster = Cluster("a")
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.RESTART)
    for pod in list(cluster.pods.values()):
        del cluster.pods[pod.uid]
        if pod.operand == Operand.DRIVER:
            cluster.pods[pod.uid] = msgspec.structs.replace(pod, terminating=True, ready=False)
    assert cluster.status().message == "node a: waiting for the new driver: the old pod is still terminating"


def test_a_failed_node_that_was_not_touched_is_tried_at_once_with_another_driver() -> None:
    cluster = Cluster("a")
    cluster.run_pod(workload("stays", "a", controller=""))
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    failed_at = cluster.now
    cluster.release("newer")
    cluster.round()
    assert cluster.state("a") is State.REQUIRED
    assert cluster.now - failed_at < cluster.policy.retry_after_seconds


@pytest.mark.parametrize(
    ("state", "workloads", "pause"),
    [
        (State.REQUIRED, False, None),
        (State.CORDON, False, None),
        (State.JOBS, True, None),
        (State.PODS, True, None),
        (State.DRAIN, True, None),
        (State.RESTART, True, "paused-for-driver-upgrade"),
        (State.VALIDATION, False, None),
        (State.UNCORDON, False, None),
        (State.DONE, False, None),
        (State.FAILED, False, None),
    ],
)
def test_what_each_state_needs_to_know_and_pauses(state: State, workloads: bool, pause: str | None) -> None:
    node = NodeView(name="a", labels={UPGRADE_STATE_LABEL: state.value})
    assert needs_workloads(node) is workloads
    assert pause_of(node) == pause
    assert is_under_way(node) is (state not in (State.REQUIRED, State.DONE, State.FAILED))


def test_a_validation_that_is_older_than_the_driver_proves_nothing() -> None:
    cluster = Cluster("a")
    cluster.run(10)
    progress = cluster.progress("a")
    assert is_valid(progress)
    older = {Operand.VALIDATOR: {"created": 1.0}}
    pods = tuple(msgspec.structs.replace(pod, **older.get(Operand(pod.operand), {})) for pod in progress.pods)
    assert not is_valid(msgspec.structs.replace(progress, pods=pods))


@pytest.mark.parametrize("missing", [(Operand.VALIDATOR,), (Operand.VALIDATOR, Operand.DEVICE_PLUGIN)])
def test_without_a_validator_the_next_best_counts(missing: tuple[Operand, ...]) -> None:
    cluster = Cluster("a")
    cluster.run(10)
    progress = cluster.progress("a")
    operands = {operand: each for operand, each in progress.operands.items() if operand not in missing}
    pods = tuple(pod for pod in progress.pods if pod.operand not in missing)
    assert is_valid(msgspec.structs.replace(progress, operands=operands, pods=pods))
    unready = tuple(msgspec.structs.replace(pod, ready=False) for pod in pods)
    assert not is_valid(msgspec.structs.replace(progress, operands=operands, pods=unready))


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-inf", "9e99"])
def test_a_time_that_is_none_restarts(text: str) -> None:
    cluster = Cluster("a")
    cluster.broken = {"a"}
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.RESTART)
    cluster.change("a", annotations=cluster.nodes["a"].annotations | {UPGRADE_STEP_START_ANNOTATION: text})
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    cluster.change("a", annotations=cluster.nodes["a"].annotations | {UPGRADE_STEP_START_ANNOTATION: text})
    cluster.broken.clear()
    cluster.run(until=lambda: all_done(cluster))


def test_pods_do_not_die_again_and_again_beside_one_that_stays() -> None:
    cluster = Cluster("a")
    cluster.run_pod(workload("stays", "a", controller=""))
    cluster.run_pod(workload("training", "a"))
    cluster.release()
    for _ in range(100):
        cluster.round()
        cluster.now += 100
    assert {pod.uid for pod in cluster.workloads} == {"stays", "training"}


@pytest.mark.parametrize("state", [State.PODS, State.RESTART, State.VALIDATION, State.UNCORDON])
def test_a_state_that_a_user_takes_away_leaves_no_node_cordoned(state: State) -> None:
    cluster = Cluster("a")
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is state)
    labels = {key: value for key, value in cluster.nodes["a"].labels.items() if key != UPGRADE_STATE_LABEL}
    cluster.change("a", labels=labels)
    cluster.run(until=lambda: all_done(cluster) and not cluster.nodes["a"].unschedulable)
    assert not marks(cluster.nodes["a"])


def test_a_driver_without_a_daemonset_is_another_driver_and_replaced_in_order() -> None:
    """As `kubectl delete --cascade=orphan` leaves it: nobody would recreate it, and two drivers never meet."""
    cluster = Cluster("a")
    cluster.run_pod(workload("job", "a"))
    [(uid, driver)] = [(uid, pod) for uid, pod in cluster.pods.items() if pod.operand is Operand.DRIVER]
    cluster.pods[uid] = msgspec.structs.replace(driver, daemon_set="")
    seen: list[State] = []
    cluster.run(until=lambda: seen.append(cluster.state("a")) or (seen[-1] is State.DONE and len(seen) > 1))
    assert State.PODS in seen
    assert not any(each.uid == "job" for each in cluster.workloads if each.node == "a")
    [now] = [pod for pod in cluster.pods.values() if pod.operand is Operand.DRIVER]
    assert now.uid != driver.uid
    assert now.daemon_set
