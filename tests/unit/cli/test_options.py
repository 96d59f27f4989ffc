"""Options of the servers are those of their settings types."""

import subprocess
import sys
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from purser.agent.host.discovery import DiscoverySettings
from purser.agent.mig.settings import MigWorkerSettings
from purser.agent.settings import AgentSettings
from purser.agent.sharing import config_of
from purser.cli import app
from purser.core.health.policy import XidPolicy
from purser.operator.settings import OperatorSettings
from purser.options import Option, default_text, settings_from, settings_of
from purser.scheduler.settings import SchedulerSettings

pytestmark = pytest.mark.processes

SERVERS: dict[tuple[str, ...], type] = {
    ("agent", "run"): AgentSettings,
    ("scheduler",): SchedulerSettings,
    ("operator", "run"): OperatorSettings,
    ("discover",): DiscoverySettings,
    ("mig-worker",): MigWorkerSettings,
}


def options(command: tuple[str, ...]) -> dict[str, Any]:
    found: Any = typer.main.get_command(app)
    for word in command:
        found = found.commands[word]
    asked = found.make_context("purser", [], resilient_parsing=True)
    return {option: each for each in asked.command.params for option in each.opts}


@pytest.mark.parametrize("command", SERVERS, ids=" ".join)
def test_a_command_has_every_option_of_its_settings_with_its_default_and_sentence(command: tuple[str, ...]) -> None:
    shown = options(command)
    asked = [each for each in settings_of(SERVERS[command]) if isinstance(each.option, Option)]
    assert len(asked) >= 3
    for each in asked:
        option = shown[each.flag]
        assert option.help.startswith(each.option.help)
        assert default_text(option.default) == default_text(each.default), each.flag
        assert option.envvar == (each.option.environment or None)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", SERVERS.values(), ids=lambda kind: kind.__name__)
def test_an_option_with_its_default_changes_nothing(kind: type) -> None:
    """Each default can be typed, and is read as the settings have it."""
    needed = {"node-name": "n", "config": "layouts.yaml"}
    typed = {
        each.name: text
        for each in settings_of(kind)
        if isinstance(each.option, Option) and (each.words or each.option.read) and (text := default_text(each.default))
    }
    assert settings_from(kind, needed, {}) == settings_from(kind, needed | typed, {})


def test_the_words_of_an_enumeration_are_values_of_the_settings() -> None:
    given = {"node-name": "n", "feature-labels": "file"}
    read = settings_from(AgentSettings, given, {"DP_DISABLE_HEALTHCHECKS": "79"})
    assert read == AgentSettings(node_name="n", features=read.features, xid_policy=XidPolicy(disabled={79}))
    assert read.features.outlet.name == "FILE"


def test_what_nvidias_device_plugin_takes_is_kept_apart_by_where_it_was_given() -> None:
    given = {"node-name": "n", "pass-device-specs": False, "fallback-strategies": "named,empty"}
    read = settings_from(AgentSettings, given, {"MIG_STRATEGY": "mixed", "PASS_DEVICE_SPECS": "true"}).sharing
    assert read.flags.given() == {"pass-device-specs": "false"}
    assert read.variables == {"MIG_STRATEGY": "mixed", "PASS_DEVICE_SPECS": "true"}
    assert read.fallbacks == ("named", "empty")
    held = config_of(read).settings
    assert (held.mig_strategy, held.pass_device_specs) == ("mixed", False)


def test_two_options_never_have_one_name() -> None:
    for kind in SERVERS.values():
        names = [each.name for each in settings_of(kind)]
        assert len(set(names)) == len(names)


def test_helps_and_logs_import_no_more_than_they_need() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from purser.cli import app; "
        "[(CliRunner().invoke(app, [*words, '--help']), print(*sys.modules)) for words in ((), ('scheduler',))]; "
        "from purser.cli.serving import LogLevel, configure_logs; configure_logs(LogLevel.INFO); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    of_all, of_the_scheduler, of_logs = map(str.split, done.stdout.splitlines())
    assert {"purser.scheduler", "purser.agent", "purser.operator"} & set(of_all) == set()
    assert "purser.scheduler.settings" in of_the_scheduler
    assert {"numpy", "purser.core.placement", "purser.simulator"} & set(of_the_scheduler) == set()
    assert "structlog" in of_logs
    assert "rich" not in of_logs, "structlog is to find it missing: it is 3 MiB of an agent's memory"


def test_an_option_that_is_left_out_of_a_command_is_refused() -> None:
    done = CliRunner().invoke(app, ["operator", "plan", "--identity=me"])
    assert done.exit_code == 2
    assert "--identity" in done.output
