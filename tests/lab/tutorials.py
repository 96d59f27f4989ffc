"""A tutorial, followed step by step by a shell: what its commands print is what the page shows of it."""

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tests import waiting

ROOT = Path(__file__).parents[2]
ORDER = ("first-share", "first-lost-gpu", "first-why", "first-upgrade", "first-policy")
STARTS = ("make ", "export ", "purser lab --")
"""Commands that bring the reader where whoever follows the page is: Purser is installed, a lab runs."""
CHANGES = r"kubectl (apply|delete|replace|scale|wait)|purser (lab|simulate)|sed "
"""Commands that are not given twice. Others are given again until they print what the page shows."""
VARIES = (
    (r"\b(halves-\w+)-\w+", r"\1-POD"),
    (r"\b(\d+m)?\d+s\b", "AGE"),
    (r"^(\S+) \d (Tesla T4|NVIDIA A100)", r"\1 GPU \2"),  # which GPU it is, where several are as good
    (r"^([a-z]+( [\d.]+){6,7}) \d+$", r"\1 PODS/S"),
)
"""Of lines whose blanks are one each: what another run prints in another way."""


@dataclass(frozen=True)
class Block:
    """Commands, and what the page shows of what they print."""

    heading: str
    commands: tuple[str, ...]
    shown: tuple[str, ...]


def blocks(name: str) -> list[Block]:
    """Those of a page."""
    found = []
    for section in re.split(r"^## ", (ROOT / "docs" / f"{name}.md").read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        for part in re.split(r"^```console\n", text, flags=re.MULTILINE)[1:]:
            console, _, rest = part.partition("```")
            commands = tuple(line[2:] for line in console.splitlines())
            shown = "".join(re.findall(r"```text\n(.*?)```", rest, re.DOTALL))
            found.append(Block(heading, commands, tuple(shown.splitlines())))
    return found


class Reader:
    """Somebody with a shell in a folder, which has the examples of a checkout."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "KUBECONFIG": str(kubeconfig),
        }
        if not (folder / "examples").exists():
            (folder / "examples").symlink_to(ROOT / "examples")

    async def follow(self, name: str, until_command: str = "") -> None:
        """Give a page's commands, to the first that begins so, and see that they print what the page shows."""
        for block in blocks(name):
            said = ""
            for command in block.commands:
                if not command.startswith(STARTS):
                    said += await self.given(command)
                if until_command and command.startswith(until_command):
                    return
            await self._see(block, said)
        assert not until_command, f"{name} lacks {until_command}"

    async def _see(self, block: Block, said: str) -> None:
        again = [each for each in block.commands if not re.match(CHANGES, each)]
        while missing := unlike(block.shown, said):
            assert again and not waiting.is_over(), f"{block.heading}: nothing prints {missing}, but\n{said}"
            said = "".join([await self.given(each) for each in again])

    async def given(self, command: str) -> str:
        """What it prints, on both streams."""
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", command),
            cwd=self._folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, (command, out.decode())
        return out.decode()


def unlike(shown: tuple[str, ...], said: str) -> list[str]:
    """The lines of a page that no other line of an output has in it, each of them once."""
    there = [_plain(line) for line in said.splitlines()]
    missing = []
    for line in map(_plain, shown):
        if found := [each for each in there if line in each]:
            there.remove(found[0])
        else:
            missing.append(line)
    return missing


def _plain(line: str) -> str:
    line = " ".join(line.split())
    for pattern, instead in VARIES:
        line = re.sub(pattern, instead, line)
    return line
