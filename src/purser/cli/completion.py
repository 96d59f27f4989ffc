"""`purser completion`, and what the shells and kubectl call for it."""

import os
import shlex
import sys
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined] # not in __all__

HELP = """Print a shell completion script for purser's commands and options.

Example: source <(purser completion bash)

Put that line into ~/.bashrc, or source <(purser completion zsh) into ~/.zshrc after compinit. For fish, run purser
completion fish > ~/.config/fish/completions/purser.fish. kubectl completes kubectl purser without
this script if kubectl_complete-purser, which pip installs next to purser, is on your PATH.
"""

_VARIABLE = "_PURSER_COMPLETE"
"""The scripts set it for the command that they ask what may come next, and so does click where nobody does."""

_NO_FILES = 4
"""ShellCompDirectiveNoFileComp of cobra, by which kubectl completes plugins since 1.26."""


class Shell(StrEnum):
    """Shells with a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_BASH_IN_ZSH = "autoload -U +X bashcompinit && bashcompinit"
"""typer's own script for zsh offers no options (0.28)."""


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.", show_default=False)]) -> None:
    """Print the script."""
    if shell is Shell.ZSH:
        print(_BASH_IN_ZSH)
    script_of = Shell.BASH if shell is Shell.ZSH else shell
    print(get_completion_script(prog_name="purser", complete_var=_VARIABLE, shell=script_of.value))


def prepare_completion() -> None:
    """Let the command answer its shell, if a shell asks: typer knows the shells only then."""
    if os.environ.get(_VARIABLE):
        completion_init()


def answer_kubectl(plugin: typer.Typer) -> None:
    """What may come after the words of `kubectl purser ...`, one in each line, as kubectl takes it."""
    words = ["purser", *sys.argv[1:]]
    os.environ |= {
        _VARIABLE: "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    prepare_completion()
    try:
        plugin(prog_name="purser", args=[])
    except SystemExit:
        print(f":{_NO_FILES}")
