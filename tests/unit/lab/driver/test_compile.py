"""Compiling the library: once per content, or not at all."""

from pathlib import Path

import pytest

from purser.lab.driver import DriverKind, SimulatedDriver, compile

pytestmark = pytest.mark.processes

QUICKLY = ("-O0",)

needs_compiler = pytest.mark.skipif(compile.find_compiler() is None, reason="no C compiler on this machine")


@needs_compiler
def test_the_library_is_compiled_once_per_content(tmp_path: Path) -> None:
    first = compile.compiled_library(QUICKLY, cache=tmp_path)
    assert first is not None
    written = first.stat().st_mtime_ns
    assert compile.compiled_library(QUICKLY, cache=tmp_path) == first
    assert first.stat().st_mtime_ns == written
    other = compile.compiled_library((*QUICKLY, "-DPURSER_OLD_DRIVER"), cache=tmp_path)
    assert other not in (None, first)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([first.name, other.name, "compile.lock"])


@needs_compiler
def test_a_source_that_does_not_compile_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int main(")
    monkeypatch.setattr(compile, "SOURCE_DIR", tmp_path)
    assert compile.compiled_library(cache=tmp_path / "cache") is None
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["compile.lock"]


def test_without_a_compiler_there_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compile.compiled_library(cache=tmp_path / "cache") is None


def test_without_a_compiler_a_node_is_simulated_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = SimulatedDriver.create(tmp_path / "node", "node", "t4-4")
    assert node.kind is DriverKind.PYTHON
    driver = node.open()
    assert len(driver.scan()) == 4
    driver.close()
    with pytest.raises(RuntimeError, match="install gcc"):
        SimulatedDriver.create(tmp_path / "other", "node", "t4-4", kind=DriverKind.LIBRARY)


def test_a_cache_that_cannot_be_written_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert compile.compiled_library(cache=tmp_path / "file" / "cache") is None


def test_the_cache_is_where_the_user_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compile.cache_folder() == tmp_path / "purser"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert compile.cache_folder() == tmp_path / "home/.cache/purser"
