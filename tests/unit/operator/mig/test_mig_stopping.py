"""A layout that is not applied in time: the node is given back only when nobody can be at it any more."""

import pytest
from tests.unit.operator.mig.nodes import Node
from tests.unit.operator.mig.test_mig_changes import assert_given_back, forget_result, until

from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigResult
from purser.operator.mig import failure_of, pause_of
from purser.operator.mig.states import current_change
from purser.operator.names import MIG_STEP_ANNOTATION
from purser.operator.order import Operand
from purser.operator.policy.sections import MigManagerSpec


def hanging() -> Node:
    """Its worker is at it, and does not answer; the time for it is up."""
    node = Node("all-1g.10gb")
    until(node, "draining")
    node.worker = "away"
    until(node, "applying")
    node.round()
    assert node.taken_up_by
    node.now += node.spec.apply_timeout_seconds
    return node


def test_the_request_is_withdrawn_and_the_pod_deleted_and_the_node_stays_cordoned_until_it_has_gone() -> None:
    node = hanging()
    node.hangs = True
    pod = node.pods[Operand.MIG_MANAGER].uid
    until(node, "stopping")
    assert MIG_WANTED_ANNOTATION not in node.node.annotations
    for _ in range(10):
        node.round()
        node.now += 1000
    assert node.deleted == [pod], "a pod that is going is not told again"
    assert node.node.unschedulable
    assert pause_of(node.node) is not None
    assert node.state == "pending"
    assert failure_of(node.node) == (
        "MIG layout all-1g.10gb: not applied within 600 s; the node stays cordoned until the MIG manager pod terminates"
    )
    node.hangs = False
    node.run()
    assert node.state == "failed"
    assert failure_of(node.node) == "MIG layout all-1g.10gb: not applied within 600 s"
    assert_given_back(node)


@pytest.mark.parametrize("why", ["it was asked to go", "the manager is switched off"])
def test_a_pod_that_is_going_already_is_waited_for_as_well(why: str) -> None:
    node = hanging()
    node.hangs = True
    if why == "it was asked to go":
        node.terminating(node.pods[Operand.MIG_MANAGER].uid)
    else:
        node.spec = MigManagerSpec(enabled=False)
    for _ in range(5):
        node.round()
    assert not node.deleted or why == "the manager is switched off"
    assert pause_of(node.node) is not None
    node.hangs = False
    node.run()
    assert node.state == "failed"
    assert_given_back(node)


def test_without_a_pod_nobody_can_be_at_it() -> None:
    node = hanging()
    node.remakes_manager = False
    del node.pods[Operand.MIG_MANAGER]
    node.round()
    assert node.state == "failed"
    assert_given_back(node)


@pytest.mark.parametrize(("error", "state"), [("", "success"), ("the GPU says no", "failed")])
def test_an_answer_that_comes_while_it_is_stopped_counts(error: str, state: str) -> None:
    node = hanging()
    node.hangs = True
    until(node, "stopping")
    change = current_change(node.node)
    assert change is not None
    answer = MigResult(change.profile, change.apply_attempt, error)
    node.change(annotations=node.node.annotations | {MIG_RESULT_ANNOTATION: encode(answer)})
    node.taken_up_by = ""
    node.round()
    assert node.state == state
    assert (failure_of(node.node) == f"MIG layout all-1g.10gb: not applied within 600 s: {error}") == bool(error)
    assert_given_back(node)


@pytest.mark.parametrize("garbage", [None, "", "{", '{"step": "dancing"}'])
def test_a_record_that_is_lost_while_a_layout_is_applied_is_rewritten(garbage: str | None) -> None:
    """Its worker may be at it: the node is not given back for that."""
    node = hanging()
    node.now -= node.spec.apply_timeout_seconds
    annotations = {key: value for key, value in node.node.annotations.items() if key != MIG_STEP_ANNOTATION}
    node.change(annotations=annotations | ({} if garbage is None else {MIG_STEP_ANNOTATION: garbage}))
    node.round()
    change = current_change(node.node)
    assert change is not None
    assert (change.step, change.profile) == ("applying", "all-1g.10gb")
    assert pause_of(node.node) is not None
    node.worker = "well"
    node.run()
    assert (node.state, node.layout) == ("success", "all-1g.10gb")
    assert_given_back(node)


def test_it_is_tried_again_like_every_failure() -> None:
    node = hanging()
    node.run()
    forget_result(node)
    node.worker = "well"
    node.run()
    assert (node.state, node.layout) == ("success", "all-1g.10gb")
