"""The one image of the cluster: a static busybox, written as a tar in OCI layout because nothing can be pulled."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

from .binaries import BUSYBOX

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(path: Path, name: str, command: list[str]) -> None:
    """Write an image that `ctr images import` understands; `name` is the reference pods use."""
    layer = _layer()
    config = _json(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": command},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    )
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    entry["annotations"] = {"io.containerd.image.name": name}
    files = {f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in (layer, config, manifest)}
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = _json({"schemaVersion": 2, "manifests": [entry]})
    with tarfile.open(path, "w") as tar:
        for file_name, content in files.items():
            _add_file(tar, file_name, content, 0o644)


def _layer() -> bytes:
    applets = subprocess.run([str(BUSYBOX), "--list"], check=True, capture_output=True, text=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "var", "var/run"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add_file(tar, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        _add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n", 0o644)
        _add_file(tar, "etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)
        for applet in applets:
            if applet != "busybox":
                _add_link(tar, f"bin/{applet}", "busybox")
    return buffer.getvalue()


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
