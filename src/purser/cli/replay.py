"""`purser replay`: the decisions of a decision log, made again."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from purser.cli.output import FAILED, MISUSED, Column, DocumentFormat, OutputFormat, dump, fail, print_table
from purser.cli.progress_bars import progress_bars

if TYPE_CHECKING:
    from rich.progress import Progress

    from purser.core.decisions import DecisionDifference, Outcome

HELP = """Repeat the decisions in a decision log, and show which decisions differ.

LOG is a file written by purser simulate --decision-log or by a scheduler with --decision-log-folder, or that folder,
whose *.log files are read in order. Each file is replayed separately. Without --policy, every decision is repeated from
its logged inputs and must be exactly the same: a difference means that Purser or the log has changed. With --policy,
the command shows what another policy would have decided, and why, in the state that the logged decisions led to. Pods
that specify a policy keep that policy.

Exit code: 0 all decisions are the same; 1 some decisions differ; 2 wrong usage, or a log that cannot be read
completely.

\b
Examples:
  purser replay demo.log
  purser replay demo.log --policy best-fit
  purser replay demo.log --policy fragmentation -o json --show 1000
  purser replay /var/log/purser
"""

_READS_PER_LOOK = 4096
"""Records between two looks at the progress."""


def replay(
    log: Annotated[
        list[Path], typer.Argument(help="Decision log files, or folders with decision log files.", metavar="LOG...")
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            help="Decide with this policy instead of the log's. Policies have the same names as in purser simulate."
        ),
    ] = None,
    show: Annotated[
        int, typer.Option(min=0, help="Maximum number of differences to print. All differences are counted.")
    ] = 20,
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")] = OutputFormat.TABLE,
) -> None:
    """Replay, print."""
    from purser.cli.decision_logs import in_folders
    from purser.cli.kernels import choose_kernels
    from purser.core.decisions import Replayer

    files = in_folders(log, "LOG")
    choose_kernels()
    try:
        replayer = Replayer(policy)
    except ValueError as error:
        fail(str(error), MISUSED)
    shown: list[DecisionDifference] = []
    different, unreadable = 0, list[str]()
    try:
        for found in _differences(files, replayer, unreadable):
            different += 1
            if len(shown) < show:
                shown.append(found)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(_document(replayer.decisions, different, shown, unreadable), DocumentFormat(output.value))
    elif replayer.decisions or not unreadable:
        _print(replayer.decisions, different, shown, output, policy)
    for sentence in unreadable:
        print(f"purser: {sentence}", file=sys.stderr)
    raise typer.Exit(MISUSED if unreadable else FAILED if different else 0)


def _differences(paths: "Sequence[Path]", replayer: Any, unreadable: list[str]) -> "Iterator[DecisionDifference]":
    """Of all files; ``unreadable`` gets a sentence for each that cannot be read to its end."""
    from purser.core.decisions import DecisionLogError, Reader

    with progress_bars() as bars:
        bytes_read = _BytesRead(bars, paths)
        for path in paths:
            try:
                with path.open("rb") as file:
                    reader = Reader(bytes_read.counted(file))
                    for record in reader:
                        difference = replayer.take(reader, record)
                        if difference is not None:
                            yield difference
            except DecisionLogError as error:
                unreadable.append(f"{path}: {error}")
            except OSError as error:
                unreadable.append(f"cannot read {path}: {error.strerror}")


class _BytesRead:
    """Of all files together, as a bar."""

    def __init__(self, bars: "Progress", paths: "Sequence[Path]") -> None:
        self._bars = bars
        self._bar = bars.add_task("replay", total=sum(map(_size, paths)))
        self._reads = self._bytes = 0

    def counted(self, file: BinaryIO) -> Any:
        """The file's ``read``, which moves the bar."""

        def read(size: int) -> bytes:
            found = file.read(size)
            self._reads, self._bytes = self._reads + 1, self._bytes + len(found)
            if not self._reads % _READS_PER_LOOK:
                self._bars.update(self._bar, completed=self._bytes)
            return found

        return read


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _document(
    decisions: int, different: int, shown: "list[DecisionDifference]", unreadable: list[str]
) -> dict[str, Any]:
    import msgspec

    return {
        "decisions": decisions,
        "different": different,
        "differences": msgspec.to_builtins(shown),
        "unreadable": unreadable,
    }


def _print(
    decisions: int, different: int, shown: "list[DecisionDifference]", output: OutputFormat, policy: str | None
) -> None:
    from purser.core.wording import portion

    if shown:
        columns: list[Column[DecisionDifference]] = [
            Column("DECISION", lambda each: each.decision),
            Column("POD", lambda each: each.pod),
            Column("LOGGED", lambda each: _placement_text(each.logged)),
            Column("NOW", lambda each: _placement_text(each.now)),
            Column("LOGGED SCORE", lambda each: _score(each.logged), wide=True),
            Column("SCORE NOW", lambda each: _score(each.now), wide=True),
            Column("WHY", lambda each: each.why),
        ]
        print_table(shown, columns, output)
    more = f"; use --show {different} to print all" if different > len(shown) else ""
    whose = "" if policy is None else f" with {policy}"
    if not decisions:
        print("The log does not contain any decisions to replay")
    elif different:
        print(f"{portion(different, decisions, 'decision', 'differs', 'differ')}{whose}{more}")
    else:
        print(f"{'The only decision is' if decisions == 1 else f'All {decisions} decisions are'} the same{whose}")


def _placement_text(outcome: "Outcome") -> str:
    if not outcome.node:
        return "nowhere"
    return f"{outcome.node} GPU {','.join(map(str, outcome.gpus))}" if outcome.gpus else outcome.node


def _score(outcome: "Outcome") -> str:
    return "" if outcome.score is None or not outcome.node else repr(outcome.score)
