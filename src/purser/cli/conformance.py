"""`purser conformance device-plugin`: a test kit for device plugins."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.groups import CommandGroup
from purser.cli.options import OutputOption
from purser.cli.output import FAILED, MISUSED, Column, DocumentFormat, OutputFormat, dump, fail, show
from purser.core.wording import counted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from purser.lab.conformance import Check, CheckVerdict, Report, Settings

MAX_SKIPPED_ROWS = 3
"""Of checks that were skipped for the same reason; more are counted in one line."""

app = typer.Typer(
    cls=CommandGroup,
    help="Check other software against Kubernetes interfaces.\n\nExample: purser conformance device-plugin ./my-plugin",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _keep_as_group() -> None:
    """A group, also while there is one command in it."""


HELP = """Check a device plugin against an emulated kubelet, without a cluster.

PLUGIN is the socket of a running plugin, or the command that starts a plugin, with arguments. purser's own options
must come before PLUGIN. The plugin's command gets kubelet's plugin folder in PURSER_DEVICE_PLUGIN_DIR and in place of
{dir} in its arguments. For plugins that support only kubelet's default folder, use --folder on a machine where no
kubelet runs. The checks restart, stop and call the plugin in ways that no kubelet would, so do not run them on a
production node.

\b
Examples:
  purser conformance device-plugin ./my-plugin --plugin-dir {dir}
  purser conformance device-plugin --folder /var/lib/kubelet/device-plugins ./my-plugin
  purser conformance device-plugin --skip 'reregister-*' --junit report.xml ./my-plugin
  purser conformance device-plugin --only 'list*' /var/lib/kubelet/device-plugins/my.sock
  purser conformance device-plugin --list

Exit code: 0 every check passed or was skipped; 1 checks failed; 2 wrong usage, or nothing could be checked.
"""


def _checks_columns() -> "list[Column[Check]]":
    return [
        Column("CHECK", lambda check: check.id),
        Column("WHAT", lambda check: check.sentence),
        Column("NEEDS", lambda check: check.needs, wide=True),
    ]


def _verdict_columns() -> "list[Column[CheckVerdict]]":
    return [
        Column("CHECK", lambda verdict: verdict.check.id),
        Column("RESULT", lambda verdict: str(verdict.outcome).upper()),
        Column("SECONDS", lambda verdict: f"{verdict.seconds:.1f}"),
        Column("WHAT", lambda verdict: verdict.check.sentence, wide=True),
        Column("REASON", lambda verdict: verdict.reason),
    ]


# Typer's table of options is kept out of the way of the plugin's own arguments.
@app.command("device-plugin", help=HELP, context_settings={"allow_interspersed_args": False})
def device_plugin(
    plugin: Annotated[
        list[str] | None, typer.Argument(help="SOCKET, or COMMAND with its arguments.", metavar="PLUGIN...")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Folder to use as kubelet's plugin folder. Default: a new folder for a command, none for a socket."
        ),
    ] = None,
    resource: Annotated[
        str | None, typer.Option(help="Resource to check, if the plugin serves several resources.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only checks with these IDs. May be repeated.", metavar="PATTERN")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Skip checks with these IDs. May be repeated.", metavar="PATTERN")
    ] = None,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks without running them.")] = False,
    timeout: Annotated[float, typer.Option(help="Maximum seconds for each registration, list and response.")] = 10.0,
    observe_s: Annotated[
        float, typer.Option("--observe", help="Seconds to wait before concluding that nothing happened.")
    ] = 2.0,
    size: Annotated[int | None, typer.Option(help="Number of devices that the container requests. Default: 2.")] = None,
    pod: Annotated[
        str | None,
        typer.Option(
            help="Serve the PodResources API at {pod_resources}, with this container being admitted.",
            metavar="NAMESPACE/POD/CONTAINER",
        ),
    ] = None,
    unhealthy_command: Annotated[
        str | None, typer.Option(help="Shell command that makes the device $PURSER_DEVICE_ID unhealthy.")
    ] = None,
    healthy_command: Annotated[
        str | None, typer.Option(help="Shell command that makes $PURSER_DEVICE_ID healthy again.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Append the plugin's output to this file.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write the report to this file, as JUnit XML.")] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run the checks and print the report."""
    import os

    # gRPC's C core writes lines of its own whenever a plugin ends; it reads this when it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from purser.lab.conformance import PodName, Settings, select

    try:
        checks = select(only or (), skip or ())
        if list_checks:
            show(checks, _checks_columns(), output, empty="", document=_check_document)
            return
        socket, command = _target(plugin or [])
        settings = Settings(
            command=command,
            socket=socket,
            folder=folder,
            resource=resource,
            timeout_s=timeout,
            observe_s=observe_s,
            size=size,
            pod=PodName.parse(pod) if pod is not None else None,
            unhealthy_command=unhealthy_command,
            healthy_command=healthy_command,
            log=log,
        )
    except ValueError as error:
        fail(str(error), MISUSED)
    report = _run(settings, checks)
    _print(report, output)
    if junit is not None:
        _write_junit(report, junit)
    raise typer.Exit(_exit_code(report))


