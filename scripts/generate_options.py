"""Writes what follows from the servers' settings types: docs/options.md, and the Helm values' sentences and bounds.

    python scripts/generate_options.py [REPOSITORY]

Of values.schema.json the values that are options are written anew: description, words and bounds. What else a value
must be, such as a pattern, is said in that file itself, as are values that are no options.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from purser.agent.settings import AgentSettings
from purser.cli.options import Context, Kubeconfig, LogLevelOption
from purser.operator.settings import OperatorSettings
from purser.options import Option, OptionField, Variables, default_text, settings_of
from purser.scheduler.settings import SchedulerSettings

REPOSITORY = Path(__file__).parents[1]
SCHEMA = Path("deploy/helm/purser/values.schema.json")
PAGE = Path("docs/options.md")
SERVERS: dict[str, type] = {
    "purser agent": AgentSettings,
    "purser scheduler": SchedulerSettings,
    "purser operator run": OperatorSettings,
}
INTRODUCTION = """\
<!-- Made by scripts/generate_options.py from purser.agent, purser.scheduler and purser.operator: change it there. -->

# Options of the servers

Each server takes its options on the command line, and `--help` shows them. The Helm chart gives them, some from its
values: [the values that depend on your cluster](install.md#what-to-decide) are explained with the installation.

All three have these as well:

"""
ALL_HAVE = {"--kubeconfig": Kubeconfig, "--context": Context, "--log-level": LogLevelOption}


def main(repository: Path) -> None:
    """Write both."""
    for path, text in written(repository).items():
        (repository / path).write_text(text)


def written(repository: Path) -> dict[Path, str]:
    """By path in the repository, whose schema says what is no option's."""
    return {SCHEMA: schema((repository / SCHEMA).read_text()), PAGE: page()}


def page() -> str:
    """The reference, a table for each server."""
    shared = [(f"`{flag}`", hint.__metadata__[0].help) for flag, hint in ALL_HAVE.items()]
    tables = [
        f"## {command}\n\n"
        + _table(("option", "default", "chart value, or variable", "what"), map(_row, settings_of(kind)))
        for command, kind in SERVERS.items()
    ]
    return INTRODUCTION + "\n".join([_table(("option", "what"), shared), *tables])


def schema(text: str) -> str:
    """The chart's schema, with what options say about values."""
    whole = json.loads(text)
    for kind in SERVERS.values():
        for each in settings_of(kind):
            if isinstance(each.option, Option) and each.option.value:
                _describe(_value(whole, each.option.value), each, each.option)
    return _schema_text(whole) + "\n"


def _value(whole: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = whole
    for part in name.split("."):
        found = found["properties"][part]
    return found


def _describe(value: dict[str, Any], setting: OptionField, option: Option) -> None:
    port = setting.path[-1].endswith("_port")
    # A container's port is a number that its Service and probes know.
    value["description"] = option.help.replace("; 0: any free one", "") if port else option.help
    if setting.words:
        value["enum"] = list(setting.words)
    elif setting.kind is bool:
        value["type"] = "boolean"
    elif setting.kind is int:
        bounds = {"minimum": 1 if port else option.minimum, "maximum": option.maximum}
        value |= {"type": "integer"} | {name: bound for name, bound in bounds.items() if bound is not None}


def _schema_text(schema: Any, indent: str = "") -> str:
    """JSON with a line for each value that has none below it."""
    if not isinstance(schema, dict) or "properties" not in schema:
        return json.dumps(schema)
    inner = f"{indent}  "
    lines = [
        f"{inner}{json.dumps(key)}: {_properties_text(value, inner) if key == 'properties' else json.dumps(value)}"
        for key, value in schema.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _properties_text(properties: dict[str, Any], indent: str) -> str:
    inner = f"{indent}  "
    lines = [f"{inner}{json.dumps(key)}: {_schema_text(value, inner)}" for key, value in properties.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _row(setting: OptionField) -> tuple[str, ...]:
    of = setting.option
    if isinstance(of, Variables):
        return "", "", ", ".join(f"`${name}`" for name in of.names), of.help
    flag = f"{setting.flag}`, `--no-{setting.name}" if setting.kind is bool else setting.flag
    default = default_text(setting.default)
    told = [of.value, f"${of.environment}" if of.environment else ""]
    return (
        f"`{flag}`",
        f"`{default}`" if default else "",
        ", ".join(f"`{each}`" for each in told if each),
        _what(setting, of),
    )


def _what(setting: OptionField, option: Option) -> str:
    if setting.words:
        return f"{option.help} One of {', '.join(f'`{word}`' for word in setting.words)}."
    if option.minimum is not None and option.maximum is not None:
        return f"{option.help} From {option.minimum} to {option.maximum}."
    return option.help


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"|{''.join(f' {cell} |' if cell else ' |' for cell in line)}\n" for line in lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
