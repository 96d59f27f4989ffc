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


def test_long_steps_are_printed_on_a_terminal():
    assert said(Terminal(), "Starting this", "Starting that", after_s=0) == ["Starting this ...", "Starting that ..."]


def test_nothing_is_printed_of_quick_steps():
    assert said(Terminal(), "Starting this", "Starting that", after_s=60) == []


def test_nothing_is_printed_elsewhere():
    progress = Progress(file := io.StringIO(), 0)
    progress.doing("Starting this")
    progress.done()
    assert file.getvalue() == ""
