"""MIG through the real binding: nvidia-ml-py's own structs and pointers, over the simulated driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.unit.agent.mig.fake_gpus import A100

from purser.agent.mig import HardwareError, Layout, MigGpu, MigHardware
from purser.agent.mig.applying import apply_layouts
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.compile import find_compiler
from purser.lab.driver.node_mig import device_uuids
from purser.lab.driver.parts import ProcessLoad

pytestmark = pytest.mark.processes

BALANCED = Layout(True, ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"))


@pytest.fixture(params=list(DriverKind))
def node(tmp_path: Path, request: pytest.FixtureRequest) -> SimulatedDriver:
    kind: DriverKind = request.param
    if kind is DriverKind.LIBRARY and find_compiler() is None:
        pytest.skip("no C compiler on this machine")
    gpus = [{"model": "a100-sxm4-40gb", "pci": "0000:07:00.0"}]
    content = {"description": "one GPU", "driver_version": "550.163.01", "cuda_version": "12.4", "gpus": gpus}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(content))
    return SimulatedDriver.create(tmp_path / "node", "node-1", tmp_path / "one.yaml", kind=kind)


@pytest.fixture
def hardware(node: SimulatedDriver) -> Iterator[MigHardware]:
    opened = node.open_mig()
    yield opened
    opened.close()


def test_layouts_follow_one_another(hardware: MigHardware) -> None:
    (found,) = hardware.gpus()
    assert found == MigGpu(index=0, device_id=A100, uuids=found.uuids)
    assert [each.partition("-")[0] for each in found.uuids] == ["GPU"]
    small, large, nothing, off = (
        Layout(True, ("1g.5gb",) * 7),
        Layout(True, ("3g.20gb",) * 2),
        Layout(True),
        Layout(False),
    )
    for layout in (BALANCED, small, large, nothing, BALANCED, off):
        apply_layouts(hardware, {0: layout})
        assert hardware.gpus()[0].layout == layout


def test_what_does_not_fit_is_undone(hardware: MigHardware) -> None:
    apply_layouts(hardware, {0: BALANCED})
    too_much = Layout(True, ("3g.20gb",) * 3)
    with pytest.raises(HardwareError, match=r"Insufficient Resources; the previous layout was restored"):
        apply_layouts(hardware, {0: too_much})
    assert hardware.gpus()[0].layout == BALANCED


def test_a_gpu_in_use_is_left_as_it_is(node: SimulatedDriver, hardware: MigHardware) -> None:
    node.add_process(0, 1, ProcessLoad(memory_mib=100))
    with pytest.raises(HardwareError, match=r"enabling MIG on GPU 0: the GPU is in use"):
        apply_layouts(hardware, {0: BALANCED})
    node.remove_process(0, 1)
    apply_layouts(hardware, {0: BALANCED})
    node.add_process(device_uuids(node.folder, 0)[0], 2, ProcessLoad(memory_mib=100))
    with pytest.raises(HardwareError, match=r"removing 3g.20gb from GPU 0: processes are running on the instance"):
        apply_layouts(hardware, {0: Layout(True)})
