"""What krew reads of the plugin; that it installs and runs is tried by hand (docs/why.md says how it is made)."""

import subprocess
import sys

from tests.scripts import SCRIPTS, script

KREW = script("krew_plugin")
DIGEST = "0" * 64


def test_each_archive_is_a_platform_of_the_manifest():
    made = KREW.manifest("1.2.3", "https://example.com/v1.2.3/", {"linux-arm64": DIGEST, "darwin-arm64": DIGEST})
    assert (made["metadata"], made["spec"]["version"]) == ({"name": "purser"}, "v1.2.3")
    assert len(made["spec"]["shortDescription"]) <= 50, "krew search cuts the rest"
    assert made["spec"]["platforms"] == [
        {
            "selector": {"matchLabels": {"os": system, "arch": "arm64"}},
            "uri": f"https://example.com/v1.2.3/kubectl-purser-{system}-arm64.tar.gz",
            "sha256": DIGEST,
            "bin": "kubectl-purser",
        }
        for system in ("darwin", "linux")
    ]


def test_the_archives_versions_are_those_of_the_lock_file():
    command = [sys.executable, SCRIPTS / "locked.py", "plugin", "mcp"]
    locked = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SCRIPTS.parent).stdout
    names = {line.partition("==")[0] for line in locked.splitlines() if line[:1].isalpha()}
    assert {"pyinstaller", "hatchling", "mcp", "typer", "numpy"} <= names
    assert not {"numba", "pytest", "matplotlib"} & names
