"""Which release of Kubernetes the tests run, and the folders where programs that are built once per machine lie.

`KUBERNETES` names it: `1.32.5`, or `1.32.x` for the newest of a minor version; by default the newest that tests know.
1.20.2, the oldest, is built from Debian's source package, every other from Go modules. The newest that tests know, and
the etcd, containerd, helm and registry beside it, are pinned in `modules/*/go.mod`, and nowhere else. Where one of
these is not served, the newest of its minor version that is takes its place.
"""

import os
import re
from pathlib import Path

from purser.lab.driver.compile import cache_folder
from tests.tiers import TIER, Tier

VARIABLE = "KUBERNETES"
DEBIAN = "1.20.2"
"""The version in Debian 12's source package `kubernetes`."""

PINNED = {
    "kubernetes": "k8s.io/kubernetes",
    "etcd": "go.etcd.io/etcd/server/v3",
    "containerd": "github.com/containerd/containerd/v2",
    "helm": "helm.sh/helm/v4",
    "registry": "github.com/google/go-containerregistry",
    "nfd": "sigs.k8s.io/node-feature-discovery",
    "jobset": "sigs.k8s.io/jobset",
}
"""Module by folder of `modules`."""

NEIGHBOURS = ("nfd",)
"""What runs beside Purser in many clusters. Each go.mod is that of `kubernetes` with one requirement more, so that the
packages which both need are compiled once: half a minute where the module's own versions take six."""

LONG_NEIGHBOURS = ("jobset",)
"""Likewise, built for tests that take more time than the gate has, in the soak tier."""

CRI_V1 = (1, 26)
"""Since then kubelet speaks CRI v1, which is all that containerd 2 does."""

_MODULES = Path(__file__).parent / "modules"


class ReleaseError(ValueError):
    """`KUBERNETES` names no release; the message says what it may name."""


def module_folder(name: str) -> Path:
    """Where go.mod and go.sum of a module lie."""
    return _MODULES / name


def pinned(name: str) -> str:
    """Version of a module, e.g. `1.36.3`."""
    text = (module_folder(name) / "go.mod").read_text()
    match = re.search(rf"^require {re.escape(PINNED[name])} v(\S+)$", text, re.MULTILINE)
    assert match, f"{module_folder(name)}/go.mod requires no {PINNED[name]}"
    return match[1]


def asked() -> str:
    """The release that is asked for, `1.32.5` or `1.32.x`. Raises ReleaseError."""
    text = os.environ.get(VARIABLE) or f"1.{minor_of(pinned('kubernetes'))}.x"
    match = re.fullmatch(r"v?1\.(\d+)\.(\d+|x)", text)
    if match is None:
        raise ReleaseError(
            f"{VARIABLE}={text}: write a release, as {pinned('kubernetes')}, or a minor version, as 1.32.x"
        )
    return text.removeprefix("v")


def wanted() -> str:
    """The release to run; ends in `.x` where none was built of what is asked for. Raises ReleaseError."""
    return to_run("kubernetes", asked())


def to_run(name: str, release: str) -> str:
    """A release of a module that was built on this machine for what is asked for, `1.32.x`; that itself if none was."""
    newest = pinned(name)
    if release == minor_version(newest) and folder(name, newest).is_dir():
        return newest
    # Of the newest minor version another one than is pinned: what was served when that was not.
    return (newest_built(name, release) or release) if release.endswith(".x") else release


def newest_built(name: str, release: str) -> str | None:
    """The newest release of a minor version, `1.32.x`, that was built on this machine."""
    line = release.removesuffix("x")
    prefix = folder(name, line).name
    built = [path.name.removeprefix(prefix) for path in cache_folder().glob(f"{prefix}*") if path.is_dir()]
    return line + max(built, key=int) if built else None


def minor_version(version: str) -> str:
    """1.32.x of 1.32.5."""
    return f"{version.rpartition('.')[0]}.x"


def minor_of(version: str) -> int:
    """20 of 1.20.2."""
    return int(version.split(".")[1])


def folder(name: str, version: str) -> Path:
    """Where the programs of one build lie."""
    return cache_folder() / f"{'kube' if name == 'kubernetes' else name}-{version}"


def beside(version: str) -> tuple[str, ...]:
    """What is built beside a release of Kubernetes; all else comes from Debian."""
    found = ("etcd", "containerd", "helm", "registry") if (1, minor_of(version)) >= CRI_V1 else ()
    neighbours = (*NEIGHBOURS, *LONG_NEIGHBOURS) if TIER is Tier.SOAK else NEIGHBOURS
    return (*found, *neighbours) if version == pinned("kubernetes") else found


def folders(version: str) -> dict[str, Path]:
    """By module, what a release runs with; what is not in them comes from Debian."""
    versions = {name: to_run(name, minor_version(pinned(name))) for name in beside(version)}
    return {name: folder(name, each) for name, each in {"kubernetes": version, **versions}.items()}
