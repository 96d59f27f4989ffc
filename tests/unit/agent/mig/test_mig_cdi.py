"""After a MIG change the toolkit on the host rewrites the CDI specification of all GPUs, where there is one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.unit.agent.mig.fake_gpus import Gpus

from purser.agent.inventory.driver_roots import DriverPlace, driver_roots, find_place, read_place
from purser.agent.mig import cdi
from purser.agent.mig.cdi import CHROOT, SPEC, renew_management_spec
from purser.agent.mig.hardware import HardwareError, Layout
from purser.agent.mig.worker import answer
from purser.core.node.mig_messages import MigRequest

pytestmark = pytest.mark.processes

TOOLKIT = Path("/usr/local/nvidia/toolkit")
IN_CONTAINER = DriverPlace(on_host=False, root="/run/nvidia/driver", dev_root="/run/nvidia/driver")
ELSEWHERE = DriverPlace(on_host=False, root="/home/kubernetes/bin/nvidia", dev_root="/")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with toolkit and specification; what is run there is written down instead."""
    found = tmp_path / "host"
    library = Path("home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1")
    for each in (SPEC, TOOLKIT.relative_to("/") / "nvidia-ctk", library):
        (found / each).parent.mkdir(parents=True, exist_ok=True)
        (found / each).touch()
    chroot = tmp_path / "chroot"
    fails = f"[ ! -e {tmp_path}/broken ] || {{ echo no GPU >&2; exit 3; }}"
    chroot.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n{fails}\n')
    chroot.chmod(0o755)
    monkeypatch.setattr(cdi, "CHROOT", (str(chroot),))
    return found


def said(host: Path) -> list[str]:
    file = host.parent / "said"
    return file.read_text().replace(str(host), "HOST").splitlines() if file.exists() else []


def written(root: str, dev_root: str) -> list[str]:
    ctk = f"HOST {TOOLKIT}/nvidia-ctk"
    return [
        f"{ctk} system create-device-nodes --control-devices --dev-root={dev_root}",
        f"{ctk} cdi generate --mode=management --driver-root={root} --dev-root={dev_root}"
        " --vendor=management.nvidia.com --class=gpu"
        f" --nvidia-cdi-hook-path={TOOLKIT}/nvidia-cdi-hook --output=/run/cdi/management.nvidia.com-gpu.yaml",
    ]


def test_device_nodes_are_made_and_the_specification_is_written_where_the_driver_is(host: Path) -> None:
    renew_management_spec(host, IN_CONTAINER, TOOLKIT)
    root = "/run/nvidia/driver"
    assert said(host) == [f"HOST{root} nvidia-smi", *written(root, root)]


def test_a_driver_that_is_no_whole_root_is_used_from_the_hosts(host: Path) -> None:
    renew_management_spec(host, ELSEWHERE, TOOLKIT)
    where = "/home/kubernetes/bin/nvidia"
    smi = f"HOST env LD_PRELOAD={where}/lib64/libnvidia-ml.so.1 {where}/usr/bin/nvidia-smi"
    assert said(host) == [smi, *written(where, "/")]


def test_where_the_toolkit_uses_no_cdi_nothing_is_done(host: Path) -> None:
    (host / SPEC).unlink()
    renew_management_spec(host, None, Path("/nowhere"))
    assert said(host) == []


@pytest.mark.parametrize("lacking", ["driver", "toolkit", "success"])
def test_what_goes_wrong_is_reported_with_the_layout_that_is_there(host: Path, lacking: str) -> None:
    if lacking == "success":
        (host.parent / "broken").touch()
    with pytest.raises(HardwareError, match="MIG layout is applied, but .*" + {"success": "no GPU"}.get(lacking, "")):
        renew_management_spec(
            host,
            None if lacking == "driver" else IN_CONTAINER,
            Path("/nowhere") if lacking == "toolkit" else TOOLKIT,
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root enters another root")
def test_programs_run_in_the_hosts_root(tmp_path: Path) -> None:
    ldconfig = Path("/sbin/ldconfig")  # a static program that writes below the root that it runs in
    for folder in ("etc", "sbin"):
        (tmp_path / folder).mkdir()
    shutil.copy(ldconfig, tmp_path / "sbin")
    subprocess.run([*CHROOT, tmp_path, ldconfig], check=True)
    assert (tmp_path / "etc/ld.so.cache").exists()


def test_it_comes_after_the_layout_and_not_after_a_question(tmp_path: Path) -> None:
    layouts = tmp_path / "layouts"
    layouts.write_text("version: v1\nmig-configs: {none: [{devices: all, mig-enabled: false}]}\n")
    done: list[str] = []

    def ask(check_only: bool) -> str:
        request = MigRequest("none", "1", check_only=check_only)
        return answer(request, layouts, lambda: Gpus(Layout(True)), renew=lambda: done.append("renewed")).error

    assert (ask(True), done) == ("", [])
    assert (ask(False), done) == ("", ["renewed"])


# --- where the driver is


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "driver-ready"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\n", "/host"),
        ("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/custom-root\n", "/host"),
        ("IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n", "/host/run/nvidia/driver"),
        ("NVIDIA_DRIVER_ROOT=/home/kubernetes/bin/nvidia\r\n", "/host/home/kubernetes/bin/nvidia"),
    ],
)
def test_the_file_says_where_the_driver_is(tmp_path: Path, text: str, root: str) -> None:
    assert driver_roots(file(tmp_path, text), [Path("/x")], Path("/host")) == (Path(root),)


@pytest.mark.parametrize("text", [None, "", "NVIDIA_DRIVER_ROOT=\n", "NVIDIA_DRIVER_ROOT=relative\n", "\x00\xff=" * 9])
def test_a_file_without_a_root_is_as_none(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "none" if text is None else file(tmp_path, text)
    assert read_place(path) is None
    assert driver_roots(path, [Path("/x"), Path("/y")], Path("/host")) == (Path("/x"), Path("/y"))


def test_where_nobody_says_it_the_library_does(host: Path) -> None:
    driver = host / "home/kubernetes/bin/nvidia"
    assert find_place([host, driver], host) == ELSEWHERE
    (driver / "dev").mkdir()
    assert find_place([driver], host) == DriverPlace(on_host=False, root=ELSEWHERE.root, dev_root=ELSEWHERE.root)
    assert find_place([host], host) is None
    (host / "lib64").mkdir()
    (host / "lib64/libnvidia-ml.so.1").touch()
    assert find_place([host, driver], host) == DriverPlace(on_host=True, root="/", dev_root="/")
