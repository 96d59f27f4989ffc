"""Completion, as shells and kubectl ask for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
pytestmark = pytest.mark.processes

IN_BASH = """
source <(purser completion bash)
COMP_WORDS=({words}) COMP_CWORD={place}
_purser_completion purser
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
IN_FISH = 'source (purser completion fish | psub); complete -C "{line}"'
IN_ZSH = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'autoload -Uz compinit; compinit -D; source <(purser completion zsh)
tell() {{ zle expand-or-complete; print -r -- "<""$BUFFER>" }}; zle -N tell; bindkey "^I" tell; PS1="set"" up "'
zpty -r z seen '*set up *'
zpty -w -n z $'{line}\t'
zpty -r z seen '*<*>*'
print -r -- $seen
"""
"""The key tells what the line has become, whether it was completed or not, and beside what commands write to the
terminal: a line that is not drawn as expected would be waited for without an end."""

ASKED = [
    ("purser ge", "get"),
    ("purser get gr", "grants"),
    ("purser get gpus --kubec", "--kubeconfig"),
    ("purser get gpus -o j", "json"),
]


def run(*command: str) -> str:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def shell(name: str) -> str:
    """Its path. The gate installs it where it can."""
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


@pytest.mark.gate
@pytest.mark.parametrize(("line", "wanted"), ASKED)
def test_bash_completes(line: str, wanted: str) -> None:
    place = len(line.split()) - 1
    assert run(shell("bash"), "-c", IN_BASH.format(words=line, place=place)).split() == [wanted]


@pytest.mark.gate
@pytest.mark.parametrize(("line", "wanted"), ASKED[1:3])
def test_fish_completes(line: str, wanted: str) -> None:
    assert [each.split("\t")[0] for each in run(shell("fish"), "-c", IN_FISH.format(line=line)).splitlines()] == [
        wanted
    ]


@pytest.mark.gate
@pytest.mark.parametrize(("line", "wanted"), ASKED[1:3])
def test_zsh_completes(line: str, wanted: str) -> None:
    *words, _ = line.split()
    assert f"<{' '.join(words)} {wanted} >" in run(shell("zsh"), "-f", "-c", IN_ZSH.format(line=line))


def test_kubectl_is_answered_in_its_own_words() -> None:
    assert run(str(BIN / "kubectl_complete-purser"), "get", "").split() == [
        "gpus",
        "grants",
        "nodes",
        "namespaces",
        ":4",
    ]
    assert "cordon" not in run(str(BIN / "kubectl_complete-purser"), "").split()
