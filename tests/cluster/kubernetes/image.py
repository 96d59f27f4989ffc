"""The cluster's own images: one static program each, because nothing can be pulled."""

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.image import oci

from .binaries import BUSYBOX


def write_busybox(path: Path, name: str, command: Sequence[str]) -> None:
    """An image of Debian's static busybox; `name` is the reference that pods use."""
    applets = subprocess.run([str(BUSYBOX), "--list"], check=True, capture_output=True, text=True).stdout.split()
    tree: oci.Tree = {
        **{folder: oci.Folder() for folder in ("dev", "proc", "root", "sys", "var/run")},
        "tmp": oci.Folder(0o1777),
        "bin/busybox": oci.File(BUSYBOX.read_bytes(), 0o755),
        "etc/passwd": oci.File(b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"),
        "etc/group": oci.File(b"root:x:0:\nnogroup:x:65534:\n"),
        **{f"bin/{applet}": oci.Link("busybox") for applet in applets if applet != "busybox"},
    }
    _write(path, name, tree, {"Env": ["PATH=/bin"], "Cmd": list(command)})


def write_program(path: Path, name: str, program: Path) -> None:
    """An image of one static program, on the PATH: kube-scheduler's is made of the one that was built."""
    tree = {f"usr/local/bin/{program.name}": oci.File(program.read_bytes(), 0o755)}
    _write(path, name, tree, {"Env": ["PATH=/usr/local/bin"], "Entrypoint": [program.name], "User": "65532:65532"})


def _write(path: Path, name: str, tree: oci.Tree, config: dict[str, object]) -> None:
    machine = platform.machine()
    image = oci.Image([oci.layer(tree, compress=None)], oci.ARCHITECTURES.get(machine, machine), config)
    oci.write_archive(path, image, name)
