"""MIG by NVML's functions, against a GPU that places instances as the real one does."""

from pathlib import Path

import pytest
from tests.unit.agent.mig.fake_gpus import A100, FakeNvml

from purser.agent.mig import HardwareError, Layout, MigGpu, NoHardware
from purser.agent.mig.applying import apply_layouts
from purser.agent.mig.hardware import OfferedProfile
from purser.agent.mig.nvml import NvmlHardware, open_mig, profile_name


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml()


@pytest.fixture
def hardware(nvml: FakeNvml) -> NvmlHardware:
    return NvmlHardware(nvml)


BALANCED = ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")


def test_a_gpu_is_what_it_was_made(nvml: FakeNvml, hardware: NvmlHardware) -> None:
    assert hardware.gpus() == (MigGpu(index=0, device_id=A100, uuids=("GPU-a",)),)
    apply_layouts(hardware, {0: Layout(True, BALANCED)})
    assert hardware.gpus()[0].layout == Layout(True, BALANCED)
    assert all(computes for _, _, computes in nvml.instances.values())
    apply_layouts(hardware, {0: Layout(False)})
    assert hardware.gpus()[0].layout == Layout(False)
    assert not nvml.instances
    hardware.close()
    assert nvml.started == 0


def test_a_gpu_names_itself_and_its_mig_devices_or_nothing(nvml: FakeNvml, hardware: NvmlHardware) -> None:
    apply_layouts(hardware, {0: Layout(True, ("1g.5gb",) * 2)})
    assert hardware.gpus()[0].uuids == ("GPU-a", *(f"MIG-{handle}" for handle in sorted(nvml.instances)))
    nvml.hides_uuids = True
    assert hardware.gpus()[0].uuids == ()


def test_another_order_is_tried_where_one_does_not_fit(hardware: NvmlHardware, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the largest first, the GPU puts it where the last of the small ones would have to go."""
    hardware.set_mode(0, True)
    hardware.set_devices(0, BALANCED)
    assert hardware.gpus()[0].layout.devices == BALANCED
    monkeypatch.setattr("purser.agent.mig.nvml.MAX_CREATION_ORDERS", 1)
    with pytest.raises(HardwareError, match=r"creating 1g.5gb on GPU 0"):
        hardware.set_devices(0, BALANCED)


def test_a_profile_that_the_gpu_does_not_offer_is_named(hardware: NvmlHardware) -> None:
    hardware.set_mode(0, True)
    with pytest.raises(
        HardwareError, match=r"GPU 0 does not support 1g.10gb, only 1g.5gb, 1g.5gb\+me, 2g.10gb, 3g.20gb"
    ):
        hardware.set_devices(0, ("1g.10gb",))


def test_a_gpu_offers_its_profiles_in_mig_mode_or_not(hardware: NvmlHardware) -> None:
    offered = {
        "1g.5gb": OfferedProfile(7, 1, 4864),
        "2g.10gb": OfferedProfile(3, 2, 9856),
        "3g.20gb": OfferedProfile(2, 3, 19968),
        "1g.5gb+me": OfferedProfile(1, 1, 4864),
    }
    assert hardware.offers(0) == offered
    hardware.set_mode(0, True)
    assert hardware.offers(0) == offered


def test_drivers_without_profile_names_are_helped_out() -> None:
    hardware = NvmlHardware(FakeNvml(tells_names=False))
    apply_layouts(hardware, {0: Layout(True, ("1g.5gb", "1g.5gb+me", "3g.20gb"))})
    assert hardware.gpus()[0].layout.devices == ("1g.5gb", "1g.5gb+me", "3g.20gb")


@pytest.mark.parametrize(
    ("slices", "memory_mib", "total_mib", "name"),
    [
        (1, 4864, 40960, "1g.5gb"),
        (3, 19968, 40960, "3g.20gb"),
        (7, 40192, 40960, "7g.40gb"),
        (1, 9728, 81920, "1g.10gb"),
        (2, 19968, 81920, "2g.20gb"),
        (1, 5952, 24576, "1g.6gb"),
        (4, 24125, 24576, "4g.24gb"),
        (1, 9728, 0, "1g.10gb"),
    ],
)
def test_names_follow_from_slices_and_memory(slices: int, memory_mib: int, total_mib: int, name: str) -> None:
    assert profile_name(slices, memory_mib, total_mib << 20) == name


def test_a_mode_that_waits_for_a_reset_is_reported() -> None:
    hardware = NvmlHardware(FakeNvml(needs_reboot=True))
    with pytest.raises(HardwareError, match="the change takes effect at the GPU's next reset: reboot the node"):
        hardware.set_mode(0, True)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_mode_that_did_not_change_is_reported(
    nvml: FakeNvml, hardware: NvmlHardware, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    hardware.set_mode(0, not enabled)
    monkeypatch.setattr(nvml, "nvmlDeviceSetMigMode", lambda *_: nvml.NVML_SUCCESS)
    with pytest.raises(
        HardwareError, match=f"{'enabling' if enabled else 'disabling'} MIG on GPU 0: the mode did not change"
    ):
        hardware.set_mode(0, enabled)


def test_a_half_made_instance_is_recreated(nvml: FakeNvml, hardware: NvmlHardware) -> None:
    nvml.dies_after_instance = True
    with pytest.raises(SystemExit):
        apply_layouts(hardware, {0: Layout(True, ("3g.20gb",))})
    nvml.dies_after_instance = False
    assert hardware.gpus()[0].layout.devices == ("3g.20gb (incomplete)",)
    apply_layouts(hardware, {0: Layout(True, ("3g.20gb",))})
    assert hardware.gpus()[0].layout.devices == ("3g.20gb",)


def test_a_gpu_that_knows_no_mig_says_so() -> None:
    assert NvmlHardware(FakeNvml(capable=False)).gpus() == (
        MigGpu(index=0, device_id=A100, capable=False, uuids=("GPU-a",)),
    )


def test_without_a_driver_every_call_says_why(tmp_path: Path) -> None:
    found = open_mig(None, (tmp_path / "driver", tmp_path))
    assert isinstance(found, NoHardware)
    for ask in (found.gpus, lambda: found.set_mode(0, True), lambda: found.set_devices(0, ())):
        with pytest.raises(HardwareError, match="is the driver installed there"):
            ask()
    found.close()


def test_a_library_that_is_none_is_reported(tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64/libnvidia-ml.so.1").write_text("nothing")
    found = open_mig(None, (tmp_path,))
    with pytest.raises(HardwareError, match="cannot be loaded"):
        found.gpus()
