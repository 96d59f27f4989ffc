"""`scripts/image`: which engine builds, what it is told, and the bill of materials."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "image"
TOOLS = ("dirname", "git", "mkdir", "mktemp", "rm", "sed", "sh")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH without engines, and without syft."""
    for name in TOOLS:
        found = next(Path(folder, name) for folder in os.environ["PATH"].split(":") if Path(folder, name).exists())
        (tmp_path / name).symlink_to(found)
    return tmp_path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The script in a folder of its own, which it may write to."""
    script = tmp_path / "checkout" / "scripts" / "image"
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    shutil.copy(ROOT / "pyproject.toml", script.parents[1])
    return script


def engine(programs: Path, name: str) -> None:
    """An engine that prints the words it was given, each in a line."""
    (programs / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / name).chmod(0o755)


def run(programs: Path, *arguments: str, script: Path = SCRIPT, **environment: str) -> subprocess.CompletedProcess[str]:
    environment["PATH"] = str(programs)
    return subprocess.run([str(script), *arguments], env=environment, capture_output=True, text=True)


def test_the_first_engine_that_is_there_builds_what_is_asked_for(programs: Path) -> None:
    (programs / "docker").symlink_to("/bin/false")  # a client whose daemon does not run
    for name in ("podman", "buildah"):
        engine(programs, name)
    done = run(programs, "--tag=registry.test/purser:1", "--build-arg=EXTRAS=a b")
    words = done.stdout.splitlines()
    assert words[0] == "build"
    assert {"--timestamp=0", "--file=deploy/image/Dockerfile", "--tag=docker.io/library/purser:0.1.0"} < set(words)
    assert words[-5:-2] == ["--tag=registry.test/purser:1", "--build-arg=EXTRAS=a b", "."]
    assert words[-2] == "image: docker.io/library/purser:0.1.0 is built by podman"
    assert words[-1].startswith("image: no bill of materials: syft is not on the PATH")
    revision, created = (next(each for each in words if f".{name}=" in each) for name in ("revision", "created"))
    assert revision.startswith("--label=org.opencontainers.image.revision=")
    assert created.endswith("Z")


def test_docker_is_told_in_its_own_words_to_set_no_times(programs: Path) -> None:
    engine(programs, "docker")
    words = run(programs).stdout.splitlines()
    assert "--build-arg=SOURCE_DATE_EPOCH=0" in words
    assert "--timestamp=0" not in words


def test_an_engine_may_be_named(programs: Path) -> None:
    for name in ("docker", "buildah"):
        engine(programs, name)
    assert run(programs, ENGINE="buildah").stdout.splitlines()[-2].endswith("is built by buildah")


def test_without_an_engine_it_says_what_to_install(programs: Path) -> None:
    done = run(programs)
    assert done.returncode == 1
    assert done.stderr == (
        "image: none of docker, podman, buildah is on the PATH and works; install one (Debian, Ubuntu: apt-get install "
        "buildah), or start docker's daemon\n"
    )


@pytest.mark.parametrize(
    ("name", "verb", "option"),
    [("docker", "save", "--output={}"), ("podman", "save", "--output={}"), ("buildah", "push", "docker-archive:{}:{}")],
)
def test_syft_reads_the_image_from_an_archive_of_the_engines(
    programs: Path, copy: Path, name: str, verb: str, option: str
) -> None:
    for each in (name, "syft"):
        engine(programs, each)
    words = run(programs, script=copy).stdout.splitlines()
    written = words.index(f"image: docker.io/library/purser:0.1.0 is built by {name}") + 1
    read = words.index("scan")
    archive = Path(words[read + 1].removeprefix("docker-archive:"))
    assert words[written] == verb
    assert option.format(archive, "docker.io/library/purser:0.1.0") in words[written:read]
    assert not archive.parent.exists()
    assert "--output=spdx-json=dist/purser-0.1.0.spdx.json" in words[read:]
    assert words[-1] == "image: its bill of materials is dist/purser-0.1.0.spdx.json"
    assert (copy.parents[1] / "dist").is_dir()


def test_an_image_whose_bill_of_materials_fails_is_an_error(programs: Path, copy: Path) -> None:
    engine(programs, "docker")
    (programs / "syft").symlink_to("/bin/false")
    done = run(programs, script=copy)
    assert done.returncode == 1
    assert "is built by docker" in done.stdout
    assert "bill of materials is" not in done.stdout
