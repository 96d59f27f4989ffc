"""The cluster's own images: one static program each, because nothing can be pulled. They are archives as `docker save`
writes them."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .binaries import BUSYBOX

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"


def write_busybox(path: Path, name: str, command: Sequence[str]) -> None:
    """An image of Debian's static busybox; `name` is the reference that pods use."""
    applets = subprocess.run([str(BUSYBOX), "--list"], check=True, capture_output=True, text=True).stdout.split()
    entries = [
        *(_folder(each) for each in ("bin", "dev", "etc", "proc", "root", "sys", "var", "var/run")),
        _folder("tmp", 0o1777),
        _file("bin/busybox", BUSYBOX.read_bytes(), 0o755),
        _file("etc/passwd", _PASSWD),
        _file("etc/group", b"root:x:0:\nnogroup:x:65534:\n"),
        *(_link(f"bin/{applet}", "busybox") for applet in applets if applet != "busybox"),
    ]
    _write(path, name, _tar(entries), {"Env": ["PATH=/bin"], "Cmd": list(command)})


def write_program(path: Path, name: str, program: Path) -> None:
    """An image of one static program, on the PATH: kube-scheduler's is made of the one that was built."""
    layer = _tar([_file(f"usr/local/bin/{program.name}", program.read_bytes(), 0o755)])
    _write(path, name, layer, {"Env": ["PATH=/usr/local/bin"], "Entrypoint": [program.name], "User": "65532:65532"})


_Entry = tuple[tarfile.TarInfo, bytes]


def _file(name: str, content: bytes, mode: int = 0o644) -> _Entry:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    return entry, content


def _folder(name: str, mode: int = 0o755) -> _Entry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    return entry, b""


def _link(name: str, target: str) -> _Entry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry, b""


def _tar(entries: Sequence[_Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for entry, content in entries:
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _write(path: Path, name: str, layer: bytes, config: Mapping[str, object]) -> None:
    machine = platform.machine()
    whole = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(whole).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(_tar([_file(each, content) for each, content in files.items()]))
