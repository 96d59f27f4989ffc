"""The writer of image archives: the same bytes for the same files, and what readers of them look for."""

import gzip
import io
import json
import tarfile
from pathlib import Path

from deploy.image.oci import File, Folder, Image, Layer, Link, layer, write_archive

TREE = {
    "usr/bin/tool": File(b"#!tool", 0o755),
    "bin": Link("usr/bin"),
    "tmp": Folder(0o1777),
    "a-b/file": File(b"1"),
    "a/file": File(b"2"),
}


def members(blob: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(blob)) as tar:
        return {each.name: each for each in tar}


def test_a_layer_is_sorted_whole_and_without_times() -> None:
    found = members(gzip.decompress(layer(TREE).blob))
    assert list(found) == ["a", "a/file", "a-b", "a-b/file", "bin", "tmp", "usr", "usr/bin", "usr/bin/tool"]
    assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in found.values()} == {(0, 0, "", "", 0)}
    assert (found["usr/bin/tool"].mode, found["tmp"].mode, found["usr"].mode) == (0o755, 0o1777, 0o755)
    assert (found["bin"].issym(), found["bin"].linkname) == (True, "usr/bin")


def test_the_order_of_files_does_not_matter() -> None:
    assert layer(dict(reversed(TREE.items()))) == layer(TREE)


def test_a_layer_may_stay_uncompressed() -> None:
    plain, packed = layer(TREE, compress=None), layer(TREE)
    assert plain.diff_id == packed.diff_id
    assert plain.blob == gzip.decompress(packed.blob)
    assert (plain.media_type + "+gzip", packed.blob[4:8]) == (packed.media_type, bytes(4))


def test_an_archive_leads_from_its_name_to_every_layer(tmp_path: Path) -> None:
    layers = [layer({"a": File(b"1")}), layer({"b": File(b"2")})]
    image = Image(layers, "amd64", {"User": "65532:65532"}, "2026-01-02T03:04:05Z", {"key": "value"})
    digest = write_archive(tmp_path / "one", image, "registry.invalid/purser:1.2", "purser:1.2")
    write_archive(tmp_path / "two", image, "registry.invalid/purser:1.2", "purser:1.2")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as tar:
        files = {each.name: tar.extractfile(each).read() for each in tar if each.isreg()}  # type: ignore[union-attr]

    def blob(descriptor: dict[str, str]) -> bytes:
        content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert len(content) == descriptor["size"]
        return content

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [entry] = json.loads(files["index.json"])["manifests"]
    assert entry["digest"] == digest
    assert set(entry["annotations"].values()) == {"registry.invalid/purser:1.2", "1.2"}
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    assert [blob(each) for each in manifest["layers"]] == [each.blob for each in layers]
    assert config["rootfs"]["diff_ids"] == [each.diff_id for each in layers]
    assert (config["config"], config["created"]) == (image.config, image.created)
    [docker] = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == ["purser:1.2"]
    assert json.loads(files[docker["Config"]]) == config
    assert [files[each] for each in docker["Layers"]] == [each.blob for each in layers]


def test_the_name_that_docker_knows_is_the_whole_one_where_none_is_given(tmp_path: Path) -> None:
    write_archive(tmp_path / "one", Image([Layer(b"", "sha256:")], "arm64", {}), "a.invalid/b:c")
    with tarfile.open(tmp_path / "one") as tar:
        assert json.load(tar.extractfile("manifest.json"))[0]["RepoTags"] == ["a.invalid/b:c"]  # type: ignore[arg-type]
