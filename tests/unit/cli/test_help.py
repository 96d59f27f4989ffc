"""Help shows how a command is typed and what its exit codes are."""

import pytest
from typer.testing import CliRunner

from purser.cli import app


@pytest.mark.parametrize(
    "command",
    [
        "agent run",
        "agent check",
        "scheduler",
        "discover",
        "mig-worker",
        "clean-up",
        "get",
        "get grants",
        "webhook manifest",
    ],
    ids=lambda command: command,
)
def test_help_has_an_example_and_exit_codes(command: str) -> None:
    text = " ".join(CliRunner().invoke(app, [*command.split(), "--help"]).stdout.split())
    assert f"Example: purser {command} " in text
    assert "Exit code: 0 " in text
    assert "; 2 wrong usage" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--mode", "mig"), "--mode is mig: give shared or whole"),
        (("--device-list-strategy", "cdi"), "option --device-list-strategy is cdi: give envvar or volume-mounts or"),
        (("--slots", "0"), "slots is 0: give a number from 1 to 1000"),
        (("--kubeconfig", "/nowhere"), "cannot read kubeconfig /nowhere"),
    ],
    ids=["mode", "device list", "slots", "kubeconfig"],
)
def test_an_agent_with_malformed_options_ends_with_the_code_of_wrong_usage(words: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["agent", "run", "--node-name=n", *words])
    assert done.exit_code == 2
    assert says in done.output
