"""Build programs from Go modules: any release of Kubernetes that the module proxy serves, and what runs beside it.

k8s.io/kubernetes is a module whose go.mod replaces its staging modules by folders of its own tree. Whoever requires it
replaces them by what was published of them, v0.36.3 for v1.36.3, and can build its programs as any dependency's.
Compiled packages stay in a cache folder: a build that was interrupted goes on where it was.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from purser.lab.driver.compile import cache_folder

from . import releases
from .progress import OTHERWISE, BuildError, heartbeat, say

_GO = (1, 26)
"""What the pinned release wants, and no newer one: with 1.27, its API server serves broken schemas."""

_KUBERNETES, _CONTAINERD = releases.PINNED["kubernetes"], releases.PINNED["containerd"]
_NFD = releases.PINNED["nfd"]
_PROGRAMS = {
    "etcd": {"etcd": releases.PINNED["etcd"]},
    "containerd": {name: f"{_CONTAINERD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
    "helm": {"helm": f"{releases.PINNED['helm']}/cmd/helm"},
    "registry": {"registry": f"{releases.PINNED['registry']}/cmd/registry"},
    "nfd": {name: f"{_NFD}/cmd/{name}" for name in ("nfd-master", "nfd-worker")},
    "jobset": {"jobset": "purser.dev/tests/jobset"},
}
"""Packages by program; Kubernetes' have the names of its programs. JobSet's is our own of its controllers."""

_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
"""Packages whose variables say the version: without them a program of Kubernetes says v0.0.0."""


def newest(name: str, release: str, programs: tuple[str, ...]) -> str:
    """The newest release of a minor version, `1.32.x`, that the module proxy serves with all of its modules.

    Raises BuildError.
    """
    _require_go()
    line = release.removesuffix(".x")
    listed = _go(["list", "-m", "-versions", releases.PINNED[name]], cache_folder()).split()
    found = {int(match[1]) for each in listed if (match := re.fullmatch(rf"v{re.escape(line)}\.(\d+)", each))}
    # A minor version's first release is served more often than it is listed.
    for patch in sorted(found | {0}, reverse=True):
        version = f"{line}.{patch}"
        with tempfile.TemporaryDirectory() as work:
            try:
                _write_module(name, version, _packages(name, programs), Path(work) / "module")
            except BuildError as error:
                say(f"{name} {version} is not served: {str(error).splitlines()[-1].strip()}")
            else:
                return version
    raise BuildError(f"the Go module proxy serves no release of {name} {line} that it lists. {OTHERWISE}")


def is_served(name: str, programs: tuple[str, ...]) -> bool:
    """Whether the module proxy serves the pinned release with all of its modules. Raises BuildError without Go."""
    _require_go()
    try:
        _go(["list", "-deps", *_packages(name, programs).values()], releases.module_folder(name))
    except BuildError as error:
        say(f"{name} {releases.pinned(name)} is not served: {str(error).splitlines()[-1].strip()}")
        return False
    return True


def programs(name: str) -> tuple[str, ...]:
    """What is built of a module, but for Kubernetes', of which whoever builds it says it."""
    return tuple(_PROGRAMS.get(name, ()))


def build(name: str, version: str, programs: tuple[str, ...], work: Path, ready: Path) -> None:
    """Fill `ready` with programs of a module; `work` is an empty folder. Raises BuildError."""
    _require_go()
    packages = _packages(name, programs)
    if version == releases.pinned(name):
        module = releases.module_folder(name)
    else:
        module = work / "module"
        _write_module(name, version, packages, module)
    _build(f"{name} {version}", module, packages, _ldflags(_variables(name, version)), ready)


def build_beside(sources: Path, program: str, folder: Path) -> Path:
    """A program of our own that calls the packages of the pinned Kubernetes: from the Go files of a folder into another
    one. What it shares with Kubernetes' programs was compiled with them. Raises BuildError."""
    _require_go()
    module = folder / "module"
    shutil.copytree(
        sources, module, ignore=lambda _, names: [each for each in names if not each.endswith((".go", ".s"))]
    )
    for each in ("go.mod", "go.sum"):
        shutil.copy(releases.module_folder("kubernetes") / each, module)
    _build(program, module, {program: "."}, _ldflags({}), folder)
    return folder / program


def source(name: str) -> Path:
    """The tree of a module as it was published, with the manifests that it is installed by. Raises BuildError."""
    version = releases.to_run(name, releases.minor_version(releases.pinned(name)))
    return _source(f"{releases.PINNED[name]}@v{version}", releases.module_folder(name))


def _source(module: str, folder: Path) -> Path:
    return Path(json.loads(_go(["mod", "download", "-json", module], folder))["Dir"])