def _target(words: list[str]) -> tuple[Path | None, tuple[str, ...]]:
    """A socket, or a command. Raises ValueError."""
    import shlex
    import shutil

    if not words:
        raise ValueError(
            "the plugin's socket, or the command that starts the plugin, is required (see --help for examples)"
        )
    if len(words) == 1:
        path = Path(words[0])
        if path.is_socket():
            return path, ()
        words = shlex.split(words[0])
        if not words or (path.suffix == ".sock" and shutil.which(words[0]) is None):
            raise ValueError(f"{path} is not a socket" if path.exists() else f"socket {path} does not exist")
    return None, tuple(words)


def _run(settings: "Settings", checks: "Sequence[Check]") -> "Report":
    from purser.cli.serving import LogLevel, configure_logs, serve
    from purser.lab.conformance import CannotRun

    configure_logs(LogLevel.WARNING)
    reports: list[Report] = []
    try:
        serve(_run_until_stopped(settings, checks, reports))
    except CannotRun as error:
        fail(str(error), MISUSED)
    if not reports:
        fail("interrupted", MISUSED)
    return reports[0]


def _run_until_stopped(
    settings: "Settings", checks: "Sequence[Check]", reports: "list[Report]"
) -> "Callable[[asyncio.Event], Awaitable[None]]":
    async def main(stop: "asyncio.Event") -> None:
        from purser.kube.racing import until
        from purser.lab.conformance import run

        with _Progress(checks) as progress:
            report = await until(run(settings, checks, progress.show), stop.wait())
        if report is not None:
            reports.append(report)

    return main


class _Progress:
    """One line on a terminal that says where it is; nothing elsewhere."""

    def __init__(self, checks: "Sequence[Check]") -> None:
        self._total = len(checks)
        self._done = 0
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._line("")

    def show(self, check: "Check") -> None:
        """The next check begins."""
        self._done += 1
        self._line(f"{self._done}/{self._total} {check.id}")

    def _line(self, text: str) -> None:
        if self._is_shown:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _print(report: "Report", output: OutputFormat) -> None:
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(_document(report), DocumentFormat(output.value))
        return
    is_wide = output is OutputFormat.WIDE
    shown, left_out = (list(report.verdicts), Counter[str]()) if is_wide else _without_repetition(report.verdicts)
    show(shown, _verdict_columns(), output, empty="", document=_verdict_document)
    for reason, count in left_out.items():
        print(
            f"{counted(count, 'more check')} {'was' if count == 1 else 'were'} skipped: {reason} (-o wide lists them)"
        )
    about = f"{report.resource}: " if report.resource else ""
    print(f"\n{about}{report.summary} in {report.seconds:.1f} s")


def _without_repetition(verdicts: "Sequence[CheckVerdict]") -> "tuple[list[CheckVerdict], Counter[str]]":
    """The verdicts without checks that were skipped for one reason that many share; and how many, by reason: a plugin
    that does not start is one fact."""
    from purser.lab.conformance import CheckOutcome

    skipped = Counter(each.reason for each in verdicts if each.outcome is CheckOutcome.SKIPPED)
    many = Counter({reason: count for reason, count in skipped.items() if count > MAX_SKIPPED_ROWS})
    is_left_out = (each.outcome is CheckOutcome.SKIPPED and each.reason in many for each in verdicts)
    return [each for each, left_out in zip(verdicts, is_left_out, strict=True) if not left_out], many


def _document(report: "Report") -> dict[str, Any]:
    from purser.lab.conformance import CheckOutcome

    return {
        "resource": report.resource,
        "notTested": list(report.others),
        "seconds": round(report.seconds, 3),
        "passed": report.count(CheckOutcome.PASSED),
        "failed": report.count(CheckOutcome.FAILED),
        "skipped": report.count(CheckOutcome.SKIPPED),
        "checks": [_verdict_document(verdict) for verdict in report.verdicts],
    }


def _verdict_document(verdict: "CheckVerdict") -> dict[str, Any]:
    return {
        "id": verdict.check.id,
        "result": str(verdict.outcome),
        "reason": verdict.reason,
        "seconds": round(verdict.seconds, 3),
        "sentence": verdict.check.sentence,
    }


def _check_document(check: "Check") -> dict[str, Any]:
    return {"id": check.id, "sentence": check.sentence, "needs": list(check.needs)}


def _write_junit(report: "Report", path: Path) -> None:
    from purser.lab.conformance.junit import write

    try:
        write(report, path)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}", MISUSED)


def _exit_code(report: "Report") -> int:
    from purser.lab.conformance import CheckOutcome

    if report.count(CheckOutcome.FAILED):
        return FAILED
    if not report.count(CheckOutcome.PASSED):
        print("purser: no check could run, for the reasons above", file=sys.stderr)
        return MISUSED
    return 0
