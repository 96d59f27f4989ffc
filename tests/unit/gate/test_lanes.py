"""Every lane runs to its end, some try a failed test once more, and the table names what is wrong and nothing else."""

import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.conftest import pytest_ignore_collect
from tests.gate.lanes import Lane, Run
from tests.gate.reports import Failure
from tests.gate.runner import SECOND_TRY, LaneResult, Runner
from tests.gate.table import passes, table

pytestmark = pytest.mark.processes

PASSES_ALONE = """
    from pathlib import Path

    def test_passes_alone():
        before = Path("before")
        is_first = not before.exists()
        before.touch()
        assert not is_first
"""

REPOSITORY = Path(__file__).parents[3]
ONE_WORKER = ("-p", "xdist.plugin", "-n1")


def run(tmp_path, tests: dict[str, str], *, second_try: bool = False, timeout_s: float = 60, options=()) -> LaneResult:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in tests.items():
        (tmp_path / f"test_{name}.py").write_text(textwrap.dedent(text))
    plain = ("python", "-m", "pytest", "-q")
    runner = Runner(tmp_path, tmp_path / "reports", {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, options)
    return runner.run(Lane("lab", (Run(plain, timeout_s=timeout_s),), second_try=second_try))


def failed(result: LaneResult) -> list[str]:
    return [failure.name for failure in result.failures]


def test_failed_tests_are_named_with_the_last_lines_of_what_they_say(tmp_path):
    """Without a second try what would pass alone is among them."""
    tests = {"a": "def test_right(): pass\ndef test_wrong(): assert 1 == 2\n", "b": PASSES_ALONE}
    result = run(tmp_path, tests)
    assert (result.passed, failed(result)) == (1, ["test_a::test_wrong", "test_b::test_passes_alone"])
    printed = "\n".join(table([result], {}))
    assert "FAILED in lab: test_a::test_wrong" in printed
    assert "assert 1 == 2" in printed
    assert printed.endswith("1 passed, 2 failed, 0 skipped")


@pytest.mark.gate
def test_a_test_that_passes_alone_is_flaky_and_the_lane_passes(tmp_path):
    result = run(tmp_path, {"a": PASSES_ALONE, "b": "def test_right(): pass"}, second_try=True, options=ONE_WORKER)
    assert (result.passed, failed(result)) == (2, [])
    assert [each.name for each in result.flaky] == ["test_a::test_passes_alone"]
    assert passes([result])
    assert "flaky in lab, it passed alone: test_a::test_passes_alone" in table([result], {})


@pytest.mark.gate
def test_what_fails_twice_is_a_failure(tmp_path):
    tests = {"a": PASSES_ALONE, "b": "def test_wrong(): assert False"}
    result = run(tmp_path, tests, second_try=True)
    assert failed(result) == ["test_b::test_wrong"]
    assert [each.name for each in result.flaky] == ["test_a::test_passes_alone"]
    assert not passes([result])


@pytest.mark.gate
def test_what_failed_in_an_earlier_run_is_not_tried_again(tmp_path):
    run(tmp_path, {"a": "def test_wrong(): assert False"}, second_try=True)
    (tmp_path / "test_a.py").unlink()
    result = run(tmp_path, {"b": PASSES_ALONE}, second_try=True)
    assert failed(result) == []


@pytest.mark.gate
def test_every_mark_is_known_without_the_plugins_that_a_second_try_leaves_out():
    """Otherwise the second try of such a test breaks off, and what is flaky fails the lane."""
    command = [sys.executable, "-m", "pytest", *SECOND_TRY, "--markers"]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"@pytest\.mark\.(\w+)", said))
    used = {
        mark
        for path in (REPOSITORY / "tests").rglob("*.py")
        for mark in re.findall(r"pytest\.mark\.(\w+)", path.read_text())
    }
    assert {"gate", "xdist_group"} <= used
    assert used - known == set()


def test_more_than_three_flaky_tests_fail_the_gate():
    two = LaneResult("lab", 9, 0, (), (Failure("a", ""), Failure("b", "")), 1)
    one, others = replace(two, flaky=two.flaky[:1]), replace(two, name="cluster")
    assert passes([two, one])
    assert not passes([two, others])
    assert "FAILED: 4 tests passed only when they ran alone; at most 3 may." in table([two, others], {})


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path):
    result = run(tmp_path, {"a": "import what_is_not_there", "b": "def test_right(): pass"}, second_try=True)
    assert result.failures
    assert "what_is_not_there" in "\n".join(table([result], {}))


@pytest.mark.gate
def test_a_worker_that_dies_fails_its_test_alone(tmp_path):
    tests = {"a": "import os\ndef test_dies(): os._exit(3)", "b": "def test_right(): pass"}
    result = run(tmp_path, tests, second_try=True, options=ONE_WORKER)
    assert result.passed == 1
    assert result.failures
    assert not passes([result])


