"""Cards are brought into a layout, or are as they were."""

import pytest
from tests.unit.agent.mig.fake_gpus import Gpus

from purser.agent.mig import HardwareError, Layout
from purser.agent.mig.applying import WithdrawnError, apply_layouts, changed_layouts

OFF = Layout(False)
SMALL = Layout(True, ("1g.5gb",) * 7)
LARGE = Layout(True, ("3g.20gb", "3g.20gb"))


def test_only_gpus_that_differ_are_touched() -> None:
    gpus = Gpus(SMALL, OFF, LARGE)
    apply_layouts(gpus, {0: SMALL, 1: SMALL})
    assert gpus.layouts() == [SMALL, SMALL, LARGE]
    assert gpus.calls == ["mode 1 True", f"devices 1 {','.join(SMALL.devices)}"]


def test_twice_changes_nothing_more() -> None:
    gpus = Gpus(OFF, OFF)
    wanted = {0: LARGE, 1: LARGE}
    apply_layouts(gpus, wanted)
    before = len(gpus.calls)
    apply_layouts(gpus, wanted)
    assert len(gpus.calls) == before


def test_mig_is_switched_off_after_its_devices_are_gone() -> None:
    gpus = Gpus(SMALL)
    apply_layouts(gpus, {0: OFF})
    assert gpus.calls == ["devices 0 ", "mode 0 False"]
    assert gpus.layouts() == [OFF]


@pytest.mark.parametrize("before", [OFF, SMALL], ids=["off", "small"])
def test_what_fails_half_way_is_undone(before: Layout) -> None:
    gpus = Gpus(before, before)
    gpus.fails = {"devices 1 3g": 1}
    with pytest.raises(HardwareError, match=r"devices 1 3g.* failed; the previous layout was restored"):
        apply_layouts(gpus, {0: LARGE, 1: LARGE})
    assert gpus.layouts() == [before, before]


@pytest.mark.parametrize(("done", "said"), [(0, "none"), (1, "GPU 0"), (2, "GPU 0, GPU 1")])
def test_what_is_wanted_no_more_stops_between_two_gpus(done: int, said: str) -> None:
    gpus = Gpus(OFF, OFF, OFF)
    with pytest.raises(WithdrawnError, match=f"changed before that: {said}$"):
        apply_layouts(gpus, dict.fromkeys(range(3), LARGE), lambda: sum(gpu.layout == LARGE for gpu in gpus.now) < done)
    assert gpus.layouts() == [LARGE] * done + [OFF] * (3 - done)


def test_what_cannot_be_undone_is_reported() -> None:
    gpus = Gpus(SMALL)
    gpus.fails = {"devices 0": 2}
    with pytest.raises(HardwareError, match=r"could not be restored: devices 0 1g"):
        apply_layouts(gpus, {0: LARGE})


def test_what_the_gpu_says_afterwards_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(OFF)
    monkeypatch.setattr(gpus, "set_devices", lambda index, profiles: None)
    with pytest.raises(
        HardwareError,
        match=r"GPU 0 does not have the requested layout \(3g.20gb, 3g.20gb\); the previous layout was restored",
    ):
        apply_layouts(gpus, {0: LARGE})
    assert gpus.layouts() == [OFF]


def test_differences_leave_out_gpus_that_no_layout_names() -> None:
    assert changed_layouts(Gpus(OFF, SMALL).gpus(), {1: OFF}) == {1: OFF}
