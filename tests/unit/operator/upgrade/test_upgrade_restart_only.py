"""A new template that changes nothing of what the driver is loaded from: its pod is restarted under its users."""

import pytest
from tests.unit.operator.upgrade.fleets import Cluster, advanced, all_done, marks, names, workload

from purser.core.names import POOL_LABEL
from purser.operator.names import UPGRADE_REQUESTED_ANNOTATION, UPGRADE_RESTART_ONLY_ANNOTATION
from purser.operator.order import Operand, dependents
from purser.operator.policy.driver import UpgradePolicy, WaitForCompletion
from purser.operator.upgrade import State, needs_workloads, pause_of
from purser.operator.upgrade.states import is_restart_only


def busy_cluster(*nodes: str, policy: UpgradePolicy | None = None) -> Cluster:
    cluster = Cluster(*nodes or "a", policy=policy)
    for name in cluster.nodes:
        cluster.run_pod(workload(f"training-{name}", name, controller=""))
        cluster.run_pod(workload(f"monitor-{name}", name, controller="DaemonSet"))
    cluster.run()
    return cluster


def operands_of(cluster: Cluster, name: str) -> set[str]:
    """Uids of what the driver's users are; the validator's is recreated, for it validates a certain driver pod."""
    others = set(dependents(Operand.DRIVER)) - {Operand.VALIDATOR}
    return {pod.uid for pod in cluster.pods.values() if pod.node == name and pod.operand in others}


def test_nobody_leaves_and_nothing_is_paused() -> None:
    cluster = busy_cluster()
    operands, pods = operands_of(cluster, "a"), list(cluster.workloads)
    cluster.release(configuration="old")
    assert [each.restart_only for each in cluster.status().upcoming] == [True]
    seen = [cluster.state("a")]
    for _ in range(20):
        planned = cluster.round()
        assert not planned.evictions
        assert pause_of(cluster.nodes["a"]) is None
        assert not needs_workloads(cluster.nodes["a"])
        if cluster.state("a") is not seen[-1]:
            seen.append(cluster.state("a"))
    required, validation = [State.DONE, State.REQUIRED, State.CORDON], [State.VALIDATION, State.UNCORDON, State.DONE]
    assert seen == [*required, State.RESTART, *validation]
    assert all_done(cluster)
    assert (operands_of(cluster, "a"), cluster.workloads) == (operands, pods)
    assert not cluster.nodes["a"].unschedulable
    assert not marks(cluster.nodes["a"])
    assert UPGRADE_RESTART_ONLY_ANNOTATION not in cluster.nodes["a"].annotations
    assert not cluster.violations


@pytest.mark.parametrize(
    "cause", ["another configuration", "none known", "another pool", "another pool's label", "a restart is asked for"]
)
def test_it_is_no_mere_restart(cause: str) -> None:
    cluster = busy_cluster()
    if cause == "another configuration":
        cluster.release()
    elif cause == "none known":
        cluster.release(configuration="old")
        cluster.configuration = ""
    elif cause == "another pool":
        cluster.pools["a"] = "q"
    elif cause == "another pool's label":
        cluster.release(configuration="old")
        cluster.label("a", **{POOL_LABEL: "q"})
    else:
        cluster.change("a", annotations={UPGRADE_REQUESTED_ANNOTATION: "true"})
    assert not is_restart_only(cluster.progress("a"))
    cluster.run(until=lambda: cluster.state("a") is State.PODS)


def test_a_driver_that_does_not_come_up_again_fails_and_halts() -> None:
    cluster = busy_cluster(*names(2))
    cluster.broken = set(cluster.nodes)
    cluster.release(configuration="old")
    cluster.run()
    assert list(cluster.states().values()) == [State.FAILED, State.REQUIRED]
    assert cluster.nodes["n00"].unschedulable
    assert cluster.status().halted


@pytest.mark.parametrize("state", [State.CORDON, State.RESTART, State.VALIDATION])
def test_a_policy_that_changes_the_driver_meanwhile_has_its_users_leave_first(state: State) -> None:
    cluster = busy_cluster(policy=UpgradePolicy(wait_for_completion=WaitForCompletion(pod_selector="job=yes")))
    cluster.release(configuration="old")
    cluster.run(until=lambda: cluster.state("a") is state)
    cluster.release("newer")
    cluster.round()
    cluster.run(until=lambda: cluster.state("a") is State.JOBS or cluster.state("a") is State.PODS)
    assert {pod.uid for pod in cluster.workloads} == {"training-a", "monitor-a"}
    cluster.workloads = [pod for pod in cluster.workloads if pod.controller]
    cluster.run(until=lambda: all_done(cluster))
    assert not cluster.violations


def test_a_driver_that_changes_between_its_end_and_its_beginning_has_its_users_leave_then() -> None:
    cluster = busy_cluster()
    cluster.workloads = [pod for pod in cluster.workloads if pod.controller]
    cluster.release(configuration="old")
    cluster.run(until=lambda: cluster.state("a") is State.RESTART)
    (deletion,) = advanced(cluster.fleet()).deletions
    cluster.write(deletion)
    cluster.release("newer")
    cluster.live()
    cluster.run(until=lambda: all_done(cluster))
    assert not cluster.violations
    assert cluster.loaded == {"a": "newer"}


def test_a_policy_that_goes_back_to_the_same_configuration_lets_pods_stay() -> None:
    cluster = busy_cluster()
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.PODS)
    cluster.release("newer", configuration="old")
    cluster.run(until=lambda: all_done(cluster))
    assert {pod.uid for pod in cluster.workloads} == {"training-a", "monitor-a"}


def test_a_mark_that_a_user_takes_away_has_the_users_leave() -> None:
    """Without it nobody knows that they were to stay: the driver goes only once they have left."""
    cluster = busy_cluster()
    cluster.workloads = [pod for pod in cluster.workloads if pod.controller]
    cluster.release(configuration="old")
    cluster.run(until=lambda: cluster.state("a") is State.RESTART)
    annotations = dict(cluster.nodes["a"].annotations)
    del annotations[UPGRADE_RESTART_ONLY_ANNOTATION]
    cluster.change("a", annotations=annotations)
    cluster.run(until=lambda: all_done(cluster))
    assert not cluster.violations
