"""A node's files as containers of rendered manifests see them, and their shell commands run there.

Nothing is mounted: each absolute path in a command is rewritten to where the container's mounts lead, the deepest one
first; what no mount covers is the container's own. Programs that are NVIDIA's are small stand-ins that do to files what
the originals are documented to do.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .wanteds import container, variables, volumes

Raw = dict[str, Any]
_PATH = re.compile(r"(?<![\w.$}>/-])/(?!dev/null)[\w.@+-]+(?:/[\w.@*+-]+)*")

NOBODYS = 1000
"""The user that NVIDIA's image gpu-operator has since v26.7.0."""


class Seat:
    """One container on the node: its view of files, its user, its variables."""

    def __init__(self, node: "NodeFiles", name: str, obj: Raw, image_user: int) -> None:
        self._node = node
        self._body = container(name, obj)
        self._mounts = sorted(self._mounted(obj), key=lambda each: -len(each[0]))
        self._own = node.own(name)
        self.user: int = self._body.get("securityContext", {}).get("runAsUser", image_user)

    def at(self, path: str) -> Path:
        """Where a path of the container really is."""
        for place, host in self._mounts:
            if path == place or path.startswith(f"{place}/"):
                return host / path[len(place) :].lstrip("/") if path != place else host
        return self._own / path.lstrip("/")

    def rewritten(self, script: str) -> str:
        """A script with each path where it really is."""
        return _PATH.sub(lambda found: str(self.at(found[0])), script)

    def run(self, command: list[str], programs: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A command of the container, with stand-ins for programs that it calls."""
        self.at("/run/nvidia/validations").parent.mkdir(parents=True, exist_ok=True)
        folder = self._own / "programs"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, script in (programs or {}).items():
            program = folder / name
            program.write_text(f"#!/bin/sh\n{self.rewritten(script)}\n")
            program.chmod(0o755)
        told = {"PATH": f"{folder}:{os.environ['PATH']}", **variables(self._body)}
        rewritten = [self.rewritten(each) for each in command]
        as_root = os.geteuid() == 0
        with self._node.owned_by_root(closed=not as_root and self.user != 0):
            return subprocess.run(
                rewritten,
                env=told,
                cwd=self._own,
                user=self.user if as_root else None,
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )

    def start(self, programs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """What kubelet would start it with."""
        return self.run([*self._body["command"], *self._body.get("args", [])], programs)

    def hook(self, *path: str) -> list[str]:
        """The command of a probe or hook."""
        found: Any = self._body
        for each in path:
            found = found[each]
        return list(found["exec"]["command"])

    def _mounted(self, obj: Raw) -> list[tuple[str, Path]]:
        known = volumes(obj)
        found = []
        for mount in self._body.get("volumeMounts", []):
            source = known[mount["name"]]
            if "hostPath" not in source:
                continue
            host = self._node.host / source["hostPath"]["path"].lstrip("/")
            if "Directory" in source["hostPath"].get("type", ""):
                host.mkdir(parents=True, exist_ok=True)
            found.append((mount["mountPath"].rstrip("/"), host / mount.get("subPath", "")))
        return found


class NodeFiles:
    """A node's file system in a folder."""

    def __init__(self, folder: Path) -> None:
        self.host = folder / "host"
        self.host.mkdir()
        self._containers = folder / "containers"
        self._containers.mkdir()
        for each in (folder, self.host, self._containers):
            each.chmod(0o755)
        (self.host / "dev/char").mkdir(parents=True)

    def seat(self, name: str, obj: Raw, image_user: int = 0) -> Seat:
        """A container of a DaemonSet's pod, on this node."""
        return Seat(self, name, obj, image_user)

    def own(self, name: str) -> Path:
        """What a container has beside its mounts."""
        found = self._containers / name
        found.mkdir(exist_ok=True)
        return found

    def write(self, path: str, text: str = "") -> None:
        """A file of the host."""
        file = self.host / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, path: str) -> str | None:
        """A file of the host; None: there is none."""
        file = self.host / path.lstrip("/")
        return file.read_text() if file.exists() else None

    def remove(self, path: str) -> None:
        """One of its files goes."""
        (self.host / path.lstrip("/")).unlink()

    def owned_by_root(self, *, closed: bool) -> "_Closed":
        """Where these tests are nobody's themselves, folders of root are closed to other users by their mode."""
        return _Closed(self.host if closed else None)


class _Closed:
    def __init__(self, folder: Path | None) -> None:
        self._folders = [Path(each) for each, _, _ in os.walk(folder)] if folder is not None else []

    def __enter__(self) -> None:
        for each in self._folders:
            each.chmod(0o555)

    def __exit__(self, *_: object) -> None:
        for each in self._folders:
            each.chmod(0o755)
