"""A node that goes away in the middle of its upgrade: nobody knows when it comes back."""

from purser.operator.model import Standing
from purser.operator.names import UPGRADE_AWAY_SINCE_ANNOTATION, UPGRADE_STEP_START_ANNOTATION
from purser.operator.nodework.steps import NodeStep, Texts, patch, to
from purser.operator.upgrade.states import UpgradeInputs, away_until, is_untouched
from purser.operator.upgrade.writing import clock_text, put_back, say

NOT_READY = "it is NotReady"


def away(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    """With its old driver it is given back at once, and waits for its turn anew. Without, it stays where it is; nothing
    that happens meanwhile is held against its driver, and it keeps its turn for a while (`budget`)."""
    node = standing.node
    if is_untouched(standing):
        why = f"{NOT_READY}, and its old driver untouched: it is given back, and waits for its turn anew"
        return to(put_back(node, why), say(node, why))
    until = away_until(node, fleet)
    if until is None:
        told: Texts = {
            UPGRADE_STEP_START_ANNOTATION: None,
            UPGRADE_AWAY_SINCE_ANNOTATION: clock_text(fleet.now),
        }
        return NodeStep(patch=patch(node, NOT_READY, annotations=told), waits=NOT_READY)
    return NodeStep(waits=NOT_READY, until=until if fleet.now < until else None)
