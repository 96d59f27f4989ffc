"""Files below a folder that is the root of others: their links are followed as those would."""

import os
import stat
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_MAX_LINKS = 40
"""Links followed on one path, as many as Linux does."""


class HostTree:
    """A folder as the root of others. Paths are those that a process with this root would use."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def local_path(self, path: str) -> Path:
        """The path by which this process finds it; links on the way to it have to be resolved before."""
        return self._base / path.lstrip("/")

    def resolved(self, path: str) -> str | None:
        """The path without links, all followed below this root; None: there is no such file, or too many links."""
        parts, found, links = list(reversed(PurePosixPath(path).parts)), PurePosixPath("/"), 0
        while parts:
            part = parts.pop()
            if part in ("/", ".", ".."):
                found = {"/": PurePosixPath("/"), "..": found.parent}.get(part, found)
                continue
            try:
                mode = self.local_path(f"{found / part}").lstat().st_mode
                if not stat.S_ISLNK(mode):
                    found /= part
                    continue
                parts.extend(reversed(self.local_path(f"{found / part}").readlink().parts))
            except OSError:
                return None
            links += 1
            if links > _MAX_LINKS:
                return None
        return str(found)

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; nothing where there is none."""
        at = self.resolved(folder)
        try:
            return sorted(os.listdir(self.local_path(at))) if at is not None else []  # noqa: PTH208  names are all it takes
        except OSError:
            return []

    def glob(self, pattern: str) -> list[str]:
        """Files, no folders, of a pattern whose last part alone has wildcards; they may be links, or below links."""
        folder, _, name = pattern.rpartition("/")
        names = [name] if "*" not in name else [each for each in self.names(folder or "/") if fnmatchcase(each, name)]
        return [path for path in (f"{folder}/{each}" for each in names) if self.is_file(path)]

    def link(self, path: str) -> str | None:
        """What a link says; None: it is none."""
        folder, _, name = path.rpartition("/")
        at = self.resolved(folder or "/")
        try:
            return None if at is None else str(self.local_path(f"{at}/{name}").readlink())
        except OSError:
            return None

    def is_executable(self, path: str) -> bool:
        """Whether it is a file that can be executed."""
        at = self.resolved(path)
        return at is not None and self.is_file(at) and os.access(self.local_path(at), os.X_OK)

    def is_file(self, path: str) -> bool:
        """Whether there is one, or a socket or the like."""
        at = self.resolved(path)
        return at is not None and not self.local_path(at).is_dir()
