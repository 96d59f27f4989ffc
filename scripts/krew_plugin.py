"""Makes what krew installs: an archive of `kubectl purser` for this machine, which needs no Python, and the manifest.

python scripts/krew_plugin.py archive           dist/krew/kubectl-purser-linux-amd64.tar.gz, or as this machine is
python scripts/krew_plugin.py manifest URL      dist/krew/purser.yaml, of all archives there; URL is where you put them

An archive runs on systems whose C library is as new as this machine's, or newer: make it on the oldest one that counts.
"""

import hashlib
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "dist" / "krew"
PLUGIN = "kubectl-purser"
ENTRY = """\
import sys
from pathlib import Path

from purser.cli import kubectl_completion, kubectl_plugin

kubectl_completion() if Path(sys.argv[0]).name == "kubectl_complete-purser" else kubectl_plugin()
"""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def this_platform() -> str:
    """``linux-amd64``, in Go's words."""
    machine = platform.machine().lower()
    return f"{platform.system().lower()}-{ARCHITECTURES.get(machine, machine)}"


def manifest(version: str, url: str, digests: Mapping[str, str]) -> dict[str, Any]:
    """krew's Plugin. ``digests``: SHA-256 of each archive, by platform."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "purser"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "See who uses which GPU, and why a pod waits",
            "description": "Shows GPUs, shares and pods, explains why a pod waits and which change would make it fit, "
            "and takes\nsnapshots. All commands only read. They also work on clusters without Purser.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": dict(zip(("os", "arch"), name.split("-"), strict=True))},
                    "uri": f"{url.rstrip('/')}/{PLUGIN}-{name}.tar.gz",
                    "sha256": digest,
                    "bin": PLUGIN,
                }
                for name, digest in sorted(digests.items())
            ],
        },
    }


def _make_archive() -> Path:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        venv.create(work / "env", with_pip=True)
        python = str(work / "env/bin/python")
        locked = work / "requirements.txt"
        with locked.open("wb") as file:
            subprocess.run([sys.executable, "scripts/locked.py", "plugin", "mcp"], cwd=ROOT, stdout=file, check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--require-hashes", "-r", str(locked)], check=True)
        subprocess.run([*install, "--no-deps", "--no-build-isolation", str(ROOT)], check=True)
        (work / f"{PLUGIN}.py").write_text(ENTRY)
        subprocess.run(
            [
                *(python, "-m", "PyInstaller", "--onedir", f"--name={PLUGIN}", "--log-level=WARN", "--noconfirm"),
                *("--collect-submodules=purser", "--collect-data=purser", "--copy-metadata=gpu-purser"),
                f"{PLUGIN}.py",
            ],
            cwd=work,
            env={**os.environ, "PYTHONHASHSEED": "1"},
            check=True,
        )
        OUT.mkdir(parents=True, exist_ok=True)
        made = OUT / f"{PLUGIN}-{this_platform()}.tar.gz"
        with tarfile.open(made, "w:gz", dereference=True) as archive:  # krew unpacks no links
            archive.add(work / "dist" / PLUGIN, arcname=".")
            archive.add(ROOT / "LICENSE", arcname="LICENSE")
        return made


def _write_manifest(url: str) -> Path:
    archives = sorted(OUT.glob(f"{PLUGIN}-*.tar.gz"))
    if not archives:
        sys.exit(f"krew_plugin: no archives in {OUT.relative_to(ROOT)}: make one with {sys.argv[0]} archive")
    digests = {
        each.name.removeprefix(f"{PLUGIN}-").removesuffix(".tar.gz"): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in archives
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    made = OUT / "purser.yaml"
    made.write_text(yaml.safe_dump(manifest(project["version"], url, digests), sort_keys=False, width=100))
    return made


def main(arguments: list[str]) -> None:
    match arguments:
        case ["archive"]:
            made = _make_archive()
        case ["manifest", url]:
            made = _write_manifest(url)
        case _:
            sys.exit(__doc__)
    print(f"krew_plugin: made {made.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
