"""The image: what is in it, that it is the same wherever it is built, and its parts as pods of kubelet's."""

import email
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deploy.image.build import ROOT, SBOM, USER

from purser.lab.driver.node import DriverKind, SimulatedDriver
from purser.lab.ports import free_ports

from .kubernetes import RealCluster, busybox_pod

SOURCES = ("deploy", "src", "LICENSE", "README.md", "pyproject.toml", "requirements.lock", ".gitignore")
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
        self.manifest = self._blob_json(entry)
        self.config = self._blob_json(self.manifest["config"])
        layers = (gzip.decompress(self._blob(each)) for each in self.manifest["layers"])
        self.tars = [tarfile.open(fileobj=io.BytesIO(each)) for each in layers]  # noqa: SIM115
        self.members = {each.name: each for tar in self.tars for each in tar}

    def read(self, name: str) -> bytes:
        """A file of the image."""
        for tar in self.tars:
            if name in tar.getnames():
                return tar.extractfile(name).read()  # type: ignore[union-attr]
        raise KeyError(name)

    def _json(self, name: str) -> Any:
        return json.loads(self._blobs[name])

    def _blob(self, descriptor: Mapping[str, str]) -> bytes:
        return self._blobs[f"blobs/{descriptor['digest'].replace(':', '/')}"]

    def _blob_json(self, descriptor: Mapping[str, str]) -> Any:
        return json.loads(self._blob(descriptor))


@pytest.fixture(scope="module")
def archive(purser_archive: Path) -> Archive:
    return Archive(purser_archive)


@pytest.fixture(scope="module")
def bill(archive: Archive) -> Any:
    return json.loads(archive.read(SBOM))


def test_it_is_the_same_in_another_folder_and_at_another_time(archive: Archive, tmp_path: Path) -> None:
    """A copy without git's data: its revision is unknown, all else has to be equal to the byte."""
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    labels = archive.config["config"]["Labels"]
    made = subprocess.run(["date", f"--date={archive.config['created']}", "+%s"], capture_output=True, text=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": made.stdout.strip(), "TZ": "Asia/Kolkata", "PYTHONHASHSEED": "7"}
    script = f"umask 077; exec {sys.executable} -m deploy.image --newest --output=out"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, check=True)
    other = Archive(next((tmp_path / "out").glob("*.oci.tar")))
    assert other.manifest["layers"] == archive.manifest["layers"]
    assert other.config["config"]["Labels"].pop("org.opencontainers.image.revision") == "unknown"
    assert other.config["config"].items() == {**archive.config["config"], "Labels": _without_revision(labels)}.items()


def _without_revision(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if not name.endswith(".revision")}


def test_labels_say_what_it_is(archive: Archive) -> None:
    labels = {name.rpartition(".")[2]: value for name, value in archive.config["config"]["Labels"].items()}
    assert re.fullmatch(r"[0-9a-f]{40}(-changed)?", labels["revision"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", labels["version"])
    assert labels["licenses"] == "Apache-2.0"
    assert labels["created"] == archive.config["created"]


def test_it_has_no_shell_and_no_programs_but_python_and_purser(archive: Archive) -> None:
    programs = {name for name, each in archive.members.items() if each.mode & 0o111 and not each.isdir()}
    links = {name for name in programs if archive.members[name].issym()}
    libraries = {name for name in programs - links if ".so" in name}
    assert programs - links - libraries == {"usr/bin/python3.11", "usr/local/bin/purser"}
    assert not [name for name in links if "/bin/" in name and name != "usr/bin/python3"]


def test_all_is_roots_and_nobody_else_may_write_it(archive: Archive) -> None:
    wide = [name for name, each in archive.members.items() if each.mode & 0o6022 and not each.issym()]
    assert wide == ["tmp"]
    assert {(each.uid, each.gid, each.mtime) for each in archive.members.values()} == {(0, 0, 0)}


def test_bytecode_is_there_and_names_no_time(archive: Archive) -> None:
    """A container may not write it, and a time would differ: flags 1, PEP 552's hash that is not checked."""
    modules = [name for name, each in archive.members.items() if name.endswith(".py") and each.isreg()]
    compiled = [name for name in archive.members if name.endswith(".pyc")]
    assert len(modules) == len(compiled) > 1000
    assert {archive.read(name)[4:8] for name in compiled} == {b"\1\0\0\0"}


def test_the_bill_names_every_package_that_is_there_and_no_other(archive: Archive, bill: Any) -> None:
    told = {each["SPDXID"].removeprefix("SPDXRef-"): each["versionInfo"] for each in bill["packages"]}
    there = {
        f"deb-{each['Package'].replace('+', '-')}": each["Version"]
        for each in _packages(archive, r"var/lib/dpkg/status\.d/.+")
    }
    for each in _packages(archive, r".+\.dist-info/METADATA"):
        there[f"python-{re.sub(r'[-_.]+', '-', each['Name']).lower()}"] = each["Version"]
    assert there == {name: version for name, version in told.items() if name != "image"}
    assert {"deb-libc6", "python-numpy", "python-gpu-purser"} < there.keys()


def _packages(archive: Archive, pattern: str) -> Iterator[Any]:
    found = [each for each, member in archive.members.items() if member.isreg() and re.fullmatch(pattern, each)]
    return (email.message_from_bytes(archive.read(each)) for each in found)


def test_the_bill_holds_together(bill: Any) -> None:
    known = {"SPDXRef-DOCUMENT", *(each["SPDXID"] for each in bill["packages"])}
    assert len(known) == len(bill["packages"]) + 1
    assert {each[end] for each in bill["relationships"] for end in ("spdxElementId", "relatedSpdxElement")} == known


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
    assert re.fullmatch(r"purser \d+\.\d+\.\d+\n", cluster.kubectl("logs", "version"))
    assert cluster.container_spec("default", "version")["process"]["user"]["uid"] == USER
    cluster.delete("pod", "version")


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
