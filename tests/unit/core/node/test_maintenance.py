"""What the operator's marks on a node say about it."""

import pytest

from purser.core.node.maintenance import cordoned_by, has_failed, maintenance_words, unfinished_upgrade

STEP = "nvidia.com/gpu-driver-upgrade-state"
MARK = "purser.dev/cordoned-by"


@pytest.mark.parametrize(
    ("labels", "annotations", "cordoned", "words"),
    [
        ({STEP: "drain-required"}, {MARK: "driver-upgrade"}, True, "driver upgrade: draining the node"),
        ({STEP: "upgrade-required"}, {}, False, "driver upgrade: pending"),
        ({STEP: "of-another-operator"}, {}, False, "driver upgrade: of-another-operator"),
        ({STEP: "upgrade-done"}, {MARK: "mig-change"}, True, "MIG change"),
        ({STEP: "upgrade-required"}, {MARK: "mig-change"}, True, "MIG change, driver upgrade: pending"),
        ({}, {MARK: "driver-upgrade"}, True, "driver upgrade"),
        ({STEP: "upgrade-done"}, {MARK: "mig-change"}, False, ""),
        ({}, {}, True, ""),
    ],
)
def test_words(labels, annotations, cordoned, words):
    mark = cordoned_by(annotations, cordoned=cordoned)
    assert maintenance_words(mark, unfinished_upgrade(labels)) == words


@pytest.mark.parametrize(
    ("cordoned_for", "upgrade", "mig_state", "words", "fails"),
    [
        ("mig-change", "", "pending", "MIG change", False),
        ("mig-change", "", "failed", "MIG change: failed", True),
        ("mig-change", "upgrade-required", "failed", "MIG change: failed, driver upgrade: pending", True),
        ("driver-upgrade", "upgrade-failed", "success", "driver upgrade: failed", True),
        ("mig-change", "upgrade-failed", "pending", "MIG change, driver upgrade: failed", False),
        ("driver-upgrade", "drain-required", "failed", "driver upgrade: draining the node", False),
        ("", "", "failed", "", False),
    ],
)
def test_failed_work_is_named(cordoned_for, upgrade, mig_state, words, fails):
    assert maintenance_words(cordoned_for, upgrade, mig_state) == words
    assert has_failed(cordoned_for, upgrade, mig_state) is fails
