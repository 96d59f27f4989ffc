"""Writes what follows from the servers' settings types: docs/options.md, and what the chart says of its values.

    python scripts/generate_options.py [REPOSITORY]

Of the chart's values, those that are options are overwritten: in values.schema.json the description, allowed words,
bounds and patterns, in values.yaml the comment. Everything else is maintained in these files: other patterns, defaults
(a test compares them with the servers'), and values that are not options.
"""

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from purser.agent.host.discovery import DiscoverySettings
from purser.agent.mig.settings import MigWorkerSettings
from purser.agent.settings import AgentSettings
from purser.cli.options import Context, Kubeconfig, LogLevelOption
from purser.operator.settings import OperatorSettings
from purser.options import Option, OptionField, Variables, default_text, settings_of
from purser.scheduler.settings import SchedulerSettings

REPOSITORY = Path(__file__).parents[1]
SCHEMA = Path("deploy/helm/purser/values.schema.json")
VALUES = Path("deploy/helm/purser/values.yaml")
VALUES_WIDTH = 150
PAGE = Path("docs/options.md")
SERVERS: dict[str, type] = {
    "purser agent run": AgentSettings,
    "purser scheduler": SchedulerSettings,
    "purser operator run": OperatorSettings,
    "purser discover": DiscoverySettings,
    "purser mig-worker": MigWorkerSettings,
}
INTRODUCTION = """\
<!-- Made by scripts/generate_options.py from purser.agent, purser.scheduler and purser.operator: change it there. -->

# Options of the servers

This page lists the options of scheduler, agent and operator. Each takes them on the command line, and `--help` shows
them. The Helm chart gives them, some from its
values: [the values that depend on your cluster](install.md#what-to-decide) are explained with the installation.
`purser discover` and `purser mig-worker` run on GPU nodes, with the options that the operator gives them.

All of them have these as well:

"""
ALL_HAVE = {"--kubeconfig": Kubeconfig, "--context": Context, "--log-level": LogLevelOption}


def main(repository: Path) -> None:
    """Write all of it."""
    for path, text in written(repository).items():
        (repository / path).write_text(text)


def written(repository: Path) -> dict[Path, str]:
    """By path in the repository, whose chart says what is no option's."""
    made = {SCHEMA: schema, VALUES: values}
    return {path: make((repository / path).read_text()) for path, make in made.items()} | {PAGE: page()}


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
    for each, option in _in_the_chart():
        _describe(_value(whole, option.value), each, option)
    return _schema_text(whole) + "\n"


def values(text: str) -> str:
    """The chart's values, with what options say about them as comments."""
    lines = text.splitlines()
    root = yaml.compose(text)
    found = {_line(root, option.value.split(".")): _sentence(each, option) for each, option in _in_the_chart()}
    for line, sentence in sorted(found.items(), reverse=True):
        start, indent = line, lines[line][: -len(lines[line].lstrip())]
        while lines[start - 1].lstrip().startswith("#"):
            start -= 1
        lines[start:line] = [
            f"{indent}# {each}" for each in textwrap.wrap(sentence, VALUES_WIDTH - len(indent), break_on_hyphens=False)
        ]
    return "\n".join(lines) + "\n"


def _in_the_chart() -> Iterator[tuple[OptionField, Option]]:
    for kind in SERVERS.values():
        for each in settings_of(kind):
            if isinstance(each.option, Option) and each.option.value:
                yield each, each.option


def _line(node: yaml.Node | None, path: Sequence[str]) -> int:
    """Where the key stands, from 0."""
    assert isinstance(node, yaml.MappingNode)
    key, below = next((key, value) for key, value in node.value if key.value == path[0])
    return _line(below, path[1:]) if path[1:] else int(key.start_mark.line)


def _sentence(field: OptionField, option: Option) -> str:
    """A container's port is a number that its Service and probes know."""
    return option.help.replace("; 0 picks a free one", "") if _is_port(field) else option.help


def _is_port(field: OptionField) -> bool:
    return field.path[-1].endswith("_port")


def _value(whole: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = whole
    for part in name.split("."):
        found = found["properties"][part]
    return found


def _describe(value: dict[str, Any], field: OptionField, option: Option) -> None:
    value["description"] = _sentence(field, option)
    if field.words:
        (value["items"] if option.repeated else value)["enum"] = list(field.words)
    elif field.kind is bool:
        value["type"] = "boolean"
    elif field.kind is int:
        bounds = {"minimum": 1 if _is_port(field) else option.minimum, "maximum": option.maximum}
        value |= {"type": "integer"} | {name: bound for name, bound in bounds.items() if bound is not None}
    if option.pattern:
        value["pattern"] = option.pattern


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


def _row(field: OptionField) -> tuple[str, ...]:
    of = field.option
    if isinstance(of, Variables):
        return "", "", ", ".join(f"`${name}`" for name in of.names), of.help
    flag = f"{field.flag}`, `--no-{field.name}" if field.kind is bool else field.flag
    default = default_text(field.default)
    told = [of.value, f"${of.environment}" if of.environment else ""]
    return (
        f"`{flag}`",
        f"`{default}`" if default else "",
        ", ".join(f"`{each}`" for each in told if each),
        _what(field, of),
    )


def _what(field: OptionField, option: Option) -> str:
    if field.words:
        return f"{option.help} One of {', '.join(f'`{word}`' for word in field.words)}."
    if option.minimum is not None and option.maximum is not None:
        return f"{option.help} From {option.minimum} to {option.maximum}."
    return option.help


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"|{''.join(f' {cell} |' if cell else ' |' for cell in line)}\n" for line in lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
