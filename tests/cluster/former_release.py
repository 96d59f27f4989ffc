"""The chart and the image as they were at an earlier commit: what an upgrade starts from."""

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from deploy.image import oci, wheels

from .chart_release import IMAGE, ROOT

TAG = "former"
_CHART, _SOURCE = "deploy/helm/purser", "src/purser"
_INSTALLED = f"{wheels.SITE}/purser"


def former_release(commit: str, archive: Path, folder: Path) -> tuple[Path, Path]:
    """The chart of a commit, and an archive of today's image with the Purser of that commit in it, tagged `former`:
    its libraries are today's. Raises CalledProcessError where this clone has no such commit."""
    tar = folder / "tree.tar"
    subprocess.run(["git", "archive", f"--output={tar}", commit, _CHART, _SOURCE], cwd=ROOT, check=True)
    with tarfile.open(tar) as opened:
        opened.extractall(folder, filter="data")
    image = folder / "image.tar"
    layers, config = _read(archive)
    whole = oci.Image([*layers, _in_place(folder / _SOURCE)], config["architecture"], config["config"])
    oci.write_archive(image, whole, f"{IMAGE}:{TAG}")
    return folder / _CHART, image


def _in_place(source: Path) -> oci.Layer:
    files = {
        f"{_INSTALLED}/{path.relative_to(source)}": oci.File(path.read_bytes())
        for path in source.rglob("*")
        if path.is_file()
    }
    # OCI's mark of a folder of which nothing from the layers below is to be seen.
    return oci.layer({f"{_INSTALLED}/.wh..wh..opq": oci.File(b""), **files})


def _read(archive: Path) -> tuple[list[oci.Layer], Any]:
    """Layers and configuration of an archive in OCI's layout."""
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()

        def blob(described: Any) -> bytes:
            return read(f"blobs/{described['digest'].replace(':', '/')}")

        manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        ids = config["rootfs"]["diff_ids"]
        described = zip(manifest["layers"], ids, strict=True)
        return [oci.Layer(blob(each), diff_id, each["mediaType"]) for each, diff_id in described], config
