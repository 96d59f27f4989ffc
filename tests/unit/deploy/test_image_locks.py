"""What the image's two lock files pin, and what happens when Debian serves other packages than they name."""

import hashlib
import os
from pathlib import Path

import pytest
from deploy.image import debs, wheels
from deploy.image.saying import ImageError

pytestmark = pytest.mark.processes

APT_GET = """\
#!/bin/sh
echo "$@" >> {log}
for wanted in "$@"; do :; done
case "$*" in *update*) exit 0 ;; esac
case "$wanted" in tool | tool={served}) ;; *) echo "E: Version for $wanted was not found" >&2; exit 100 ;; esac
echo "the package {served}" > tool.deb
"""
DPKG_DEB = """\
#!/bin/sh
case "$*" in *Package) echo tool ;; *Version) echo {served} ;; esac
"""


def digest(version: str) -> str:
    return hashlib.sha256(f"the package {version}\n".encode()).hexdigest()


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose apt serves version 2 of one package; returns the file with what apt was asked."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("apt-get", APT_GET), ("dpkg-deb", DPKG_DEB)):
        (programs / name).write_text(text.format(log=tmp_path / "asked", served="2"))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return tmp_path / "asked"


def test_what_the_lock_names_is_downloaded_once(asked: Path, tmp_path: Path) -> None:
    pin = debs.Pin("tool", "2", digest("2"))
    for _ in range(2):
        [found] = debs.fetch([pin], tmp_path / "cache")
        assert found.path.read_text() == "the package 2\n"
    assert len(asked.read_text().splitlines()) == 1


def test_a_file_that_was_changed_in_the_cache_is_downloaded_again(asked: Path, tmp_path: Path) -> None:
    pin = debs.Pin("tool", "2", digest("2"))
    debs.fetch([pin], tmp_path / "cache")[0].path.write_text("another")
    assert debs.fetch([pin], tmp_path / "cache")[0].path.read_text() == "the package 2\n"


def test_a_version_that_debian_serves_no_more_ends_the_build(asked: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"Version for tool=1 was not found(.|\n)*make image-lock"):
        debs.fetch([debs.Pin("tool", "1", digest("1"))], tmp_path / "cache")
    assert "update" in asked.read_text()  # the machine's package lists may only have been old


def test_or_the_newest_is_taken_and_printed(asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [found] = debs.fetch([debs.Pin("tool", "1", digest("1"))], tmp_path / "cache", newest=True)
    assert (found.pin.version, found.path.read_text()) == ("2", "the package 2\n")
    assert "WARNING: Debian no longer serves tool 1: the image has 2" in capsys.readouterr().out


@pytest.mark.parametrize("newest", [False, True])
def test_the_same_version_with_other_content_is_never_taken(asked: Path, tmp_path: Path, newest: bool) -> None:
    with pytest.raises(ImageError, match=r"tool 2 is .* not .* as debian\.lock says"):
        debs.fetch([debs.Pin("tool", "2", digest("1"))], tmp_path / "cache", newest=newest)


OVERTAKEN = """\
#!/bin/sh
# Lists of yesterday: the server has no other=1 any more, which is found out when tool=2 lies here already.
case "$*" in *update*) touch {there}/updated; exit 0 ;; esac
for wanted in "$@"; do
    case "$wanted" in
        tool=2) [ -e tool.deb ] || echo tool 2 > tool.deb ;;
        other=1) echo "E: Failed to fetch $wanted" >&2; exit 100 ;;
        other) echo other 2 > other.deb ;;
    esac
done
"""
READ = """\
#!/bin/sh
read name version < "$2"
case "$3" in Package) echo $name ;; *) echo $version ;; esac
"""


def test_what_was_downloaded_before_another_package_failed_is_taken(tmp_path: Path, asked: Path) -> None:
    programs = tmp_path / "programs"
    (programs / "apt-get").write_text(OVERTAKEN.format(there=tmp_path))
    (programs / "dpkg-deb").write_text(READ)
    tool = debs.Pin("tool", "2", hashlib.sha256(b"tool 2\n").hexdigest())
    found = debs.fetch([tool, debs.Pin("other", "1", digest("1"))], tmp_path / "cache", newest=True)
    assert [each.path.read_text() for each in found] == ["tool 2\n", "other 2\n"]


def test_another_version_than_was_asked_for_is_not_taken(tmp_path: Path, asked: Path) -> None:
    """Whatever a mirror calls it."""
    (tmp_path / "programs" / "dpkg-deb").write_text(DPKG_DEB.format(served="3"))
    with pytest.raises(ImageError, match=r"tool 3 is .* not 2 .* as debian\.lock says"):
        debs.fetch([debs.Pin("tool", "2", digest("2"))], tmp_path / "cache")


def test_the_lock_names_the_packages_of_the_image() -> None:
    pins = debs.read_lock(debs.LOCK.read_text())
    assert [pin.name for pin in pins] == list(debs.PACKAGES)
    assert all(len(pin.sha256) == 64 for pin in pins)


def test_of_python_the_lock_counts_as_it_is_in_the_image() -> None:
    """Two entries of one name differ by the version of Python; the image's counts, whichever builds it."""
    pins = wheels.read_lock(
        "one==1 ; python_full_version < '3.12' \\\n    --hash=sha256:" + "a" * 64 + "\n    # via two\n"
        "one==2 ; python_full_version >= '3.12' \\\n    --hash=sha256:" + "b" * 64 + "\n"
        "Other_Name==3 ; sys_platform == 'win32' \\\n    --hash=sha256:" + "c" * 64 + "\n"
    )
    assert pins == {"one": wheels.Pin("one", "1", frozenset(["a" * 64]))}


def test_a_requirement_that_no_lock_names_ends_the_build(tmp_path: Path) -> None:
    project = '[project]\ndependencies = ["absent>=1"]\n'
    with pytest.raises(ImageError, match=r"requirements\.lock has no absent"):
        wheels.wanted("", project, [], tmp_path)


@pytest.mark.parametrize(
    ("path", "out"),
    [
        ("usr/share/doc/libc6/copyright", False),
        ("usr/share/doc/libc6/changelog.gz", True),
        ("usr/share/doc/libstdc++6", False),
        ("etc/os-release", False),
        ("etc/profile.d", True),
        ("usr/lib/python3.11/lib-dynload/_curses.cpython-311-x86_64-linux-gnu.so", True),
        ("usr/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so", False),
    ],
)
def test_of_packages_only_what_runs_and_licences_are_taken(path: str, out: bool) -> None:
    assert debs.left_out(path) is out
