"""After a change of MIG devices: NVIDIA's own containers get all GPUs by a CDI specification that the container toolkit
wrote when it started, and that names device nodes which are others now.

Nothing is done where the toolkit uses no CDI: then there is no such specification.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from purser.agent.inventory.driver_roots import DriverPlace
from purser.agent.inventory.nvidia_smi import CHROOT, smi_command
from purser.agent.mig.hardware import HardwareError

SPEC = Path("run/cdi/management.nvidia.com-gpu.yaml")
"""Below the host's root; the toolkit says /var/run, which is a link that only the host itself can follow."""
NVIDIA_CTK_TIMEOUT_S = 120.0
_DISTRIBUTIONS = Path("/usr/bin")


def renew_management_spec(host_root: Path, place: DriverPlace | None, toolkit_dir: Path) -> None:
    """Create device nodes and rewrite the specification with the toolkit on the host. Blocks for seconds.
    Raises `HardwareError`."""
    if not (host_root / SPEC).exists():
        return
    if place is None:
        raise HardwareError(
            "the MIG layout is applied, but the CDI specification could not be regenerated: the driver was not found"
        )
    for command in _commands(host_root, place, _toolkit(host_root, toolkit_dir)):
        _run(command)


def _toolkit(host_root: Path, toolkit_dir: Path) -> Path:
    """The folder of nvidia-ctk on the host: the container toolkit's, or that of the distribution's package."""
    for folder in (toolkit_dir, _DISTRIBUTIONS):
        if (host_root / folder.relative_to("/") / "nvidia-ctk").exists():
            return folder
    raise HardwareError(
        "the MIG layout is applied, but the CDI specification could not be regenerated: nvidia-ctk is neither in "
        f"{toolkit_dir} nor in {_DISTRIBUTIONS}"
    )


def _commands(host_root: Path, place: DriverPlace, toolkit: Path) -> Iterator[list[str]]:
    """A root, and what is run in it: nvidia-smi has the nodes of MIG's capabilities made; nvidia-ctk makes those of the
    driver's control devices."""
    host = [str(host_root)]
    ctk = [*host, str(toolkit / "nvidia-ctk")]
    yield smi_command(host_root, place)
    yield [*ctk, "system", "create-device-nodes", "--control-devices", f"--dev-root={place.dev_root}"]
    yield [
        *ctk,
        "cdi",
        "generate",
        "--mode=management",
        f"--driver-root={place.root}",
        f"--dev-root={place.dev_root}",
        "--vendor=management.nvidia.com",
        "--class=gpu",
        f"--nvidia-cdi-hook-path={toolkit / 'nvidia-cdi-hook'}",
        f"--output=/{SPEC}",
    ]


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run([*CHROOT, *command], check=True, capture_output=True, timeout=NVIDIA_CTK_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise HardwareError(
            f"the MIG layout is applied, but the CDI specification could not be regenerated: {' '.join(command[1:])} "
            f"{_failure_text(error)}"
        ) from error


def _failure_text(error: OSError | subprocess.SubprocessError) -> str:
    """What became of a command, as the end of a sentence that begins with it."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"timed out after {error.timeout:g} s"
    if not isinstance(error, subprocess.CalledProcessError):
        return f"could not be started: {error}"
    errors = error.stderr.decode(errors="replace").strip().splitlines()
    return f"failed: {errors[-1]}" if errors else f"exited with code {error.returncode}"
