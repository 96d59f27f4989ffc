"""Clears up after a run of the harness, however that ends: `python keeper.py NAME`.

It waits until its standard input is closed, which the kernel does for whoever is killed as well. Then it ends every
process in the cgroups whose names begin with NAME, and removes those and the folders of that name. Mounts and networks
lie in namespaces of those processes and go with them.
"""

import shutil
import sys
from pathlib import Path

FOLDERS = Path("/tmp")
"""A short path: that of a unix socket may have 107 characters."""


def main(name: str) -> None:
    """Wait for the end, and clear up."""
    import cgroups

    sys.stdin.read()
    cgroups.remove(path for hierarchy in cgroups.hierarchies() for path in hierarchy.mount.glob(f"{name}*"))
    for folder in FOLDERS.glob(f"{name}*"):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
