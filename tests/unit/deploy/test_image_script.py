"""`scripts/image`: which engine builds, and what it is told."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parents[3] / "scripts" / "image"
TOOLS = ("dirname", "git", "sed", "sh")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH without engines."""
    for name in TOOLS:
        found = next(Path(folder, name) for folder in os.environ["PATH"].split(":") if Path(folder, name).exists())
        (tmp_path / name).symlink_to(found)
    return tmp_path


def engine(programs: Path, name: str) -> None:
    """An engine that prints the words it was given, each in a line."""
    (programs / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / name).chmod(0o755)


def run(programs: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment["PATH"] = str(programs)
    return subprocess.run([str(SCRIPT), *arguments], env=environment, capture_output=True, text=True)


def test_the_first_engine_that_is_there_builds_what_is_asked_for(programs: Path) -> None:
    (programs / "docker").symlink_to("/bin/false")  # a client whose daemon does not run
    for name in ("podman", "buildah"):
        engine(programs, name)
    done = run(programs, "--tag=registry.test/purser:1", "--build-arg=EXTRAS=a b")
    words = done.stdout.splitlines()
    assert words[0] == "build"
    assert {"--timestamp=0", "--file=deploy/image/Dockerfile", "--tag=docker.io/library/purser:0.1.0"} < set(words)
    assert words[-4:-1] == ["--tag=registry.test/purser:1", "--build-arg=EXTRAS=a b", "."]
    assert words[-1] == "image: docker.io/library/purser:0.1.0 is built by podman"
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
    assert run(programs, ENGINE="buildah").stdout.splitlines()[-1].endswith("is built by buildah")


def test_without_an_engine_it_says_what_to_install(programs: Path) -> None:
    done = run(programs)
    assert done.returncode == 1
    assert done.stderr == (
        "image: none of docker, podman, buildah is on the PATH and works; install one (Debian, Ubuntu: apt-get install "
        "buildah), or start docker's daemon\n"
    )
