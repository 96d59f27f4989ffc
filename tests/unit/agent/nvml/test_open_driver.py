"""Finding a driver, and saying why there is none."""

import threading
from pathlib import Path

import pytest

from purser.agent.nvml import DriverError, NullDriver, open_driver
from purser.agent.nvml.calls import load_nvml
from purser.agent.nvml.library import LIBRARY, find_library
from purser.core.health.signs import FaultKind


def test_a_library_that_is_not_there_is_a_null_driver_that_names_it(tmp_path: Path) -> None:
    driver = open_driver(library=tmp_path / "nowhere.so")
    assert isinstance(driver, NullDriver)
    assert str(tmp_path / "nowhere.so") in (driver.info().absent or "")
    assert driver.scan() == driver.reopen() == ()


def test_a_file_that_is_no_library_is_a_null_driver(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_text("not ELF")
    assert "invalid ELF header" in (open_driver(library=tmp_path / LIBRARY).info().absent or "") or "too short" in (
        open_driver(library=tmp_path / LIBRARY).info().absent or ""
    )


def test_an_empty_driver_root_is_a_null_driver_that_names_it(tmp_path: Path) -> None:
    assert str(tmp_path) in (open_driver(driver_roots=(tmp_path,)).info().absent or "")


@pytest.mark.parametrize("folder", ["usr/lib64", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"])
def test_the_library_is_found_where_distributions_put_it_under_a_driver_root(tmp_path: Path, folder: str) -> None:
    library = tmp_path / folder / LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    assert find_library((tmp_path,)) == str(library)


def test_without_a_driver_root_the_loader_looks_for_the_library() -> None:
    assert find_library() == "libnvidia-ml.so.1"


def test_a_null_driver_reads_nothing_and_says_why() -> None:
    reading = NullDriver("no driver on this node").read("GPU-0")
    assert reading.fault is not None
    assert reading.fault.kind is FaultKind.GONE
    assert reading.fault.message == "no driver on this node"


def test_closing_a_null_driver_ends_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, waiting, ended = NullDriver("none"), threading.Event(), threading.Event()
    wait_closed = driver._closed.wait

    def wait_long(seconds: float) -> bool:
        assert seconds == 60
        waiting.set()
        return wait_closed(seconds)

    monkeypatch.setattr(driver._closed, "wait", wait_long)

    def wait() -> None:
        assert driver.wait_event(60_000) is None
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert waiting.wait(10)
    assert not ended.is_set()
    driver.close()
    assert ended.wait(10)


def test_a_library_without_any_symbol_of_nvml_does_not_start() -> None:
    driver = open_driver(library="libm.so.6")
    assert isinstance(driver, NullDriver)
    assert "nvmlInit: Function Not Found" in (driver.info().absent or "")


def test_loading_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="cannot be loaded"):
        load_nvml(str(tmp_path / "nowhere.so"))
