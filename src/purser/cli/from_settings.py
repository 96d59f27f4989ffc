"""Commands whose options are those of a settings type: `purser.options` said on the command line."""

import inspect
import os
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, get_origin

import typer
from typer.core import TyperCommand

from purser.cli.option_groups import ParameterGroup, expanded
from purser.cli.output import MISUSED, fail
from purser.options import REQUIRED, Option, OptionField, default_text, settings_from, settings_of


def settings_command(
    app: typer.Typer,
    name: str,
    settings: str,
    *,
    help: str | None = None,
    only: frozenset[str] | None = None,
    reads_paths: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command whose function takes settings, as its parameter ``settings``, and options of its own.

    ``settings`` names their type, as ``module:class``; it is imported once the command is called, so that
    ``purser --help`` stays quick. ``only``: names of the options that the command has, of those of the type.
    ``reads_paths``: paths that may not be read are wrong usage; else the command reports them itself.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @cache
        def whole() -> Any:
            alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
            alone.command(name, help=help)(_with_options(function, pkgutil.resolve_name(settings), only, reads_paths))
            return typer.main.get_command(alone)

        class Command(TyperCommand):
            def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
                return whole().make_context(info_name, args, parent, **extra)

        def nothing() -> None:
            """Only stands for the command until it is called."""

        app.command(name, cls=Command, help=help or inspect.getdoc(function))(nothing)
        return function

    return add


def _option(of: Option, reads_paths: bool) -> Any:
    """The same for typer, which makes its name of the parameter's."""
    return typer.Option(
        help=f"{of.help} May be repeated." if of.repeated else of.help,
        metavar=of.metavar or None,
        envvar=of.environment or None,
        min=None if of.type_checks else of.minimum,
        max=None if of.type_checks else of.maximum,
        readable=reads_paths,
    )


def _with_options(
    function: Callable[..., None], kind: type, only: frozenset[str] | None, reads_paths: bool
) -> Callable[..., None]:
    """The function, called with settings made of the options that stand in the place of its parameter."""
    asked = (each for each in settings_of(kind) if isinstance(each.option, Option))
    shown = [each for each in asked if only is None or each.name in only]

    def make(options: dict[str, Any]) -> Any:
        given = {each.name: options[_parameter_name(each)] for each in shown}
        try:
            return settings_from(kind, given, os.environ)
        except ValueError as error:
            fail(str(error), MISUSED)

    parameters = [_parameter(each, reads_paths) for each in shown]
    return expanded(function, {"settings": ParameterGroup(parameters, make)})


def _parameter_name(field: OptionField) -> str:
    return field.name.replace("-", "_")


def _parameter(field: OptionField, reads_paths: bool) -> inspect.Parameter:
    of = field.option
    assert isinstance(of, Option)
    kind, default = field.kind, field.default
    if of.repeated:
        (element, *_) = field.kind.__args__
        element = str if get_origin(element) is tuple else element  # what `read` makes of a text
        kind, default = list[element], list(default) or None  # type: ignore[valid-type]
    elif of.read is not None or field.words:
        kind, default = str, default if default is REQUIRED else default_text(default) or None
    return inspect.Parameter(
        _parameter_name(field),
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is REQUIRED else default,
        annotation=Annotated[kind | None if default is None else kind, _option(of, reads_paths)],
    )
