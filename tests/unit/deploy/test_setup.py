"""`scripts/setup`: who only wants the lab installs what the lab needs, and nobody twice what is there."""

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from tests.scripts import script

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
LOCKED = script("locked")

PYTHON = f"""#!/bin/sh
case "$*" in
"-m venv"*) shift 2; for folder in "$@"; do :; done; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python" ;;
"-m pip --version") [ -e .venv ] ;;
"-m pip install"*) echo "$@" >>installs; [ -z "${{BROKEN:-}}" ] || exit 1
    case "$*" in *--editable*) : >.venv/bin/purser; chmod +x .venv/bin/purser ;; esac ;;
*) exec {sys.executable} "$@" ;;
esac
"""


IMPORTS = """
import sys
# To Python what is None is not installed.
sys.modules.update(dict.fromkeys(sys.argv[1:]))
import purser.cli.get, purser.cli.lab, purser.lab.cluster, purser.lab.scenario, purser.lab.screen
"""


@pytest.fixture
def setup(tmp_path):
    """Runs the script in a checkout whose Python only writes down what it was to install; returns those lines."""
    for name in ("requirements.lock", "pyproject.toml", "scripts/setup", "scripts/locked.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)

    def run(*arguments, **env):
        log = tmp_path / "installs"
        log.unlink(missing_ok=True)
        command = ["sh", tmp_path / "scripts/setup", *arguments]
        done = subprocess.run(command, env={**os.environ, "PYTHON": str(python), **env}, capture_output=True, text=True)
        assert bool(done.returncode) == bool(env), done.stderr
        return log.read_text().splitlines() if log.exists() else []

    return run


def _sources(installs):
    return [line.rpartition(" ")[2] for line in installs]


def test_the_lab_alone_and_everything_are_each_installed_once_in_whatever_order_they_are_asked_for(setup):
    for_a_lab = setup("lab")
    assert _sources(for_a_lab) == [".venv/lab-requirements.txt", "."]
    assert setup("lab") == []
    everything = setup()
    assert _sources(everything) == ["requirements.lock", "."]
    assert setup() == setup("lab") == []
    assert all("--require-hashes" in line for line in (*for_a_lab, *everything) if not line.endswith("--editable ."))


@pytest.mark.gate
def test_what_failed_half_way_is_made_good_and_what_was_there_counts_no_more(setup, tmp_path):
    setup()
    lock = tmp_path / "requirements.lock"
    before = lock.read_text()
    lock.write_text(before + "# newer\n")
    setup("lab", BROKEN="1")
    lock.write_text(before)
    assert _sources(setup()) == ["requirements.lock", "."]


def test_a_word_that_it_does_not_know_is_refused(setup):
    assert setup("labs", UNKNOWN="1") == []


def test_every_part_comes_by_its_hash():
    found = LOCKED.needed(
        (ROOT / "requirements.lock").read_text(), LOCKED.roots((ROOT / "pyproject.toml").read_text(), "lab")
    )
    assert all("==" in entry and "--hash=sha256:" in entry for entry in found)


def test_the_image_has_what_purser_requires_and_the_extras_that_are_asked_for():
    lock, project = (ROOT / "requirements.lock").read_text(), (ROOT / "pyproject.toml").read_text()

    def names(part, *extras):
        return {entry.partition("==")[0] for entry in LOCKED.needed(lock, LOCKED.roots(project, part, extras))}

    assert {"numpy", "grpcio", "yarl"} < names("image")
    assert names("image", "fast") - names("image") == {"numba", "llvmlite"}
    assert names("build").isdisjoint(names("image"))
    assert names("image") | names("build") | {"editables"} == names("lab")


@pytest.mark.gate
def test_a_lab_starts_with_nothing_else_than_what_its_set_up_installs():
    lock, project = (ROOT / "requirements.lock").read_text(), (ROOT / "pyproject.toml").read_text()
    wanted = {
        "gpu-purser",
        *(entry.partition("==")[0] for entry in LOCKED.needed(lock, LOCKED.roots(project, "lab"))),
    }
    assert wanted.isdisjoint({"numba", "matplotlib", "scipy", "mypy", "pytest", "mkdocs-material", "grpcio-tools"})
    brought = metadata.packages_distributions().items()
    names = {name for name, by in brought if wanted.isdisjoint(each.lower().replace("_", "-") for each in by)}
    assert {"numba", "pytest"} <= names
    subprocess.run([sys.executable, "-c", IMPORTS, *names], check=True)
