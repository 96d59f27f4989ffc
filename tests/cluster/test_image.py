"""The image: what is in it, that it is the same wherever it is built, and its parts as pods of kubelet's."""

import email
import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from purser.lab.driver.node import DriverKind, SimulatedDriver
from purser.lab.ports import free_ports

from .image_build import ROOT, copied, empty
from .kubernetes import RealCluster, busybox_pod
from .purser_image import REFERENCE

USER = 65532
PURSER = "usr/local/lib/python3.11/dist-packages/purser"
IMPORT_ALL = """
import importlib, pkgutil, purser
for each in pkgutil.walk_packages(purser.__path__, "purser."):
    try:
        importlib.import_module(each.name)
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
"""


class Archive:
    """What an archive has in it."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self._blobs = {each.name: tar.extractfile(each).read() for each in tar if each.isreg()}  # type: ignore[union-attr]
        [entry] = self._json("index.json")["manifests"]
        self.digest = entry["digest"]
        self.manifest = self._blob_json(entry)
        self.config = self._blob_json(self.manifest["config"])
        layers = (gzip.decompress(self._blob(each)) for each in self.manifest["layers"])
        tars = [tarfile.open(fileobj=io.BytesIO(each)) for each in layers]  # noqa: SIM115
        self._places = {each.name: (tar, each) for tar in tars for each in tar}
        self.members = {name: each for name, (_, each) in self._places.items()}

    def read(self, name: str) -> bytes:
        """A file of the image."""
        tar, member = self._places[name]
        return tar.extractfile(member).read()  # type: ignore[union-attr]

    def _json(self, name: str) -> Any:
        return json.loads(self._blobs[name])

    def _blob(self, descriptor: Mapping[str, str]) -> bytes:
        return self._blobs[f"blobs/{descriptor['digest'].replace(':', '/')}"]

    def _blob_json(self, descriptor: Mapping[str, str]) -> Any:
        return json.loads(self._blob(descriptor))


@pytest.fixture(scope="module")
def archive(purser_archive: Path) -> Archive:
    return Archive(purser_archive)


def test_it_is_the_same_in_another_folder_and_at_another_time(archive: Archive, tmp_path: Path) -> None:
    """Built in a store where nothing is cached. Where Debian has newer packages since the first build, the first is
    made again."""
    said, prefix = archive.config["config"]["Labels"], "org.opencontainers.image."
    labels = [f"--label={prefix}{name}={said[prefix + name]}" for name in ("revision", "created")]
    source = copied(tmp_path / "source")
    for path in source.rglob("*"):
        path.chmod(0o700 if path.is_dir() or path.stat().st_mode & 0o100 else 0o600)
    with empty() as store:
        store.write(source, REFERENCE, tmp_path / "other", *labels)
        other = Archive(tmp_path / "other")
        if debian_packages(other) != debian_packages(archive):
            store.write(ROOT, REFERENCE, tmp_path / "again", "--no-cache")
            archive = Archive(tmp_path / "again")
    assert other.manifest["layers"] == archive.manifest["layers"]
    assert other.config == archive.config
    assert other.digest == archive.digest


def test_labels_say_what_it_is(archive: Archive) -> None:
    labels = {name.rpartition(".")[2]: value for name, value in archive.config["config"]["Labels"].items()}
    assert re.fullmatch(r"[0-9a-f]{40}(-changed)?", labels["revision"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", labels["version"])
    assert labels["licenses"] == "Apache-2.0"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["created"])


def test_it_has_no_shell_and_no_programs_but_python_and_purser(archive: Archive) -> None:
    programs = {name for name, each in archive.members.items() if each.mode & 0o111 and not each.isdir()}
    links = {name for name in programs if archive.members[name].issym()}
    others = {name for name in programs - links if ".so" in name or name.endswith(".py")}
    own = ("purser", "kubectl-purser", "kubectl_complete-purser")
    assert programs - links - others == {"usr/bin/python3.11", *(f"usr/local/bin/{name}" for name in own)}
    assert not [name for name in links if "/bin/" in name and name != "usr/bin/python3"]


def test_all_is_roots_and_nobody_else_may_write_it(archive: Archive) -> None:
    wide = {name for name, each in archive.members.items() if each.mode & 0o6022 and not each.issym()}
    assert wide == {"tmp", "var/lock", "var/tmp"}
    assert {archive.members[name].mode & 0o7777 for name in wide} == {0o1777}
    assert {(each.uid, each.gid, each.mtime) for each in archive.members.values()} == {(0, 0, 0)}


def test_it_has_neither_the_lab_nor_the_simulator(archive: Archive) -> None:
    rooms = {name.split("/")[6] for name in archive.members if name.startswith(f"{PURSER}/")}
    assert rooms.isdisjoint({"backtest", "lab", "simulator"})
    assert {"agent", "cli", "core", "operator", "scheduler"} < rooms


def test_bytecode_is_there_and_names_no_time(archive: Archive) -> None:
    """A container may not write it, and a time would differ: flags 1, PEP 552's hash that is not checked."""
    modules = [name for name, each in archive.members.items() if name.endswith(".py") and each.isreg()]
    compiled = [name for name in archive.members if name.endswith(".pyc")]
    assert len(modules) == len(compiled) > 1000
    assert {archive.read(name)[4:8] for name in compiled} == {b"\1\0\0\0"}


