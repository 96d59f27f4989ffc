"""`purser operator`: runs it, shows what it would do, imports policies of the GPU operator, removes everything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.cluster_source import answer_of
from purser.cli.from_settings import settings_command
from purser.cli.groups import CommandGroup
from purser.cli.options import Context, DocumentOption, Kubeconfig, LogLevelOption
from purser.cli.output import FAILED, MISUSED, DocumentFormat, dump, fail
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from purser.kube import Client
    from purser.operator.settings import OperatorSettings

SETTINGS = "purser.operator.settings:OperatorSettings"
"""Whose options the commands have."""

HELP = """Roll out the GPU stack that a ClusterPolicy describes: driver, toolkit, device plugin, monitoring, MIG.

\b
Examples:
  purser operator crd --apply
  purser operator import gpu-operator-policy.yaml > policy.yaml
  purser operator run --dry-run --policy policy.yaml
  purser operator plan --policy policy.yaml
  purser operator uninstall --crd --dry-run
"""

app = typer.Typer(
    cls=CommandGroup,
    name="operator",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@settings_command(app, "run", SETTINGS)
def run(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "OperatorSettings",
    dry_run: Annotated[
        bool, typer.Option(help="Print the changes that one reconciliation would make, without making them.")
    ] = False,
    policy: Annotated[
        Path | None, typer.Option(help="With --dry-run: assume that the ClusterPolicy in this file is applied.")
    ] = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the operator until it is stopped. The GPU stack keeps running without the operator.

    Exit code: 0 the operator was stopped, or the changes were printed; 1 the changes cannot be determined, or the
    cluster did not answer or refused the request; 2 wrong usage, or a policy or kubeconfig that cannot be used.

    Example: purser operator run --dry-run --policy policy.yaml
    """
    import asyncio

    from purser.cli.serving import configure_logs, serve
    from purser.core.wording import counted
    from purser.kube import ClusterConfig
    from purser.operator.previewing import preview
    from purser.operator.running import run as run_operator

    if policy is not None and not dry_run:
        fail("--policy requires --dry-run: to put a policy into effect, apply the policy to the cluster", MISUSED)
    if dry_run:
        wanted, image = _read(policy) if policy is not None else None, settings.purser_image
        count = _ask(kubeconfig, context, lambda client: preview(client, settings.namespace, image, print, wanted))
        print(counted(count, "write") if count else "nothing to write")
        return
    configure_logs(log_level)

    async def main(stop: asyncio.Event) -> None:
        await run_operator(settings, ClusterConfig.load(kubeconfig, context), stop)

    serve(main)


