"""`purser get` where nothing is to be had: one line on standard error, nothing on standard output, an exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

from purser.cli.output import FAILED, MISUSED

KUBECONFIG = """
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
"""


@pytest.mark.parametrize(
    ("text", "says", "code"),
    [
        (None, "cannot read kubeconfig", MISUSED),
        ("{{{", "is not YAML", MISUSED),
        ("a: b", "current-context is not set", MISUSED),
        (KUBECONFIG, "http://127.0.0.1:1 gave no answer: Connection refused", FAILED),
    ],
    ids=["no file", "no YAML", "no context", "nobody listens"],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str | None, says: str, code: int) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    purser = Path(sys.executable).with_name("purser")
    done = subprocess.run([purser, "get", "gpus", "-o", "json", f"--kubeconfig={path}"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("purser: ")
    assert says in line
