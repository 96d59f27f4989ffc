"""Folders on the host that HAMi-core's containers need: one per container for its accounting, one lock for all."""

import shutil
from pathlib import Path

import structlog

from purser.agent.inventory import on_host
from purser.agent.settings import AgentSettings

log = structlog.get_logger("purser.agent")


def make_shared_dir(settings: AgentSettings, path: Path) -> None:
    """Make a folder of the host that containers of any user can write to. Raises OSError."""
    folder = on_host(settings, path)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)


def remove_dir(settings: AgentSettings, path: Path) -> None:
    """Remove a folder of the host with all in it, if it is there; containers wrote it, so nothing in it is followed."""
    folder = on_host(settings, path)
    if not folder.is_dir() or folder.is_symlink():
        return
    try:
        shutil.rmtree(folder)
    except OSError as error:
        log.warning("cannot remove a container's accounting folder", path=str(folder), error=str(error))
