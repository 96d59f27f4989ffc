"""`purser operator`: runs it, shows what it would do, imports policies of the GPU operator, removes everything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.from_settings import settings_command
from purser.cli.options import Context, DocumentOption, Kubeconfig, LogLevelOption
from purser.cli.output import FAILED, MISUSED, DocumentFormat, dump, fail
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from purser.kube import Client
    from purser.operator.settings import OperatorSettings

SETTINGS = "purser.operator.settings:OperatorSettings"
"""Whose options the commands have."""

HELP = """Roll out a GPU stack as a ClusterPolicy says: driver, toolkit, device plugin, monitoring, MIG.

\b
Examples:
  purser operator crd --apply
  purser operator import gpu-operator-policy.yaml > policy.yaml
  purser operator run --dry-run --policy policy.yaml
  purser operator plan --policy policy.yaml
  purser operator uninstall --crd --dry-run
"""

app = typer.Typer(
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
    dry_run: Annotated[bool, typer.Option(help="Show what one round would write, and write nothing.")] = False,
    policy: Annotated[
        Path | None, typer.Option(help="With --dry-run: assume that this ClusterPolicy is applied.")
    ] = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the operator until it is stopped; the GPU stack stays.

    Exit code: 0 it was stopped, or showed what it would write; 1 nothing can be shown, or the cluster did
    not answer, or refused it; 2 wrong usage, or a policy that is refused.

    Example: purser operator run --dry-run --policy policy.yaml
    """
    import asyncio

    from purser.cli.serving import configure_logs, serve
    from purser.core.wording import counted
    from purser.kube import ClusterConfig
    from purser.operator.previewing import preview
    from purser.operator.running import run as run_operator

    if policy is not None and not dry_run:
        fail("--policy needs --dry-run: to act on a policy, apply it to the cluster", MISUSED)
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
    policy: Annotated[Path | None, typer.Option(help="Assume that this ClusterPolicy is applied.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "OperatorSettings",
    output: DocumentOption = DocumentFormat.TEXT,
) -> None:
    """Print what a driver upgrade would do: which nodes when, which pods are evicted, what is skipped and why.

    A policy with another name than the active one's is refused, because it would be ignored.

    Exit code: 0 the plan is shown, also one with nodes that would fail; 1 there is no plan, or the cluster did not
    answer; 2 wrong usage, or a policy that is refused.

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
            help="File with NVIDIA's ClusterPolicy (nvidia.com/v1) and NVIDIADrivers. Default: the cluster's."
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Convert NVIDIA's ClusterPolicy and NVIDIADrivers to a purser.dev ClusterPolicy; losses go to standard error.

    The most important losses come first: something runs elsewhere, nodes get nothing, a feature is off, a setting is
    unknown.

    Exit code: 0 the policy is printed, whatever is lost; 1 no such ClusterPolicy exists, or it is malformed; 2 wrong
    usage, or a file that cannot be read.

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
        print(f"purser: imported, without effect: {idle}", file=sys.stderr)


@app.command("crd")
def crd(
    apply: Annotated[bool, typer.Option(help="Update the cluster's definition.")] = False,
    dry_run: Annotated[bool, typer.Option(help="With --apply: show what would change, and change nothing.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the CustomResourceDefinition of ClusterPolicy, or update the cluster's: Helm never updates one.

    Exit code: 0 the definition is printed, or the cluster has it; 1 the cluster did not answer, or refused it; 2 wrong
    usage.

    Example: purser operator crd --apply
    """
    from purser.operator.chart_hooks import define, preview_definition
    from purser.operator.policy.crd import definition

    if dry_run and not apply:
        fail("--dry-run needs --apply", MISUSED)
    if dry_run:
        print(_ask(kubeconfig, context, preview_definition) or "nothing to write")
    elif apply:
        print(_ask(kubeconfig, context, define))
    else:
        dump(definition(), DocumentFormat.YAML)


@settings_command(app, "uninstall", SETTINGS, only=frozenset({"namespace"}))
def uninstall(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "OperatorSettings",
    crd: Annotated[bool, typer.Option(help="Also remove the CustomResourceDefinition.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Give up after this many seconds.")] = 300.0,
    dry_run: Annotated[bool, typer.Option(help="Show everything that would be removed, and remove nothing.")] = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> None:
    """Delete all ClusterPolicies and wait until no object, label or annotation of the operator is left.

    Works with and without a running operator. No pod is evicted: a driver stays on its node until the pods that use its
    GPUs have ended. Prints the nodes and pods that it waits for.

    Exit code: 0 nothing is left; 1 timeout, with what is left: run it again to continue; 2 wrong usage.

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
            fail("interrupted: run the command again to continue", FAILED)

    serve(main)
    print("the operator left nothing behind")


def _ask(kubeconfig: Path | None, context: str | None, question: "Callable[[Client], Awaitable[Any]]") -> Any:
    """One question to the cluster, and its answer."""
    import asyncio

    from purser.cli.serving import configure_logs
    from purser.kube import Client, ClusterConfig, KubeError
    from purser.operator.previewing import MisusedError

    async def main() -> Any:
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            return await question(client)

    configure_logs(LogLevel.ERROR)
    try:
        return asyncio.run(main())
    except MisusedError as error:
        fail(str(error), MISUSED)
    except KubeError as error:
        fail(str(error))


def _read(path: Path) -> dict[str, Any]:
    found = _read_all(path)
    if len(found) != 1:
        fail(f"{path} contains {len(found)} objects: give one", MISUSED)
    return found[0]


def _read_all(path: Path) -> list[dict[str, Any]]:
    from purser.core.decoding import UnreadableError
    from purser.yaml_reading import read_all_yaml

    try:
        found = [each for each in read_all_yaml(path.read_bytes(), str(path)) if each is not None]
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror or error}", MISUSED)
    except UnreadableError as error:
        fail(str(error), MISUSED)
    if not found or not all(isinstance(each, dict) for each in found):
        fail(f"{path}: this is not an object with apiVersion and kind", MISUSED)
    return found
