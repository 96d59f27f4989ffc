"""What every long-running command shares: logs, signals, exit codes."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

import typer

from purser.cli.output import MISUSED, fail, os_error_text


class LogLevel(StrEnum):
    """Value of ``--log-level``."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure_logs(level: LogLevel) -> None:
    """Log to standard error: coloured lines on a terminal, one JSON object a line elsewhere.

    Servers call it before they import anything that logs.
    """
    with _hide_package("rich"):  # structlog would import it, 3 MiB of memory, for tracebacks that are not used here
        import structlog

    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.value.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),  # no logger is cached: this can be undone
    )


@contextmanager
def _hide_package(package: str) -> Iterator[None]:
    """Let a package appear as not installed; one that is imported already stays so."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


def serve(run: Callable[[asyncio.Event], Awaitable[None]], on_hangup: Callable[[], None] | None = None) -> None:
    """Run a component until SIGTERM or SIGINT asks it to stop; SIGHUP calls ``on_hangup``.

    Errors that say what is wrong and what to do end in one line, not in a traceback: exit code 2 where an option or a
    kubeconfig is wrong, 1 for all others.
    """
    from purser.kube import ConfigError, KubeError

    try:
        asyncio.run(_run_until_signalled(run, on_hangup))
    except ConfigError as error:
        fail(str(error), MISUSED)
    except KubeError as error:
        fail(str(error))
    except OSError as error:
        fail(os_error_text(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _run_until_signalled(
    run: Callable[[asyncio.Event], Awaitable[None]], on_hangup: Callable[[], None] | None
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if on_hangup is not None:
        loop.add_signal_handler(signal.SIGHUP, on_hangup)
    await run(stop)
