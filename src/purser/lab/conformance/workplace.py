"""Where things are: kubelet's plugin folder, PodResources beside it, the plugin's log; and what of it the kit made."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from purser.lab.conformance.check import CannotRun
from purser.lab.conformance.settings import Settings
from purser.lab.kubelet.serving import SOCKET_NAME

FOLDER_VARIABLE = "PURSER_DEVICE_PLUGIN_DIR"
POD_RESOURCES_VARIABLE = "PURSER_POD_RESOURCES_SOCKET"

_LONGEST_SOCKET_PATH = 107
"""Bytes of a unix socket's path on Linux."""


@dataclass(frozen=True)
class Workplace:
    """The paths of one run. Remove it."""

    folder: Path
    """kubelet's plugin folder."""
    log: Path
    """The output of a command."""
    made: Path | None
    """What goes when the run is over."""

    @classmethod
    def find(cls, settings: Settings) -> "Workplace | None":
        """The folder given, a fresh one for a command, none for a socket alone. Raises `CannotRun`."""
        if settings.folder is None and settings.socket is not None:
            return None
        # Short: a unix socket's path has at most 107 bytes, and the plugin adds its own name.
        made = Path(tempfile.mkdtemp(prefix="purser-")) if settings.command else None
        folder = (settings.folder or Path(str(made), "device-plugins")).absolute()
        place = cls(folder, settings.log or Path(str(made or folder), "plugin.log"), made)
        try:
            place._prepare()
        except CannotRun:
            place.remove()
            raise
        return place

    @property
    def pod_resources(self) -> Path:
        """The socket of kubelet's PodResources API, beside the folder as on a node."""
        return self.folder.parent / "pod-resources" / SOCKET_NAME

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command."""
        return {FOLDER_VARIABLE: str(self.folder), POD_RESOURCES_VARIABLE: str(self.pod_resources)}

    def fill_in(self, word: str) -> str:
        """A word of a command with paths for ``{dir}`` and ``{pod_resources}``."""
        return word.replace("{dir}", str(self.folder)).replace("{pod_resources}", str(self.pod_resources))

    def remove(self) -> None:
        """Leave nothing that was not there before."""
        if self.made is not None:
            shutil.rmtree(self.made, ignore_errors=True)

    def _prepare(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotRun(f"cannot use the folder {self.folder}: {error}") from error
        if len(bytes(self.folder / SOCKET_NAME)) > _LONGEST_SOCKET_PATH:
            raise CannotRun(f"the path {self.folder} is too long to hold a unix socket: use a shorter --folder")
