"""When it is said that a part of the kubelet report is missing."""

from purser.agent.kubelet.facts.watching import PATIENCE_S, MissingParts

DEVICES = {"devices": "cannot read kubelet_internal_checkpoint: No such file or directory"}
OTHER = {"devices": "kubelet_internal_checkpoint: checksum"}


def test_a_kubelet_that_starts_is_given_time() -> None:
    missing = MissingParts()
    assert missing.look(DEVICES, 100.0) == ({}, ())
    assert missing.wait_s(101.0) == PATIENCE_S - 1
    assert missing.look({}, 100.0 + PATIENCE_S) == ({}, ())
    assert missing.wait_s(1000.0) is None
    assert missing.look(DEVICES, 1000.0) == ({}, ())


def test_what_lasts_is_told_once_and_again_when_it_changes() -> None:
    missing = MissingParts()
    missing.look(DEVICES, 0.0)
    assert missing.wait_s(2 * PATIENCE_S) == 0
    assert missing.look(DEVICES, PATIENCE_S) == (DEVICES, ())
    assert missing.wait_s(2 * PATIENCE_S) is None
    assert missing.look(DEVICES, 2 * PATIENCE_S) == ({}, ())
    assert missing.look(OTHER, 2 * PATIENCE_S) == (OTHER, ())
    assert missing.look({}, 3 * PATIENCE_S) == ({}, ("devices",))
    assert missing.look({}, 4 * PATIENCE_S) == ({}, ())
