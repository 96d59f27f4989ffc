"""Images as archives in OCI layout: the same bytes for the same files, whenever and wherever they are written.

Formats: OCI image specification 1.1; `manifest.json` beside it is for `docker load`, as `docker save` writes since 25.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What OCI and Debian call the machines that `platform.machine` names."""

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class File:
    """A regular file."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Folder:
    """A folder that is empty, or not 0755."""

    mode: int = 0o755


Tree = Mapping[str, File | Link | Folder]
"""What is where, by path below the root, without a slash in front."""


@dataclass(frozen=True)
class Layer:
    """One layer as it is stored; `diff_id` is the digest of what it is uncompressed."""

    blob: bytes
    diff_id: str
    media_type: str = _LAYER + "+gzip"


@dataclass(frozen=True)
class Image:
    """Layers, the lowest first, and how a container of them starts (`config`: the specification's fields)."""

    layers: Sequence[Layer]
    architecture: str
    config: Mapping[str, Any]
    created: str | None = None
    """RFC 3339."""
    annotations: Mapping[str, str] = field(default_factory=dict)


def compressed(tar: bytes) -> bytes:
    """As gzip, without a time. Other versions of zlib may give other bytes."""
    return gzip.compress(tar, mtime=0)


def layer(tree: Tree, compress: Callable[[bytes], bytes] | None = compressed) -> Layer:
    """The files as a layer: sorted, all of root's, none with a time, folders above them added."""
    tar = _tar(tree)
    if compress is None:
        return Layer(tar, _digest(tar), _LAYER)
    return Layer(compress(tar), _digest(tar))


def write_archive(path: Path, image: Image, name: str, short_name: str | None = None) -> str:
    """Write the image so that `ctr images import`, `skopeo copy oci-archive:` and `docker load` read it.

    `name` is the whole reference, with registry and tag, that nodes know it by then; `short_name` what Docker does.
    Returns the manifest's digest, which is the image's.
    """
    config = _json(
        {
            **({"created": image.created} if image.created else {}),
            "architecture": image.architecture,
            "os": "linux",
            "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in image.layers]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(each.media_type, each.blob) for each in image.layers],
            **({"annotations": image.annotations} if image.annotations else {}),
        }
    )
    entry = _descriptor(_MANIFEST, manifest) | {
        "annotations": {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        }
    }
    docker = {
        "Config": _blob_path(config),
        "RepoTags": [short_name or name],
        "Layers": [_blob_path(each.blob) for each in image.layers],
    }
    files = {_blob_path(blob): File(blob) for blob in (config, manifest, *(each.blob for each in image.layers))}
    files["index.json"] = File(_json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}))
    files["manifest.json"] = File(_json([docker]))
    files["oci-layout"] = File(_json({"imageLayoutVersion": "1.0.0"}))
    path.write_bytes(_tar(files))
    return _digest(manifest)


def _tar(tree: Tree) -> bytes:
    parents = {str(parent): Folder() for each in tree for parent in PurePosixPath(each).parents if str(parent) != "."}
    whole = {**parents, **tree}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(whole, key=lambda each: PurePosixPath(each).parts):
            _add(tar, name, whole[name])
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, what: File | Link | Folder) -> None:
    entry = tarfile.TarInfo(name)
    match what:
        case File(content, mode):
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
        case Link(target):
            entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, target
            tar.addfile(entry)
        case Folder(mode):
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _blob_path(blob: bytes) -> str:
    return f"blobs/{_digest(blob).replace(':', '/')}"


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
