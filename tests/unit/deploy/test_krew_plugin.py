"""What krew reads of the plugin; that it installs and runs is tried by hand (docs/why.md says how it is made)."""

from tests.scripts import SCRIPTS, script

KREW, LOCKED = script("krew_plugin"), script("locked")
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
    project, lock = ((SCRIPTS.parent / name).read_text() for name in ("pyproject.toml", "requirements.lock"))
    names = {entry.partition("==")[0] for entry in LOCKED.needed(lock, LOCKED.roots(project, "plugin", ["mcp"]))}
    assert {"pyinstaller", "hatchling", "mcp", "typer", "numpy"} <= names
    assert not {"numba", "pytest", "matplotlib"} & names