@pytest.mark.gate
def test_a_second_try_that_breaks_off_shows_nothing(tmp_path):
    dies_then = PASSES_ALONE.replace("assert not is_first", "assert not is_first\n        import os; os._exit(1)")
    result = run(tmp_path, {"a": dies_then, "b": "def test_wrong(): assert False"}, second_try=True)
    assert "test_b::test_wrong" in failed(result)
    assert result.flaky == ()


@pytest.mark.parametrize("text", ["", "import os\nos._exit(0)", "import pytest\npytest.exit('no more')"])
def test_a_run_without_tests_and_one_that_breaks_off_fail(tmp_path, text):
    result = run(tmp_path, {"a": text}, second_try=True)
    assert not passes([result])


@pytest.mark.gate
def test_what_failed_before_a_run_hung_is_told(tmp_path):
    hangs = "import time\ndef test_wrong(): assert 1 == 2\ndef test_hangs(): time.sleep(1000)"
    result = run(tmp_path, {"a": hangs}, timeout_s=8, options=ONE_WORKER)
    assert "test_a::test_wrong" in failed(result)
    printed = "\n".join(table([result], {}))
    assert "assert 1 == 2" in printed
    assert "did not end within 8 s" in printed


@pytest.mark.gate
def test_a_run_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    result = run(tmp_path, {"a": "import time\ndef test_hangs(): time.sleep(1000)"}, timeout_s=1)
    assert "did not end within 1 s" in "\n".join(table([result], {}))


def test_a_command_that_fails_keeps_back_the_tests_that_need_it_and_no_other_lane(tmp_path):
    runner = Runner(tmp_path, tmp_path / "reports", {})
    needs = Lane("cluster", (Run(("python", "-c", "raise SystemExit('no build')")), Run(("python", "-m", "pytest"))))
    fails, ends = (Run(("python", "-c", f"raise SystemExit({status})")) for status in (1, 0))
    beside = Lane("static", (fails, ends), at_once=2)
    results = [runner.run(needs), runner.run(beside)]
    assert [(result.passed, len(result.failures)) for result in results] == [(0, 1), (1, 1)]


def test_tests_side_by_side_are_counted_together_and_name_their_lines(tmp_path, capsys):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_a.py").write_text("def test_right(): pass\ndef test_wrong(): assert 1 == 2\n")
    (tmp_path / "test_b.py").write_text("def test_right(): pass\n")
    plain = ("python", "-m", "pytest", "-q")
    runner = Runner(tmp_path, tmp_path / "reports", {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    runs = tuple(Run((*plain, f"test_{name}.py"), timeout_s=60) for name in "ab")
    result = runner.run(Lane("unit", runs, at_once=2))
    assert (result.passed, failed(result)) == (2, ["test_a::test_wrong"])
    printed = capsys.readouterr().out
    assert "unit-1 | 1 failed, 1 passed" in printed
    assert "unit-2 | 1 passed" in printed


def test_every_file_is_in_one_part(tmp_path):
    """And of files alone it is asked: a folder is in all."""
    names = [f"test_{number}.py" for number in range(30)]

    def part(number):
        config = SimpleNamespace(rootpath=tmp_path, getoption={"--lane": None, "--part": f"{number}/3"}.get)
        assert pytest_ignore_collect(tmp_path / "folder", config) is None
        return {name for name in names if pytest_ignore_collect(tmp_path / name, config) is None}

    found = [part(number) for number in (1, 2, 3)]
    assert all(found)
    assert sorted(name for each in found for name in each) == sorted(names)


def test_the_table_compares_seconds_with_the_run_before():
    results = [LaneResult("unit", 10, 0, (), (), 61.4)]
    assert table(results, {"unit": 58.0})[1].split() == ["unit", "passed", "10", "0", "0", "0", "61", "58"]


def test_lanes_side_by_side_name_their_lines_and_wait_for_one_another(tmp_path, capsys):
    """Each waits for the other's file: one after the other they would not end."""
    wait = "open(own, 'w').close()\nwhile not os.path.exists(other): time.sleep(0.01)\nprint('met', other)"
    lanes = [
        Lane(own, (Run(("python", "-c", f"import os, time\nown, other = {own!r}, {other!r}\n{wait}"), timeout_s=60),))
        for own, other in (("unit", "lab"), ("lab", "unit"))
    ]
    results = Runner(tmp_path, tmp_path / "reports", {}).run_side_by_side(lanes)
    assert [(result.name, failed(result)) for result in results] == [("unit", []), ("lab", [])]
    printed = capsys.readouterr().out.splitlines()
    assert "unit | met lab" in printed
    assert "lab  | met unit" in printed
