"""What the image does not have: a command that needs it says so in a sentence."""

import sys
from collections.abc import Callable

import pytest

from purser.cli import main

Missing = Callable[[str], None]


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Missing:
    """Makes Python not find a package, from there on."""

    def remove(package: str) -> None:
        class Finder:
            @staticmethod
            def find_spec(name: str, *_: object) -> None:
                if name == package:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        for name in [each for each in sys.modules if each == package or each.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])

    return remove


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("purser.lab", ["lab"]),
        ("purser.lab", ["conformance", "device-plugin", "--list"]),
        ("purser.simulator", ["simulate", "--demo"]),
        ("purser.backtest", ["backtest", "--dump=some"]),
    ],
)
def test_a_command_says_that_it_is_not_in_the_image(
    package: str,
    words: list[str],
    missing: Missing,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing(package)
    monkeypatch.setattr(sys, "argv", ["purser", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    [line] = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith(f"purser: {package} is not installed: Purser's image does not include this command")


def test_whatever_else_is_missing_is_an_error_of_the_program(missing: Missing, monkeypatch: pytest.MonkeyPatch) -> None:
    missing("purser.top")
    monkeypatch.setattr(sys, "argv", ["purser", "top"])
    with pytest.raises(ModuleNotFoundError, match=r"purser\.top"):
        main()
