"""What the patches of an upgrade say of themselves."""

import pytest

from purser.core.names import CORDONED_BY_ANNOTATION
from purser.operator.maintenance import CordonOwner
from purser.operator.model import NodeProgress, NodeView, Presence, RuntimeKind
from purser.operator.upgrade.writes import finish

STAYS = "driver upgraded; the node stays cordoned because the upgrade did not cordon it"


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
