"""Who is asked to leave, and what disruption budgets make of it."""

import msgspec
import pytest
from tests.unit.operator.upgrade.fleets import workload

from purser.operator.maintenance import DisruptionLedger, Rules, gpu_pods, request_evictions
from purser.operator.model import Budget


def budget(name: str, allowed: int, namespace: str = "team", **labels: str) -> Budget:
    return Budget(namespace=namespace, name=name, selector={"matchLabels": labels}, allowed=allowed)


def asked(*pods: object, budgets: tuple[Budget, ...] = ()) -> tuple[list[str], tuple[str, ...]]:
    leaving = request_evictions(pods, Rules(), DisruptionLedger(budgets), "test")  # type: ignore[arg-type]
    return [each.workload.name for each in leaving.evictions], leaving.staying


def test_pods_are_asked_in_the_order_of_their_names() -> None:
    assert asked(workload("b"), workload("a")) == (["a", "b"], ())


def test_a_pod_that_is_going_is_left_to_go() -> None:
    assert asked(workload("a", terminating=True)) == ([], ())


def test_each_pod_counts_against_its_budget() -> None:
    pods = [workload(name, labels={"app": "db"}) for name in "abc"]
    found, staying = asked(*pods, budgets=(budget("db", 2, app="db"),))
    assert found == ["a", "b"]
    assert staying == ("pod team/c is protected by PodDisruptionBudget db",)


def test_a_budget_concerns_its_own_namespace_and_labels_only() -> None:
    budgets = (budget("db", 0, "other", app="db"), budget("web", 0, app="web"))
    assert asked(workload("a", labels={"app": "db"}), budgets=budgets) == (["a"], ())


def test_a_budget_without_labels_covers_its_whole_namespace() -> None:
    found, staying = asked(workload("a"), budgets=(budget("all", 0),))
    assert not found
    assert len(staying) == 1


def test_a_pod_that_does_not_run_is_no_budgets_matter() -> None:
    assert asked(workload("a", phase="Pending"), budgets=(budget("all", 0),)) == (["a"], ())


@pytest.mark.parametrize(
    ("ready", "changes", "goes"),
    [
        (True, {"current_healthy": 3, "desired_healthy": 3}, False),
        (True, {"unhealthy_may_go": True}, False),
        (False, {"current_healthy": 3, "desired_healthy": 3}, True),
        (False, {"current_healthy": 4, "desired_healthy": 3}, True),
        (False, {"current_healthy": 2, "desired_healthy": 3}, False),
        (False, {"current_healthy": 0, "desired_healthy": 0}, False),
        (False, {"unhealthy_may_go": True, "current_healthy": 2, "desired_healthy": 3}, True),
        (False, {"allowed": 1, "current_healthy": 2, "desired_healthy": 3}, True),
    ],
    ids=[
        "a ready pod counts",
        "a ready pod counts whatever is said of others",
        "enough others are healthy",
        "more than enough are",
        "too few are",
        "a budget that wants none is not known to be healthy",
        "its budget lets every unhealthy one go",
        "too few are healthy, and yet one may go",
    ],
)
def test_a_pod_that_is_not_ready_goes_as_the_server_lets_it(ready: bool, changes: dict[str, int], goes: bool) -> None:
    budgets = (msgspec.structs.replace(budget("db", 0, app="db"), **changes),)
    found, _ = asked(workload("a", ready=ready, labels={"app": "db"}), budgets=budgets)
    assert found == (["a"] if goes else [])


def test_a_pod_that_is_not_ready_and_goes_by_itself_takes_nothing_from_its_budget() -> None:
    budgets = (msgspec.structs.replace(budget("db", 1, app="db"), current_healthy=1, desired_healthy=1),)
    pods = [workload("a", ready=False, labels={"app": "db"}), workload("b", labels={"app": "db"})]
    assert asked(*pods, budgets=budgets) == (["a", "b"], ())


def test_two_budgets_on_one_pod_are_named_because_the_server_refuses_these() -> None:
    _, staying = asked(workload("a"), budgets=(budget("y", 5), budget("x", 5)))
    assert staying == ("pod team/a is covered by 2 PodDisruptionBudgets, which eviction does not support: x, y",)


def test_a_budget_that_is_not_understood_protects() -> None:
    odd = Budget(namespace="team", name="odd", selector={"matchExpressions": [{"key": "a", "operator": "Gt"}]})
    _, staying = asked(workload("a"), budgets=(odd,))
    assert staying == ("pod team/a is protected by PodDisruptionBudget odd",)


def test_nobody_dies_for_a_node_that_is_not_emptied() -> None:
    pods = [workload("a", controller=""), workload("b"), workload("c", empty_dir=True)]
    found, staying = asked(*pods)
    assert not found
    assert [each.split()[1] for each in staying] == ["team/a", "team/c"]


def test_pods_that_have_ended_hold_no_gpu() -> None:
    pods = [
        workload("a", phase="Succeeded"),
        workload("b", phase="Failed"),
        workload("c"),
        workload("d", uses_gpu=False),
    ]
    assert [pod.name for pod in gpu_pods(pods)] == ["c"]
