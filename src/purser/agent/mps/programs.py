"""The programs of MPS below the driver's root, and how they are run there."""

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from purser.agent.host.hostfiles import on_host
from purser.agent.inventory.driver_roots import DriverPlace
from purser.agent.mps.folders import MpsFolders
from purser.agent.nvml.library import find_library
from purser.agent.settings import AgentSettings

CONTROL = "nvidia-cuda-mps-control"
SMI = "nvidia-smi"
MARK = "PURSER_MPS_DAEMON"
"""Variable of a daemon and, inherited, of its servers: the folder of its pipes as the agent sees it."""

_BIN = ("usr/bin", "bin", "usr/local/bin", "usr/sbin", "sbin")
_LAUNCHER = Path(__file__).with_name("launcher.py")


class MpsError(Exception):
    """A daemon cannot be started or does not answer; the message says why."""


class MpsPrograms(msgspec.Struct, frozen=True):
    """Where the programs are."""

    folder: str
    """As they themselves see it."""
    root: Path | None = None
    """In which they are run, as the agent sees it; None: as they are, in the agent's own."""
    library_folder: str = ""
    """Of the driver's libraries, where the loader does not know it."""

    def command(self, settings: AgentSettings, folders: MpsFolders, program: str, *arguments: str) -> list[str]:
        """What runs one of them beside these folders."""
        run = [f"{self.folder}/{program}", *arguments]
        if self.root is None:
            return run
        binds = [f"{on_host(settings, folders.shm)}:/dev/shm"]
        if self.root != settings.host_root:
            binds += [f"{on_host(settings, folder)}:{folder}" for folder in (folders.pipe, folders.log)]
        return [sys.executable, "-I", "-S", str(_LAUNCHER), str(self.root), *binds, "--", *run]

    def environment(self, settings: AgentSettings, folders: MpsFolders) -> Mapping[str, str]:
        """The environment of these programs."""
        own = self.root is None
        return {
            "PATH": ":".join(f"/{folder}" for folder in _BIN),
            "CUDA_MPS_PIPE_DIRECTORY": str(on_host(settings, folders.pipe) if own else folders.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(on_host(settings, folders.log) if own else folders.log),
            **({"LD_LIBRARY_PATH": self.library_folder} if self.library_folder else {}),
        }


def find_programs(settings: AgentSettings, place: DriverPlace) -> MpsPrograms:
    """Looks for them where the driver is. Raises `MpsError`."""
    seen = settings.host_root / place.root.lstrip("/")
    folder = next((folder for folder in _BIN if (seen / folder / CONTROL).exists()), None)
    if folder is None:
        raise MpsError(f"the driver has no {CONTROL} under {place.root} on the node")
    if place.root == place.dev_root:
        return MpsPrograms(f"/{folder}", seen if seen != Path("/") else None)
    # A folder with nothing but the driver's files: all else is the node's own.
    library = find_library((seen,))
    inside = str(Path("/", Path(library).parent.relative_to(settings.host_root))) if library else ""
    return MpsPrograms(str(Path(place.root) / folder), settings.host_root, inside)
