"""tests/per_file.py: what a run that collects late says is what any other run says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

CONFTEST = """
import pytest
from tests.conftest import garbage

@pytest.fixture(scope="session")
def once(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp().parent
    assert not (folder / "once").exists(), "set up twice"
    (folder / "once").touch()
"""
FILES = {
    "conftest.py": CONFTEST,
    "test_a.py": "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_of(once, n):\n    assert n == 1\n",
    "below/test_b.py": "def test_that(once):\n    pass\n",
    "below/test_broken.py": "import what_is_not_there\n",
    "below/test_leaves.py": "import socket\ndef test_leaves():\n    of = [socket.socket()]\n    of += [of]\n",
    "below/test_left_out.py": "import pytest\npytestmark = pytest.mark.gate\ndef test_long():\n    assert False\n",
}


@pytest.mark.gate
def test_all_is_run_and_reported_and_what_lasts_a_session_is_set_up_once(tmp_path):
    for name, text in FILES.items():
        (tmp_path / "suite" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "suite" / name).write_text(text)
    late = ["-p", "tests.per_file", "-n", "1", "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", "-c", REPOSITORY / "pyproject.toml", "--rootdir", tmp_path, *late]
    command += ["-m", "not gate", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/base/run", tmp_path / "suite"]
    (tmp_path / "base").mkdir()
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert re.search(r"^=+ 1 failed, 3 passed, 2 errors in", ended.stdout, re.MULTILINE), ended.stdout
    assert "test_a.py::test_of[2]" in ended.stdout
    assert re.search(r"ERROR at teardown of test_leaves .*PytestUnraisable", ended.stdout, re.DOTALL)
    assert "No module named 'what_is_not_there'" in ended.stdout


@pytest.mark.gate
def test_a_test_that_hangs_ends_its_process_with_its_stack_shown(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_hangs.py").write_text("import time\ndef test_that_hangs():\n    time.sleep(100)\n")
    command = [sys.executable, "-m", "pytest", "-c", REPOSITORY / "pyproject.toml", "--rootdir", tmp_path]
    command += ["--timeout=1", "-n", "1", "--max-worker-restart=0", "-p", "no:cacheprovider", tmp_path]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 1
    assert "in test_that_hangs" in ended.stderr
