"""Commands as they are typed, in this process: what a process shows besides, one test of each program does."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner

from purser.cli import app, serving


def here(*words: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    done = CliRunner().invoke(app, [*map(str, words)])
    return done.exit_code, done.stdout, done.stderr


async def beside(*words: object) -> tuple[int, str, str]:
    """The same, for a command that asks a server of this loop: where the server logs, it goes on to log, and not to the
    command's standard error, which is closed when the command ends."""
    with patch.object(serving, "configure_logs"):
        return await asyncio.to_thread(here, *words)


async def apart(*words: object) -> tuple[int, str, str]:
    """The same in a process of its own, for a command that listens to signals."""
    purser = Path(sys.executable).with_name("purser")
    process = await asyncio.create_subprocess_exec(purser, *map(str, words), stdin=PIPE, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()
