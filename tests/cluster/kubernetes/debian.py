"""Build 1.20.2 from Debian's source package.

Debian ships no kube-apiserver and no kubelet, but the source package `kubernetes` holds the complete upstream tree with
its vendor folder. It is fetched from the mirrors the machine uses anyway.
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from . import apt
from .progress import BuildError, heartbeat, say
from .releases import DEBIAN

_GO = Path("/usr/lib/go-1.19/bin")
"""Go 1.19 is the oldest in Debian 12 and the newest that still builds this tree."""

_COMMIT = "faecb196815e248d3ecfb03c680a4507229c2a56"
"""Upstream's commit of v1.20.2; the tarball has no git data, without it the version reads v0.0.0."""


_REFLECT2 = "github.com/modern-go/reflect2"
"""Go 1.18 changed what this library of the tree reaches into: its version there, 1.0.1, crashes the API server with
`unexpected fault address` as soon as a webhook answers with a patch. Debian has 1.0.2, which was made for that."""


def build(programs: tuple[str, ...], work: Path, ready: Path) -> None:
    """Fill `ready` with programs; everything that is written on the way lies in `work`. Raises BuildError, AptError."""
    tree = work / "src/k8s.io/kubernetes"
    say("fetching the source package")
    _unpack(apt.fetch_source("kubernetes", work), tree)
    _replace_reflect2(tree)
    say(f"building {', '.join(programs)} {DEBIAN}: 4 to 8 minutes on two cores")
    _make(tree, _environment(work), programs)
    for name in programs:
        shutil.copy2(tree / "_output/bin" / name, ready / name)


def _unpack(source: Path, tree: Path) -> None:
    if DEBIAN not in source.name:
        raise BuildError(f"the mirror's source package is {source.name}, not Kubernetes {DEBIAN}")
    tree.mkdir(parents=True)
    subprocess.run(["tar", "-xf", source, "--strip-components=1", "-C", tree], check=True)


def _replace_reflect2(tree: Path) -> None:
    vendored = tree / "vendor" / _REFLECT2
    shutil.rmtree(vendored)
    shutil.copytree(Path("/usr/share/gocode/src") / _REFLECT2, vendored)


def _environment(work: Path) -> Mapping[str, str]:
    major, minor, _ = DEBIAN.split(".")
    return {
        "HOME": str(work),
        "PATH": f"{_GO}:/usr/sbin:/usr/bin:/sbin:/bin",
        # Newer Go versions refuse the tree's go.mod; the tree was made for GOPATH with a vendor folder.
        "GO111MODULE": "off",
        "GOPATH": str(work),
        "GOCACHE": str(work / "go-cache"),
        "GOTMPDIR": str(work),
        "CGO_ENABLED": "0",
        # Neither clouds nor Docker, for which kubelet would look five seconds at each start: upstream's own tags.
        "GOFLAGS": "-tags=providerless,dockerless",
        "KUBE_GIT_VERSION": f"v{DEBIAN}",
        "KUBE_GIT_MAJOR": major,
        "KUBE_GIT_MINOR": minor,
        "KUBE_GIT_COMMIT": _COMMIT,
        "KUBE_GIT_TREE_STATE": "clean",
    }


def _make(tree: Path, environment: Mapping[str, str], programs: tuple[str, ...]) -> None:
    # All else that is generated is part of the release; kubectl has texts besides, which a target of their own lacks.
    generated = "generated_files" if "kubectl" in programs else "gen_openapi"
    commands = (["make", generated], ["hack/make-rules/build.sh", *(f"cmd/{name}" for name in programs)])
    with heartbeat(lambda: "building"):
        for command in commands:
            result = subprocess.run(command, cwd=tree, env=environment)
            if result.returncode != 0:
                raise BuildError(f"{command[0]} ended with {result.returncode}; its output is above")
