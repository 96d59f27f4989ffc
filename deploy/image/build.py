"""From what was downloaded to the archive."""

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from purser.lab.driver.compile import cache_folder

from . import debs, oci, sbom, wheels
from .oci import File, Folder, Link
from .saying import ImageError, say

ROOT = Path(__file__).resolve().parents[2]
USER = 65532
"""The images' own user, by the custom of distroless images. Agents are given root by their DaemonSet."""

SBOM = "usr/share/doc/purser/purser.spdx.json"

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""mig-worker finds the host's programs by it, too."""

_COMMAND = f"""\
#!/usr/bin/python{wheels.PYTHON} -Iu
import sys

from purser.cli import main

sys.exit(main())
"""

_GZIP = "import gzip, sys; sys.stdout.buffer.write(gzip.compress(sys.stdin.buffer.read(), 6, mtime=0))"

_SOURCES = ("deploy/image", "src", "LICENSE", "README.md", "pyproject.toml", "requirements.lock")
"""What the image depends on."""

_GROUND: oci.Tree = {
    **{name: Link(f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")},
    **{
        name: Folder() for name in ("dev", "home", "proc", "root", "run", "sys", "usr/sbin", "var/lib", "usr/local/bin")
    },
    "tmp": Folder(0o1777),
    "var/run": Link("/run"),
    "usr/bin/python3": Link(f"python{wheels.PYTHON}"),
    "etc/passwd": File(f"root:x:0:0:root:/root:/sbin/nologin\npurser:x:{USER}:{USER}::/:/sbin/nologin\n".encode()),
    "etc/group": File(f"root:x:0:\npurser:x:{USER}:\n".encode()),
    "etc/nsswitch.conf": File(b"passwd: files\ngroup: files\nhosts: files dns\n"),
    # NVIDIA's container runtime puts libraries into containers and names their folder here.
    "etc/ld.so.conf": File(b"include /etc/ld.so.conf.d/*.conf\n"),
}


def build(output: Path, extras: Sequence[str] = (), *, newest: bool = False, cache: Path | None = None) -> str:
    """Write the archive and the bill of materials into a folder; returns the image's digest. Raises ImageError."""
    if os.uname().machine != "x86_64":
        raise ImageError(
            f"this is {os.uname().machine}: the image is built on x86_64 (debian.lock has packages of amd64)"
        )
    cache = cache or cache_folder() / "image"
    base = debs.fetch(debs.read_lock(debs.LOCK.read_text()), cache / "debs", newest=newest)
    project = (ROOT / "pyproject.toml").read_text()
    libraries = wheels.wanted((ROOT / "requirements.lock").read_text(), project, extras, cache / "wheels")
    version = tomllib.loads(project)["project"]["version"]
    revision, seconds = _commit()
    created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with tempfile.TemporaryDirectory() as work:
        purser = _wheel_of_purser(Path(work), seconds)
        bill = sbom.document(base, [*libraries, purser], version, created)
        layers = _layers(base, libraries, purser, bill, Path(work, "root"))
        about = purser.metadata()
    labels = {
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.description": about["Summary"],
        "org.opencontainers.image.licenses": about["License-Expression"],
        "org.opencontainers.image.revision": revision,
        "org.opencontainers.image.title": "Purser",
        "org.opencontainers.image.version": version,
    }
    image = oci.Image(layers, "amd64", _config(labels), created, labels)
    output.mkdir(parents=True, exist_ok=True)
    archive = output / f"purser-{version}.oci.tar"
    digest = oci.write_archive(archive, image, f"docker.io/library/purser:{version}", f"purser:{version}")
    (output / f"purser-{version}.spdx.json").write_bytes(bill)
    say(f"{archive} ({archive.stat().st_size / 1e6:.1f} MB): {digest}")
    return digest


def _config(labels: Mapping[str, str]) -> Mapping[str, object]:
    return {
        "User": f"{USER}:{USER}",
        "Env": [
            f"PATH={_PATH}",
            "LANG=C.UTF-8",
            "PYTHONUNBUFFERED=1",
        ],
        "Entrypoint": ["purser"],
        "WorkingDir": "/",
        "Labels": dict(labels),
    }


def _layers(
    base: Sequence[debs.Deb], libraries: Sequence[wheels.Wheel], purser: wheels.Wheel, bill: bytes, root: Path
) -> list[oci.Layer]:
    """Debian, libraries, Purser: what changes most often is the last, and the smallest."""
    ground = dict(_GROUND)
    for deb in base:
        ground |= deb.files()
        ground[f"var/lib/dpkg/status.d/{deb.pin.name}"] = File(deb.control().encode())
    with_libraries = {path: file for each in libraries for path, file in each.files().items()}
    own = {**purser.files(), "usr/local/bin/purser": File(_COMMAND.encode(), 0o755), SBOM: File(bill)}
    say("laying out Debian's packages")
    _write(ground, root)
    image_python = _Python(root)
    layers = []
    for what, tree in (("Python", ground), ("libraries", with_libraries), ("Purser", own)):
        if tree is not ground:
            _write(tree, root)
        say(f"compiling and packing {what}")
        layers.append(oci.layer({**tree, **image_python.compiled(tree)}, image_python.compressed))
    return layers


class _Python:
    """The image's own Python, run from where its files lie: bytecode and compressed layers are of one version
    everywhere, whichever Python and zlib the machine has."""

    def __init__(self, root: Path) -> None:
        self._root = root
        libraries = root / "usr/lib/x86_64-linux-gnu"
        self._command = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
        self._command += [str(root / f"usr/bin/python{wheels.PYTHON}"), "-S", "-B"]

    def compiled(self, tree: oci.Tree) -> dict[str, File]:
        """Bytecode of the modules of a tree, which lies below the root: a container may not write it."""
        # A link would be followed on this machine, out of the image.
        modules = sorted(path for path, what in tree.items() if path.endswith(".py") and isinstance(what, File))
        names = "".join(f"{self._root / path}\n" for path in modules)
        options = ["-q", "-f", "--invalidation-mode=unchecked-hash", f"-s{self._root}", "-p/", "-i-"]
        self._run(["-m", "compileall", *options], names.encode())
        tag = f"cpython-{wheels.PYTHON.replace('.', '')}"
        made = (str(Path(path).parent / "__pycache__" / f"{Path(path).stem}.{tag}.pyc") for path in modules)
        return {path: File((self._root / path).read_bytes()) for path in made}

    def compressed(self, tar: bytes) -> bytes:
        """As gzip, without a time."""
        return self._run(["-c", _GZIP], tar)

    def _run(self, arguments: Sequence[str], given: bytes) -> bytes:
        result = subprocess.run(
            [*self._command, *arguments], input=given, capture_output=True, env={"PYTHONHASHSEED": "0"}
        )
        if result.returncode != 0:
            told = (result.stdout + result.stderr).decode(errors="replace").strip()
            raise ImageError(f"the image's Python failed with {arguments[:2]}: {told}")
        return result.stdout


def _write(tree: oci.Tree, root: Path) -> None:
    for name, what in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match what:
            case Folder():
                path.mkdir(exist_ok=True)
            case Link(target):
                path.symlink_to(target)
            case File(content, mode):
                path.write_bytes(content)
                path.chmod(mode | 0o200)


def _wheel_of_purser(work: Path, seconds: int) -> wheels.Wheel:
    say("building Purser's wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={work}"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        raise ImageError(f"hatchling: {result.stderr.strip()}")
    return wheels.Wheel(next(work.glob("*.whl")))


def _commit() -> tuple[str, int]:
    """What is built, and when that was committed: SOURCE_DATE_EPOCH wins."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        revision, seconds = _git("log", "-1", "--format=%H %ct").split()
        changed = "-changed" if _git("status", "--porcelain", *_SOURCES) else ""
    except (OSError, subprocess.CalledProcessError) as error:
        if given is None:
            raise ImageError(f"no git commit to date the image by ({error}): set SOURCE_DATE_EPOCH") from error
        return "unknown", int(given)
    return revision + changed, int(given or seconds)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