def _packages(name: str, programs: tuple[str, ...]) -> Mapping[str, str]:
    known = _PROGRAMS.get(name, {})
    return {each: known.get(each, f"{_KUBERNETES}/cmd/{each}") for each in programs}


def _write_module(name: str, version: str, packages: Mapping[str, str], module: Path) -> None:
    """go.mod and go.sum of a release that is not pinned here; the checksum database vouches for them."""
    say(f"resolving the modules of {name} {version}")
    module.mkdir()
    if name == "kubernetes":
        text = _kubernetes_module(version, module)
    else:
        path, pinned = releases.PINNED[name], releases.pinned(name)
        text = (releases.module_folder(name) / "go.mod").read_text()
        text = text.replace(f"require {path} v{pinned}\n", f"require {path} v{version}\n")
    (module / "go.mod").write_text(text)
    for each in releases.module_folder(name).glob("*.go"):
        shutil.copy(each, module)
    _go(["list", "-mod=mod", "-deps", *packages.values()], module)


def _kubernetes_module(version: str, folder: Path) -> str:
    text = (_source(f"{_KUBERNETES}@v{version}", folder) / "go.mod").read_text()
    header = [match[0] for match in re.finditer(r"^(go|godebug) .*$", text, re.MULTILINE)]
    staging = re.findall(r"^\s+(k8s\.io/\S+) => \./staging/", text, re.MULTILINE)
    published = f"v0.{version.removeprefix('1.')}"
    lines = [
        "module purser.dev/tests/kubernetes",
        *header,
        f"require {_KUBERNETES} v{version}",
        *(f"replace {each} => {each} {published}" for each in staging),
    ]
    return "\n".join(lines) + "\n"


def _build(title: str, module: Path, packages: Mapping[str, str], ldflags: str, ready: Path) -> None:
    total = len(_go(["list", "-deps", *packages.values()], module).split())
    compiled = 0

    def progress() -> str:
        return f"building {title}, {compiled} of at most {total} packages"

    say(f"building {title}: {', '.join(packages)}")
    # All at once: while one is linked, what another one needs is compiled. In a folder each has its package's name.
    output = ready if len(packages) > 1 else ready / next(iter(packages))
    # What debuggers read is a fifth of a compiler's work, and -w leaves it out of the programs.
    flags = ["-v", "-trimpath", "-p=2", "-gcflags=all=-dwarf=false", f"-ldflags={ldflags}", f"-o={output}"]
    command = ["go", "build", *flags, *packages.values()]
    with (
        heartbeat(progress),
        subprocess.Popen(command, cwd=module, env=_environment(), stderr=subprocess.PIPE, text=True) as running,
    ):
        assert running.stderr is not None
        said = []
        for line in running.stderr:
            # With -v it prints the path of every package that it compiles, and nothing else where all is well.
            said.append(line)
            compiled += 1
    if running.returncode != 0:
        raise BuildError(f"go build of {title} ended with {running.returncode}:\n{''.join(said[-20:])}")


def _go(arguments: Sequence[str], folder: Path) -> str:
    result = subprocess.run(["go", *arguments], cwd=folder, env=_environment(), capture_output=True, text=True)
    if result.returncode != 0:
        raise BuildError(f"go {arguments[0]} ended with {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


def _require_go() -> None:
    if shutil.which("go") is None:
        raise BuildError(f"go is not on the PATH: install Go {_GO[0]}.{_GO[1]}. {OTHERWISE}")
    said = _go(["env", "GOVERSION"], cache_folder())
    match = re.match(r"go(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) != _GO:
        raise BuildError(f"this is {said.strip()}: install Go {_GO[0]}.{_GO[1]}. {OTHERWISE}")


def _environment() -> Mapping[str, str]:
    cache = cache_folder()
    own = {
        "GOMODCACHE": f"{cache}/go-mod",
        "GOCACHE": f"{cache}/go-build",
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
    }
    return {**os.environ, **own, "GOWORK": "off"}


def _variables(name: str, version: str) -> Mapping[str, str]:
    if name == "helm":
        return {f"{releases.PINNED['helm']}/internal/version.version": f"v{version}"}
    if name == "nfd":
        # Its image has /host- there: where the host's /sys and /etc are mounted. With a relative path the folder that
        # the worker is started in decides.
        return {f"{_NFD}/pkg/version.version": f"v{version}", f"{_NFD}/pkg/utils/hostpath.pathPrefix": "host/"}
    if name != "kubernetes":
        return {}
    major, minor, _ = version.split(".")
    values = {
        "gitVersion": f"v{version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
    }
    return {f"{package}.{key}": value for package in _STAMPED for key, value in values.items()}


def _ldflags(variables: Mapping[str, str]) -> str:
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in variables.items())])
