"""MIG through the real binding: nvidia-ml-py's own structs and pointers, over a library in C."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.agent.mig.fake_gpus import A100

from purser.agent.mig import HardwareError, Layout, MigGpu, MigHardware
from purser.agent.mig.applying import bring
from purser.agent.mig.nvml import open_mig
from purser.lab.driver.compile import find_compiler

SOURCE = Path(__file__).with_name("mig_nvml.c")
BALANCED = Layout(True, ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"))


@pytest.fixture
def hardware(tmp_path: Path) -> Iterator[MigHardware]:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    library = tmp_path / "libnvidia-ml.so.1"
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-Bsymbolic"]
    subprocess.run([compiler, *flags, "-o", library, SOURCE], check=True)
    opened = open_mig(library, (tmp_path,))
    yield opened
    opened.close()


def test_layouts_follow_one_another(hardware: MigHardware) -> None:
    assert hardware.gpus() == (MigGpu(index=0, device_id=A100),)
    small, large, nothing, off = (
        Layout(True, ("1g.5gb",) * 7),
        Layout(True, ("3g.20gb",) * 2),
        Layout(True),
        Layout(False),
    )
    for layout in (BALANCED, small, large, nothing, BALANCED, off):
        bring(hardware, {0: layout})
        assert hardware.gpus()[0].layout == layout


def test_what_does_not_fit_is_undone(hardware: MigHardware) -> None:
    bring(hardware, {0: BALANCED})
    too_much = Layout(True, ("3g.20gb",) * 3)
    with pytest.raises(HardwareError, match=r"Insufficient Resources; the former layout is there again"):
        bring(hardware, {0: too_much})
    assert hardware.gpus()[0].layout == BALANCED
