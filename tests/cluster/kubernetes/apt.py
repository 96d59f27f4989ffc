"""What the build asks of Debian's package tools. Needs root; leaves the machine's own apt configuration as it is."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .progress import OTHERWISE

APT = Path("/etc/apt")
POLICY = Path("/usr/sbin/policy-rc.d")

OLD_PACKAGES = {"etcd-server": "etcd", "containerd": "ctr"}
"""What releases before CRI v1 run with: newer ones have theirs built beside them."""

RUN_PACKAGES = {
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "busybox-static": "/usr/share/doc/busybox-static/copyright",
    "iproute2": "ip",
    "iptables": "iptables",
    "mount": "mount",
    "prometheus": "promtool",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
}
"""Packages by what shows that they are there: a command on the PATH, which may be another vendor's (containerd of
Docker's repository, say: Debian's would conflict with it), or a file. A busybox that is not static is no use."""

BUILD_PACKAGES = {
    "golang-1.19-go": "/usr/lib/go-1.19/bin/go",
    "golang-github-modern-go-reflect2-dev": "/usr/share/gocode/src/github.com/modern-go/reflect2/reflect2.go",
    "dpkg-dev": "dpkg-source",
    "gcc": "gcc",
    "jq": "jq",
    "make": "make",
    "rsync": "rsync",
}


class AptError(RuntimeError):
    """A package tool failed or the machine is not one that this can work on."""


def missing_packages(*groups: Mapping[str, str]) -> list[str]:
    """Packages of RUN_PACKAGES and further groups that are to be installed."""
    wanted = RUN_PACKAGES | {package: proof for group in groups for package, proof in group.items()}
    return [package for package, proof in wanted.items() if not _is_there(proof)]


def install(packages: Sequence[str]) -> None:
    """Install packages without starting the daemons they bring; raises AptError."""
    _require_debian()
    _apt_get("update")
    with _no_daemons():
        _apt_get("install", "--yes", "--no-install-recommends", *packages)


def fetch_source(package: str, folder: Path) -> Path:
    """Download the upstream tarball of a source package, checked by apt, into `folder`; raises AptError."""
    _require_debian()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        private = Path(name)
        _write_source_lists(private, "deb-src")
        options = [
            "-oDir::Etc::SourceList=/dev/null",
            f"-oDir::Etc::SourceParts={private / 'sources.list.d'}",
            f"-oDir::State::Lists={private / 'lists'}",
            "-oAPT::Sandbox::User=root",  # the folder is not readable for apt's own user
        ]
        _apt_get(*options, "update")
        _apt_get(*options, "source", "--download-only", package, cwd=folder)
    tarballs = list(folder.glob(f"{package}_*.orig.tar.*"))
    if len(tarballs) != 1:
        raise AptError(f"apt-get source {package} left {[path.name for path in tarballs]}, not one upstream tarball")
    return tarballs[0]


def make_root(path: Path, prefix: Sequence[str] = ()) -> None:
    """Write a tar of Debian 12's required packages and apt, which is what the image debian:12-slim is.

    prefix: what runs the command after it. Raises AptError.
    """
    _require_debian()
    with tempfile.TemporaryDirectory() as name:
        _write_source_lists(Path(name), "deb")
        lists = [each for each in Path(name, "sources.list.d").iterdir() if each.read_text().strip()]
        codename = _os_release()["VERSION_CODENAME"]
        command = ["mmdebstrap", "--quiet", "--variant=minbase", codename, str(path), *map(str, sorted(lists))]
        result = subprocess.run([*prefix, *command])
    if result.returncode != 0:
        raise AptError(f"mmdebstrap ended with {result.returncode}; its output is above")


def source_lines(one_line: str, codename: str, kind: str = "deb-src") -> str:
    """The `deb` lines of a sources.list for Debian's main component, as lines of a kind."""
    pattern = re.compile(rf"^\s*deb\s+(?=.*\s{codename}[^\s]*\s.*\bmain\b)", re.MULTILINE)
    lines = [line for line in one_line.splitlines() if pattern.match(line)]
    return "".join(pattern.sub(f"{kind} ", line) + "\n" for line in lines)


def source_stanzas(deb822: str, codename: str, kind: str = "deb-src") -> str:
    """The `deb` stanzas of a .sources file for Debian's main component, as stanzas of a kind."""
    stanzas = re.split(r"\n[ \t]*\n", deb822)
    kept = [stanza for stanza in stanzas if _is_debian_stanza(stanza, codename)]
    return "\n\n".join(re.sub(r"(?mi)^Types:.*$", f"Types: {kind}", stanza) for stanza in kept) + "\n"


def _is_debian_stanza(stanza: str, codename: str) -> bool:
    fields = dict(re.findall(r"(?m)^([A-Za-z-]+):[ \t]*(.*)$", stanza))
    values = {name.lower(): value.split() for name, value in fields.items()}
    suites = values.get("suites", [])
    return (
        "deb" in values.get("types", [])
        and "main" in values.get("components", [])
        and any(suite.startswith(codename) for suite in suites)
        and values.get("enabled", ["yes"]) != ["no"]
    )


def _write_source_lists(private: Path, kind: str) -> None:
    parts = private / "sources.list.d"
    parts.mkdir()
    (private / "lists" / "partial").mkdir(parents=True)
    codename = _os_release()["VERSION_CODENAME"]
    for path in (APT / "sources.list", *(APT / "sources.list.d").glob("*.list")):
        if path.exists():
            (parts / path.name).with_suffix(".list").write_text(source_lines(path.read_text(), codename, kind))
    for path in (APT / "sources.list.d").glob("*.sources"):
        (parts / path.name).write_text(source_stanzas(path.read_text(), codename, kind))


def _require_debian() -> None:
    release = _os_release()
    if release.get("ID") != "debian" or release.get("VERSION_ID") != "12":
        raise AptError(f"this is {release.get('PRETTY_NAME')}; the packages are those of Debian 12. {OTHERWISE}")
    if os.geteuid() != 0:
        raise AptError(f"installing packages needs root. {OTHERWISE}")


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key: value.strip('"') for key, value in pairs}


@contextlib.contextmanager
def _no_daemons() -> Iterator[None]:
    """Debian starts a daemon as it installs it, unless this script forbids it: etcd would take the usual port."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _is_there(proof: str) -> bool:
    if proof.startswith("/"):
        return Path(proof).exists()
    return shutil.which(proof, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin") is not None


def _apt_get(*arguments: str, cwd: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(["apt-get", "-q", *arguments], cwd=cwd, env=environment)
    if result.returncode != 0:
        raise AptError(f"apt-get {arguments[-1]} ended with {result.returncode}; its output is above")
