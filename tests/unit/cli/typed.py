"""Commands as they are typed, in this process: what a process shows besides, one test of each program does."""

import asyncio

from typer.testing import CliRunner

from purser.cli import app


def here(*words: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    done = CliRunner().invoke(app, [*map(str, words)])
    return done.exit_code, done.stdout, done.stderr


async def beside(*words: object) -> tuple[int, str, str]:
    """The same, for a command that asks a server of this loop."""
    return await asyncio.to_thread(here, *words)