def test_scanners_find_every_package(archive: Archive) -> None:
    """By what distroless images have of Debian's packages, and what pip leaves beside each library."""
    libraries = {each["Name"] for each in _packages(archive, r".+\.dist-info/METADATA")}
    assert {"libc6", "libssl3", "python3.11-minimal"} < debian_packages(archive).keys()
    assert {"numpy", "grpcio", "gpu-purser"} < libraries
    assert "pip" not in libraries


def debian_packages(archive: Archive) -> dict[str, str]:
    """Versions by name."""
    return {each["Package"]: each["Version"] for each in _packages(archive, r"var/lib/dpkg/status\.d/.+")}


def _packages(archive: Archive, pattern: str) -> Iterator[Any]:
    found = [each for each, member in archive.members.items() if member.isreg() and re.fullmatch(pattern, each)]
    return (email.message_from_bytes(archive.read(each)) for each in found)


def test_every_package_comes_with_its_licence(archive: Archive) -> None:
    licences = re.compile(r"/(LICEN[CS]E|COPYING|AUTHORS|NOTICE)|/licenses/", re.IGNORECASE)
    for name in archive.members:
        if found := re.fullmatch(r"var/lib/dpkg/status\.d/(.+)", name):
            folder = archive.members[f"usr/share/doc/{found[1]}"]
            there = folder.linkname if folder.issym() else found[1]
            assert f"usr/share/doc/{there}/copyright" in archive.members
        if found := re.fullmatch(r"(.+\.dist-info)/METADATA", name):
            told = email.message_from_bytes(archive.read(name))
            files = any(each.startswith(found[1]) and licences.search(each) for each in archive.members)
            assert files or told["License"] or told["License-Expression"], name


def pod(name: str, image: str, arguments: list[str], **more: Any) -> dict[str, Any]:
    """A pod of the image, as its own user and without a writable root."""
    manifest = busybox_pod(name, **more)
    container = manifest["spec"]["containers"][0]
    del container["command"]
    security = {"runAsNonRoot": True, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False}
    container |= {"image": image, "args": arguments, "securityContext": security}
    return manifest


def test_version_as_the_user_that_the_image_names(cluster: RealCluster, purser_image: str) -> None:
    cluster.create(pod("version", purser_image, ["version"]))
    cluster.wait_pod("version", phase="Succeeded")
    assert re.fullmatch(r"purser \d+\.\d+\.\d+ \(Python 3[.\d]+\)\n", cluster.kubectl("logs", "version"))
    assert cluster.container_spec("default", "version")["process"]["user"]["uid"] == USER
    cluster.delete("pod", "version")


def test_the_lab_is_not_there_and_says_so(cluster: RealCluster, purser_image: str) -> None:
    cluster.create(pod("lab", purser_image, ["lab"]))
    cluster.wait_pod("lab", phase="Failed")
    assert cluster.kubectl("logs", "lab").startswith("purser: purser.lab is not installed: Purser's image does not")
    cluster.delete("pod", "lab")


def test_every_module_finds_what_it_imports(cluster: RealCluster, purser_image: str) -> None:
    """The image has few of Debian's libraries. It decides with numpy: only what needs numba cannot be imported."""
    manifest = pod("imports", purser_image, ["-I", "-c", IMPORT_ALL])
    manifest["spec"]["containers"][0]["command"] = ["python3"]
    cluster.create(manifest)
    cluster.wait_pod("imports", phase="Succeeded")
    cluster.delete("pod", "imports")


def test_the_agent_serves_kubelet_and_reads_a_driver_of_the_host(
    cluster: RealCluster, purser_image: str, tmp_path: Path
) -> None:
    driver = SimulatedDriver.create(tmp_path / "driver", cluster.node_name, "a100-40gb-8", kind=DriverKind.LIBRARY)
    [port] = free_ports(1)
    arguments = ["agent", "run", f"--node-name={cluster.node_name}", f"--metrics-port={port}", "--state-dir=/run"]
    arguments += [f"--driver-library={driver.library}", f"--sysfs-root={driver.sysfs_root}"]
    manifest = pod("agent", purser_image, arguments, hostNetwork=True)
    manifest["spec"]["containers"][0]["securityContext"] = {"privileged": True, "runAsUser": 0}
    _mount(manifest, str(driver.folder), "/var/lib/kubelet")
    cluster.kubectl(
        "create", "clusterrolebinding", "agent", "--clusterrole=cluster-admin", "--serviceaccount=default:default"
    )
    try:
        cluster.create(manifest)
        cluster.wait_pod("agent")
        cluster.wait_until("kubelet knows its devices", lambda: _cards(cluster) > 0)
    finally:
        cluster.delete("pod/agent")
        cluster.delete("clusterrolebinding/agent")


def _mount(manifest: dict[str, Any], *folders: str) -> None:
    names = {f"folder-{place}": folder for place, folder in enumerate(folders)}
    manifest["spec"]["volumes"] = [{"name": name, "hostPath": {"path": each}} for name, each in names.items()]
    mounts = [{"name": name, "mountPath": each} for name, each in names.items()]
    manifest["spec"]["containers"][0]["volumeMounts"] = mounts


def _cards(cluster: RealCluster) -> int:
    return int(cluster.get("node", cluster.node_name)["status"]["allocatable"].get("nvidia.com/gpu", 0))
