"""What the patches of an upgrade say of themselves."""

import pytest

from purser.core.names import CORDONED_BY_ANNOTATION
from purser.operator.maintenance import CordonOwner
from purser.operator.model import NodeProgress, NodeView, OperandOnNode, Presence, RuntimeKind
from purser.operator.order import Operand
from purser.operator.upgrade.writes import describe_unready_operand, finish

STAYS = "driver upgraded; the node stays cordoned because something other than the upgrade cordoned it"


@pytest.mark.parametrize(
    ("unschedulable", "by", "why"),
    [
        pytest.param(False, "", "driver upgraded", id="not cordoned"),
        pytest.param(True, CordonOwner.UPGRADE, "driver upgraded", id="by the upgrade"),
        pytest.param(True, CordonOwner.MIG, STAYS, id="by a MIG change"),
        pytest.param(True, "", STAYS, id="by people"),
    ],
)
def test_a_cordon_that_stays_is_named_and_no_other(unschedulable: bool, by: str, why: str) -> None:
    marks = {CORDONED_BY_ANNOTATION: str(by)} if by else {}
    node = NodeView(name="a", unschedulable=unschedulable, annotations=marks)
    progress = NodeProgress(node=node, presence=Presence("present"), runtime=RuntimeKind("containerd"))
    assert finish(progress, 0.0).why == why


@pytest.mark.parametrize(
    ("message", "end"),
    [("", ": operator-validator is failing"), ("exit code 1", ": operator-validator is failing (exit code 1)")],
)
def test_an_operand_that_is_not_ready_is_named_with_its_message(message: str, end: str) -> None:
    validator = OperandOnNode(operand=Operand.VALIDATOR, state="failing", message=message)
    progress = NodeProgress(
        node=NodeView(name="a"),
        presence=Presence("present"),
        runtime=RuntimeKind("containerd"),
        operands={Operand.VALIDATOR: validator},
    )
    assert describe_unready_operand(progress) == end
