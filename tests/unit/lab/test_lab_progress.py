import io

from purser.lab.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def said(terminal, *stages, after_s):
    progress = Progress(terminal, after_s)
    for stage in stages:
        progress.doing(stage)
        if after_s == 0:
            progress._timer.join()
    progress.done()
    return terminal.getvalue().splitlines()


def test_what_takes_long_is_said_on_a_terminal():
    assert said(Terminal(), "Starting this", "Starting that", after_s=0) == ["Starting this ...", "Starting that ..."]


def test_of_what_is_quick_nothing_is_said():
    assert said(Terminal(), "Starting this", "Starting that", after_s=60) == []


def test_elsewhere_nothing_is_said():
    progress = Progress(file := io.StringIO(), 0)
    progress.doing("Starting this")
    progress.done()
    assert file.getvalue() == ""
