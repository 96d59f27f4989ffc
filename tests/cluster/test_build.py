"""Which release is built, and how the build finds Debian's sources: from the package lists the machine has already."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.tiers import Tier

from .kubernetes import build, modules, releases
from .kubernetes.apt import source_lines, source_stanzas
from .kubernetes.progress import BuildError

STANZAS = """\
Types: deb
# a comment
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.invalid/other
Suites: bookworm
Components: stable

Types: deb
Enabled: no
URIs: http://mirror.invalid/off
Suites: bookworm
Components: main
"""


def test_a_debian_stanza_becomes_a_source_stanza_and_keeps_its_key() -> None:
    stanza = source_stanzas(STANZAS, "bookworm")
    assert "Types: deb-src\n" in stanza
    assert "URIs: http://mirror.invalid/debian\n" in stanza
    assert "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" in stanza


def test_other_vendors_and_disabled_stanzas_are_left_out() -> None:
    stanzas = source_stanzas(STANZAS, "bookworm")
    assert stanzas.count("Types:") == 1
    assert "other" not in stanzas and "/off" not in stanzas


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deb http://mirror.invalid/debian bookworm main", "deb-src http://mirror.invalid/debian bookworm main\n"),
        (
            "deb [signed-by=/k.gpg] http://mirror.invalid/debian bookworm-updates main contrib",
            "deb-src [signed-by=/k.gpg] http://mirror.invalid/debian bookworm-updates main contrib\n",
        ),
        ("deb http://mirror.invalid/docker bookworm stable", ""),
        ("# deb http://mirror.invalid/debian bookworm main", ""),
        ("deb-src http://mirror.invalid/debian bookworm main", ""),
    ],
    ids=["plain", "with options", "another vendor", "commented out", "a source line already"],
)
def test_one_line_entries(line: str, expected: str) -> None:
    assert source_lines(line, "bookworm") == expected


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for version in ("1.20.2", "1.32.9", "1.32.13"):
        releases.folder("kubernetes", version).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "release"),
    [
        ("1.20.2", "1.20.2"),
        ("1.33.4", "1.33.4"),
        ("v1.33.4", "1.33.4"),
        ("1.32.x", "1.32.13"),  # of those that were built
        ("1.31.x", "1.31.x"),  # the module proxy is to be asked
    ],
)
def test_a_release_is_chosen(cache: Path, monkeypatch: pytest.MonkeyPatch, asked: str, release: str) -> None:
    monkeypatch.setenv("KUBERNETES", asked)
    assert releases.wanted() == release


@pytest.mark.parametrize("asked", ["", "1.{}.x"])
def test_by_default_and_of_its_minor_version_the_pinned_release_is_chosen(
    cache: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    pinned = releases.pinned("kubernetes")
    minor = releases.minor_of(pinned)
    monkeypatch.setenv("KUBERNETES", asked.format(minor))
    assert releases.wanted() == f"1.{minor}.x", "none is there"
    other = f"1.{minor}.1"
    releases.folder("kubernetes", other).mkdir()
    assert releases.wanted() == other, "what was served in its place"
    releases.folder("kubernetes", pinned).mkdir()
    assert releases.wanted() == pinned


@pytest.mark.parametrize("name", [each for each in releases.PINNED if each != "kubernetes"])
def test_where_a_pinned_release_is_not_served_the_newest_that_is_takes_its_place(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    pinned = releases.pinned(name)
    minor = releases.minor_version(pinned)
    line = minor.removesuffix(".x")
    other = f"{line}.{1 if pinned.endswith('.0') else 0}"
    served = {pinned, other}

    def own_sources(folder: Path) -> set[str]:
        return {each.name for each in folder.glob("*.go")}

    def go(arguments: Sequence[str], folder: Path) -> str:
        if "-versions" in arguments:
            return f"{releases.PINNED[name]} v0.0.9 v{other} v{line}.9-rc.1 v{pinned}"
        assert own_sources(folder) == own_sources(releases.module_folder(name))
        text = (folder / "go.mod").read_text()
        if any(f"\nrequire {releases.PINNED[name]} v{each}\n" in text for each in served):
            return ""
        raise BuildError("go list ended with 1:\n404 Not Found")

    monkeypatch.setattr(modules, "_require_go", lambda: None)
    monkeypatch.setattr(modules, "_go", go)
    assert build.to_build(name, minor) == pinned
    served.remove(pinned)
    assert build.to_build(name, minor) == other
    assert f"does not serve {name} {pinned}: the tests run on {other}" in capsys.readouterr().out
    assert releases.to_run(name, minor) == minor, "none is there"
    releases.folder(name, other).mkdir()
    assert releases.to_run(name, minor) == other
    served.clear()
    with pytest.raises(BuildError, match=f"serves no release of {name}"):
        build.to_build(name, minor)


def test_where_the_pinned_kubernetes_is_not_served_the_newest_that_is_gets_built(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = releases.pinned("kubernetes")
    minor = releases.minor_version(pinned)
    other = minor.replace("x", "1")
    monkeypatch.setattr(modules, "newest", lambda name, release, programs: other)
    for served, release in ((True, pinned), (False, other)):
        monkeypatch.setattr(modules, "is_served", lambda name, programs, served=served: served)
        assert build.to_build("kubernetes", minor) == release
    assert f"does not serve kubernetes {pinned}: the tests run on {other}" in capsys.readouterr().out


@pytest.mark.parametrize("asked", ["1.36", "latest", "2.0.0", "1.36.3-rc.1", "1.36.3 "])
def test_no_release_is_an_error_that_says_what_to_write(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv("KUBERNETES", asked)
    with pytest.raises(releases.ReleaseError, match="write a release, as 1"):
        releases.wanted()


def test_what_runs_beside_a_release_is_of_its_time(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "TIER", Tier.GATE)
    assert list(releases.folders("1.20.2")) == ["kubernetes"]
    assert list(releases.folders("1.32.13")) == ["kubernetes", "etcd", "containerd", "helm", "registry"]
    assert list(releases.folders(releases.pinned("kubernetes"))) == [
        "kubernetes",
        "etcd",
        "containerd",
        "helm",
        "registry",
        *releases.NEIGHBOURS,
    ]


@pytest.mark.parametrize("name", (*releases.NEIGHBOURS, *releases.LONG_NEIGHBOURS))
def test_neighbours_are_built_of_the_packages_that_kubernetes_is_built_of(name: str) -> None:
    def replaced(module: str) -> set[str]:
        lines = (releases.module_folder(module) / "go.mod").read_text().splitlines()
        return {line.strip() for line in lines if " => k8s.io/" in line}

    assert replaced(name) == replaced("kubernetes")