@settings_command(app, "plan", SETTINGS, only=frozenset({"namespace", "image"}))
def plan(
    policy: Annotated[Path | None, typer.Option(help="Assume that the ClusterPolicy in this file is applied.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "OperatorSettings",
    output: DocumentOption = DocumentFormat.TEXT,
) -> None:
    """Print what a driver upgrade would do: the order of nodes, the pods to evict, and what is skipped and why.

    A policy whose name differs from the active policy's is refused, because the operator would ignore it.

    Exit code: 0 the plan is shown, even if some nodes would fail; 1 there is no plan, or the cluster did not answer;
    2 wrong usage, or a policy or kubeconfig that cannot be used.

    Example: purser operator plan --policy policy.yaml
    """
    import msgspec

    from purser.operator.previewing import planned
    from purser.operator.upgrade import plan_lines

    wanted = _read(policy) if policy is not None else None
    namespace, image = settings.namespace, settings.image_to_run
    found = _ask(kubeconfig, context, lambda client: planned(client, namespace, image, wanted))
    if output is DocumentFormat.TEXT:
        print("\n".join(plan_lines(found)))
    else:
        dump(msgspec.to_builtins(found), output)


@app.command("import")
def import_(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="File with NVIDIA's ClusterPolicy (nvidia.com/v1) and NVIDIADrivers. Default: read from the cluster."
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Convert NVIDIA's ClusterPolicy and NVIDIADrivers to a purser.dev ClusterPolicy.

    Settings that cannot be converted are listed on standard error, the most important first: components that run on
    other nodes, nodes without components, disabled features, unsupported settings.

    Exit code: 0 the policy is printed, even if settings are lost; 1 the cluster did not answer, or the ClusterPolicy
    does not exist or is malformed; 2 wrong usage, or a file or kubeconfig that cannot be used.

    Example: purser operator import gpu-operator-policy.yaml > policy.yaml
    """
    import sys
    from itertools import groupby

    from purser.operator.observing.kinds import nvidia_objects
    from purser.operator.policy.importing import import_policy

    objects = _read_all(file) if file is not None else _ask(kubeconfig, context, nvidia_objects)
    try:
        imported = import_policy(objects)
    except ValueError as error:
        fail(str(error))
    dump(imported.policy, DocumentFormat.YAML)
    for rank, lines in groupby(imported.losses, lambda each: each.rank):
        print(f"purser: not imported, {rank.headline}:", file=sys.stderr)
        for line in lines:
            print(f"purser: not imported: {line.text}", file=sys.stderr)
    for idle in imported.idle:
        print(f"purser: imported, but without effect: {idle}", file=sys.stderr)


@app.command("crd")
def crd(
    apply: Annotated[bool, typer.Option("--apply", help="Update the definition in the cluster.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --apply: print what would change, without changing anything.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the ClusterPolicy CustomResourceDefinition, or update it in the cluster. Helm never updates it.

    Exit code: 0 the definition is printed, or is up to date in the cluster; 1 the cluster did not answer, or refused
    the definition; 2 wrong usage, or a kubeconfig that cannot be used.

    Example: purser operator crd --apply
    """
    from purser.operator.chart_hooks import apply_definition, preview_definition
    from purser.operator.policy.crd import definition

    if dry_run and not apply:
        fail("--dry-run requires --apply", MISUSED)
    if dry_run:
        print(_ask(kubeconfig, context, preview_definition) or "nothing to write")
    elif apply:
        print(_ask(kubeconfig, context, apply_definition))
    else:
        dump(definition(), DocumentFormat.YAML)


@settings_command(app, "uninstall", SETTINGS, only=frozenset({"namespace"}))
def uninstall(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "OperatorSettings",
    crd: Annotated[bool, typer.Option("--crd", help="Also remove the CustomResourceDefinition.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Give up after this many seconds.")] = 300.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print everything that would be removed, without removing anything.")
    ] = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> None:
    """Delete all ClusterPolicies and wait until no object, label or annotation of the operator is left.

    The command works with and without a running operator. It does not evict pods, so a driver stays on its node until
    the pods that use the node's GPUs have ended. The command prints the nodes and pods for which it waits.

    Exit code: 0 nothing is left; 1 the cluster did not answer, the timeout expired or the command was interrupted: run
    it again to continue; 2 wrong usage, or a kubeconfig that cannot be used.

    Example: purser operator uninstall --crd --timeout 3600
    """
    import asyncio

    from purser.cli.serving import configure_logs, serve
    from purser.core.wording import counted
    from purser.kube import ClusterConfig
    from purser.kube.racing import until
    from purser.operator.previewing import preview_uninstall
    from purser.operator.uninstalling import uninstall as remove

    namespace = settings.namespace
    if dry_run:
        count = _ask(kubeconfig, context, lambda client: preview_uninstall(client, namespace, print, definition=crd))
        print(counted(count, "write") if count else "nothing to remove")
        return
    configure_logs(log_level)

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        work = remove(config, namespace, definition=crd, timeout_s=timeout, say=print)
        await until(work, stop.wait())
        if stop.is_set():
            fail("interrupted: to continue, run the command again", FAILED)

    serve(main)
    print("ClusterPolicies and everything that was deployed for them have been removed")


def _ask(kubeconfig: Path | None, context: str | None, question: "Callable[[Client], Awaitable[Any]]") -> Any:
    """One question to the cluster, and its answer."""
    from purser.cli.serving import configure_logs
    from purser.kube import Client, ClusterConfig
    from purser.operator.previewing import MisusedError

    async def main() -> Any:
        try:
            async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
                return await question(client)
        except MisusedError as error:
            fail(str(error), MISUSED)

    configure_logs(LogLevel.ERROR)
    return answer_of(main())


def _read(path: Path) -> dict[str, Any]:
    found = _read_all(path)
    if len(found) != 1:
        fail(f"{path} contains {len(found)} objects: must contain exactly one", MISUSED)
    return found[0]


def _read_all(path: Path) -> list[dict[str, Any]]:
    from purser.core.decoding import UnreadableError
    from purser.yaml_reading import read_all_yaml

    try:
        found = [each for each in read_all_yaml(path.read_bytes(), str(path)) if each is not None]
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}", MISUSED)
    except UnreadableError as error:
        fail(str(error), MISUSED)
    if not found or not all(isinstance(each, dict) for each in found):
        fail(f"{path}: must contain an object with apiVersion and kind", MISUSED)
    return found
