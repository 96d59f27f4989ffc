"""When alerts fire: their expressions, evaluated on what the operator tells."""

import re
from typing import Any

import pytest

from .wanteds import EVERYTHING, rendered

READY: dict[str, float] = {
    "reconciliation_status": 1,
    "nodes_upgrades_in_progress": 0,
    "nodes_upgrades_pending": 0,
    "nodes_upgrades_failed": 0,
    "nodes_upgrades_done": 3,
    "driver_auto_upgrade_enabled": 1,
}
FAILED = "GPUOperatorReconciliationFailed"


def alerts() -> dict[str, dict[str, Any]]:
    [rules] = [each.object for each in rendered(EVERYTHING) if each.object["kind"] == "PrometheusRule"]
    return {rule["alert"]: rule for group in rules["spec"]["groups"] for rule in group["rules"]}


def fires(name: str, values: dict[str, float], changes: dict[str, int] | None = None) -> bool:
    """PromQL's `and`, `or` and `unless` on series of one and the same target are Python's. ``changes``: how often a
    value changed in the last quarter of an hour."""
    text = re.sub(r"max by \(namespace, job\) \(gpu_operator_(\w+)\)", r"told['\1']", alerts()[name]["expr"])
    text = re.sub(r"changes\(\(told(\['\w+'\])\)\[15m:1m\]\)", r"changes\1", text)
    return bool(eval(text.replace("unless", "and not"), {"told": values, "changes": changes}))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param({}, False, id="all is well"),
        pytest.param({"reconciliation_status": 0}, True, id="something is not ready"),
        pytest.param({"reconciliation_status": 0, "nodes_upgrades_in_progress": 1}, False, id="upgrading"),
        pytest.param({"reconciliation_status": 0, "nodes_upgrades_pending": 4}, False, id="the next ones wait"),
        pytest.param(
            {"reconciliation_status": 0, "nodes_upgrades_pending": 4, "nodes_upgrades_failed": 1}, True, id="halted"
        ),
        pytest.param(
            {"reconciliation_status": 0, "nodes_upgrades_pending": 4, "driver_auto_upgrade_enabled": 0},
            True,
            id="upgrades are off, so they are not what it waits for",
        ),
        pytest.param({"reconciliation_status": -2, "nodes_upgrades_in_progress": 1}, True, id="rounds fail"),
        pytest.param({"reconciliation_status": -1}, True, id="no policy"),
    ],
)
def test_the_stack_counts_as_failed_unless_an_upgrade_is_the_reason(told: dict[str, float], expected: bool) -> None:
    assert fires(FAILED, {**READY, **told}) is expected


def test_an_upgrade_that_fails_or_gets_nowhere_has_alerts_of_its_own() -> None:
    assert fires("GPUOperatorDriverAutoUpgradeFailures", {**READY, "nodes_upgrades_failed": 1})
    assert not fires("GPUOperatorDriverAutoUpgradeFailures", READY)
    upgrading, nowhere = {**READY, "nodes_upgrades_in_progress": 1}, "PurserDriverUpgradeGetsNowhere"
    assert fires(nowhere, upgrading, {"nodes_upgrades_done": 0})
    assert not fires(nowhere, upgrading, {"nodes_upgrades_done": 1})
    assert not fires(nowhere, READY, {"nodes_upgrades_done": 0})


def test_every_alert_says_for_how_long_and_what_it_means() -> None:
    assert len(alerts()) == 7
    for rule in alerts().values():
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert rule["annotations"]["summary"]
