"""`purser get` where nothing is to be had: one line on standard error, nothing on standard output, an exit code."""

from pathlib import Path

import pytest
from tests.unit.cli.typed import here

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
        ("{{{", "invalid YAML", MISUSED),
        ("a: b", "current-context is not set", MISUSED),
        (
            KUBECONFIG,
            "http://127.0.0.1:1 cannot be reached: Connection refused (GET /api/v1/nodes). Check server",
            FAILED,
        ),
    ],
    ids=["no file", "no YAML", "no context", "nobody listens"],
)
def test_an_error_is_one_line(tmp_path: Path, text: str | None, says: str, code: int) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    found, out, err = here("get", "gpus", "-o", "json", f"--kubeconfig={path}")
    assert (found, out) == (code, "")
    [line] = err.splitlines()
    assert line.startswith("purser: ")
    assert says in line
