"""What is typed to start the command, before any command of it runs."""

import runpy
import sys

import pytest

from purser.cli import kubectl_plugin, main
from purser.cli.arguments import as_kubectl_arguments


def typed(monkeypatch, capsys, start, *words):
    """Exit code and what was printed."""
    monkeypatch.setattr(sys, "argv", list(words))
    with pytest.raises(SystemExit) as ended:
        start()
    return ended.value.code or 0, "".join(capsys.readouterr())


def test_python_m_purser_is_the_command_by_its_name(monkeypatch, capsys):
    def start():
        runpy.run_module("purser", run_name="__main__", alter_sys=True)

    code, text = typed(monkeypatch, capsys, start, "-m", "--help")
    assert (code, text.split("\n")[0]) == (0, "Usage: purser [OPTIONS] COMMAND [ARGS]...")
    assert typed(monkeypatch, capsys, start, "-m", "--help") == typed(monkeypatch, capsys, main, "purser", "--help")


def test_the_plugin_of_kubectl_is_called_as_it_is_typed(monkeypatch, capsys):
    _, text = typed(monkeypatch, capsys, kubectl_plugin, "/somewhere/kubectl-purser", "why", "--help")
    assert text.startswith("Usage: kubectl purser why ")


def test_a_short_option_takes_its_value_after_an_equals_sign(monkeypatch, capsys):
    code, text = typed(monkeypatch, capsys, main, "purser", "version", "-o=json")
    assert (code, text[0]) == (0, "{")
    code, text = typed(monkeypatch, capsys, main, "purser", "version", "-o=jsn")
    assert (code, "'jsn' is not one of" in text) == (2, True)


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["-n=a", "-o=wide", "p"], ["-n", "a", "-o", "wide", "p"]),
        (["-f=-", "--output=json", "-n=", "-o==x"], ["-f", "-", "--output=json", "-n", "", "-o", "=x"]),
        (["conformance", "device-plugin", "./p", "-c=x"], ["conformance", "device-plugin", "./p", "-c=x"]),
        (["a=b", "-", "-=", "-1=2", "-abc=d", "--", "-o=json"], ["a=b", "-", "-=", "-1=2", "-abc=d", "--", "-o=json"]),
    ],
)
def test_other_words_stay_as_they_are(words, read):
    assert as_kubectl_arguments(words) == read
