"""Whatever keeps a node from its driver, the policy's status says it."""

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.operator.upgrade.fleets import Cluster, pod_of, workload

from purser.core.names import UPGRADE_FAILURE_ANNOTATION
from purser.operator.order import Operand
from purser.operator.policy.driver import Drain, UpgradePolicy
from purser.operator.upgrade import State, failure_of


def stubborn_pod(cluster: Cluster) -> None:
    cluster.run_pod(workload("stays", "a", controller=""))


def stubborn_pod_despite_a_drain(cluster: Cluster) -> None:
    cluster.policy = UpgradePolicy(drain=Drain(enable=True))
    stubborn_pod(cluster)


def pod_that_comes_late(cluster: Cluster) -> None:
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.RESTART)
    stubborn_pod(cluster)


def daemon_set_that_is_behind(cluster: Cluster) -> None:
    cluster.run()
    cluster.applied = "old"


def driver_that_does_not_come_up(cluster: Cluster) -> None:
    cluster.broken = {"a"}


def driver_that_restarts(cluster: Cluster) -> None:
    cluster.broken = {"a"}
    cluster.release()
    cluster.run(until=lambda: (pod := pod_of(cluster, "a", Operand.DRIVER)) is not None and pod.template == "new")
    restart_driver(cluster)


def driver_that_restarts_during_validation(cluster: Cluster) -> None:
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.VALIDATION)
    cluster.broken = {"a"}
    restart_driver(cluster)


def restart_driver(cluster: Cluster) -> None:
    pod = pod_of(cluster, "a", Operand.DRIVER)
    assert pod is not None
    cluster.pods[pod.uid] = msgspec.structs.replace(pod, restarts=11, ready=False, message="no such module")


def pod_under_which_the_driver_went(cluster: Cluster) -> None:
    stubborn_pod(cluster)
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.PODS)
    driver = pod_of(cluster, "a", Operand.DRIVER)
    assert driver is not None
    del cluster.pods[driver.uid]


def node_that_is_not_valid(cluster: Cluster) -> None:
    cluster.unwell.add(Operand.VALIDATOR)


WAYS = {
    stubborn_pod: "GPU pods did not terminate within 300 s: pod team/stays has no controller",
    stubborn_pod_despite_a_drain: "the drain did not finish within 300 s: pod team/stays has no controller",
    pod_that_comes_late: "the driver was still in use after 300 s: pod team/stays has no controller",
    daemon_set_that_is_behind: "the DaemonSet was still creating the old driver pod after 1800 s",
    driver_that_does_not_come_up: "the new driver was not ready within 1800 s",
    driver_that_restarts: "the new driver was restarted 11 times: no such module",
    driver_that_restarts_during_validation: "the new driver was restarted 11 times: no such module",
    pod_under_which_the_driver_went: "the new driver was not ready within 1800 s; pod team/stays has no controller",
    node_that_is_not_valid: "validation did not pass within 600 s: operator-validator is progressing",
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_to_fail_is_reported(way: Callable[[Cluster], None]) -> None:
    cluster = Cluster("a", "b")
    way(cluster)
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    assert WAYS[way] in failure_of(cluster.nodes["a"])
    assert f"node a: {WAYS[way]}" in cluster.status().message


def test_a_failure_without_its_reason_is_reported_too() -> None:
    cluster = Cluster("a")
    cluster.broken = {"a"}
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    annotations = {k: v for k, v in cluster.nodes["a"].annotations.items() if k != UPGRADE_FAILURE_ANNOTATION}
    cluster.change("a", annotations=annotations)
    assert failure_of(cluster.nodes["a"])
    assert failure_of(cluster.nodes["a"]) in cluster.status().message


def test_a_failed_node_that_waits_for_another_driver_says_why_it_is_cordoned() -> None:
    cluster = Cluster("a", "b")
    cluster.broken = {"a"}
    cluster.release()
    cluster.run(until=lambda: cluster.state("a") is State.FAILED)
    cluster.release("newer")
    cluster.round()
    assert (cluster.state("a"), cluster.nodes["a"].unschedulable) == (State.REQUIRED, True)
    told = (
        "the last driver upgrade failed, and the node stays cordoned while queued for a retry:"
        " the new driver was not ready within 1800 s"
    )
    assert failure_of(cluster.nodes["a"]).startswith(told)
    assert f"node a: {told}" in cluster.status().message
