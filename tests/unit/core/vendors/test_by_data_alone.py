"""A family that no code knows: the package as it is, but for one more entry in its data file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from purser.core.vendors import catalogue

pytestmark = pytest.mark.processes

ENTRY = """
[[families]]
name = "Acme NPU"
word = "ACME"
vendor = "acme"
resource = "acme.com/npu"
memory = { resource = "acme.com/npu-memory", unit_mib = 1024 }
register = { annotation = "acme.com/registered", encoding = "json" }
lock = { annotation = "acme.com/lock", seconds = 60 }
templates_up_to_mib = 32768
templates = [{ name = "small", memory_mib = 4096 }, { name = "half", memory_mib = 16384 }]
[families.records]
"hami.io/acme-devices-to-allocate" = "{devices}"
"hami.io/acme-devices-allocated" = "{devices}"
"""

DATA = Path(catalogue.__file__).parent / "families.toml"
PACKAGE = Path(catalogue.__file__).parents[2]
ROOT = Path(__file__).parents[4]


def with_another_family(folder: Path) -> None:
    """The package, of links to all that it has but its data file."""
    there = folder / "purser"
    for part in ("", "core", "core/vendors"):
        (there / part).mkdir()
        for each in (PACKAGE / part).iterdir():
            if each.name not in ("core", "vendors", DATA.name, "__pycache__"):
                (there / part / each.name).symlink_to(each)
    (there / "core/vendors" / DATA.name).write_text(DATA.read_text() + ENTRY)


@pytest.mark.gate
def test_a_pod_gets_devices_of_it_in_simulator_and_lab(tmp_path):
    with_another_family(tmp_path)
    run = subprocess.run(
        [sys.executable, Path(__file__).parent / "data_alone.py", tmp_path],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["simulator"] == {"placed": 4, "failed": 1}
    (share,) = found["lab"].pop("shares")
    assert share[0].startswith("acme-npu-0-ACME-")
    assert share[1:] == [4096, "acme.com/npu"]
    assert found["lab"] == {
        "scheduler": "purser-scheduler",
        "phase": "success",
        "allocated": f"{share[0]},ACME,4096,0:;",
        "to allocate": ";",
        "locked": False,
    }
