"""Options that go together: a parameter of a command that is a group has all of the group's options in its place."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

Command = Callable[..., None]


@dataclass(frozen=True)
class ParameterGroup:
    """What stands for one parameter."""

    parameters: Sequence[inspect.Parameter]
    """As typer reads options from."""
    make: Callable[[dict[str, Any]], Any]
    """What the function gets of the values of these, by name."""


def grouped(function: Command) -> Command:
    """A function as a command: each parameter whose type is a dataclass is a group, and the fields are its options."""
    hints = get_type_hints(function)
    return expanded(function, {name: _group_of(kind) for name, kind in hints.items() if is_dataclass(kind)})


def expanded(function: Command, groups: Mapping[str, ParameterGroup]) -> Command:
    """A function as a command. ``groups``: by parameter."""

    def command(**options: Any) -> None:
        made = {
            name: group.make({each.name: options.pop(each.name) for each in group.parameters})
            for name, group in groups.items()
        }
        function(**made, **options)

    found: list[inspect.Parameter] = []
    for each in inspect.signature(function).parameters.values():
        group = groups.get(each.name)
        found += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)] if group is None else group.parameters
    command.__doc__ = function.__doc__
    command.__annotations__ = {each.name: each.annotation for each in found}
    command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    return command


def _group_of(kind: Any) -> ParameterGroup:
    hints = get_type_hints(kind, include_extras=True)
    parameters = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(kind)
    ]
    return ParameterGroup(parameters, lambda values: kind(**values))
