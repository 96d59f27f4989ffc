"""`purser operator`: runs it, shows what it would do, takes policies of the GPU operator over, removes everything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.output import FAILED, MISUSED, fail
from purser.cli.serving import LogLevel
from purser.core.names import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from purser.kube import Client

app = typer.Typer(
    name="operator",
    help="Roll out a GPU stack as a ClusterPolicy says: driver, toolkit, device plugin, monitoring, MIG.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Path of the kubeconfig; default: $KUBECONFIG, the pod's account.")
]
Context = Annotated[str | None, typer.Option(help="Context in the kubeconfig.")]
Namespace = Annotated[str, typer.Option(help="Where the operands and the operator's lease are.")]
Image = Annotated[str, typer.Option(help="Purser's image, for what runs of it on nodes.", envvar="PURSER_IMAGE")]
DEFAULT_IMAGE = "purser:latest"


@app.command("run")
def run(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    image: Image = DEFAULT_IMAGE,
    identity: Annotated[str, typer.Option(help="Among replicas; default: this machine's name and a random end.")] = "",
    metrics_address: Annotated[str, typer.Option(help="Address of metrics and health.")] = "0.0.0.0",
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of metrics and health; 0: any free one.")
    ] = 9402,
    dry_run: Annotated[bool, typer.Option(help="Show what one round would write, and write nothing.")] = False,
    policy: Annotated[Path | None, typer.Option(help="With --dry-run: as if this ClusterPolicy were applied.")] = None,
    log_level: Annotated[LogLevel, typer.Option(help="How much to log.")] = LogLevel.INFO,
) -> None:
    """Run the operator until it is told to stop; the GPU stack stays.

    Example: purser operator run --dry-run --policy policy.yaml
    """
    import asyncio

    from purser.cli.serving import configure_logs, serve
    from purser.kube import ClusterConfig
    from purser.operator.previewing import preview
    from purser.operator.running import run as run_operator
    from purser.operator.settings import OperatorSettings

    if policy is not None and not dry_run:
        fail("--policy goes with --dry-run: policies to act on are applied to the cluster", MISUSED)
    if dry_run:
        wanted = _read(policy) if policy is not None else None
        count = _ask(kubeconfig, context, lambda client: preview(client, namespace, image, print, wanted))
        print(f"{count} writes" if count else "nothing to write")
        return
    settings = OperatorSettings(
        purser_image=image,
        namespace=namespace,
        identity=identity,
        metrics_address=metrics_address,
        metrics_port=metrics_port,
    )
    configure_logs(log_level)

    async def main(stop: asyncio.Event) -> None:
        await run_operator(settings, ClusterConfig.load(kubeconfig, context), stop)

    serve(main)


@app.command("plan")
def plan(
    policy: Annotated[Path | None, typer.Option(help="As if this ClusterPolicy were applied.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    image: Image = DEFAULT_IMAGE,
) -> None:
    """Print what an upgrade of drivers would do: which nodes when, which pods leave, what is left out and why.

    Example: purser operator plan --policy policy.yaml
    """
    from purser.operator.previewing import planned

    wanted = _read(policy) if policy is not None else None
    for line in _ask(kubeconfig, context, lambda client: planned(client, namespace, image, wanted)):
        print(line)


@app.command("import")
def import_(
    file: Annotated[
        Path | None, typer.Argument(help="A ClusterPolicy of nvidia.com/v1; default: the cluster's.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the purser.dev ClusterPolicy for one of NVIDIA's GPU operator, and say on standard error what is lost.

    Example: purser operator import gpu-operator-policy.yaml > policy.yaml
    """
    import sys

    from purser.cli.output import Document, dump
    from purser.operator.importing import import_policy

    raw = _read(file) if file is not None else _ask(kubeconfig, context, _nvidia_policy)
    try:
        imported = import_policy(raw)
    except ValueError as error:
        fail(str(error))
    dump(imported.policy, Document.YAML)
    for lost in imported.lost:
        print(f"purser: not taken over: {lost}", file=sys.stderr)


@app.command("uninstall")
def uninstall(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    crd: Annotated[bool, typer.Option(help="Remove the CustomResourceDefinition, too.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Give up after this many seconds.")] = 300.0,
    dry_run: Annotated[bool, typer.Option(help="Show what would be removed first, and remove nothing.")] = False,
    log_level: Annotated[LogLevel, typer.Option(help="How much to log.")] = LogLevel.WARNING,
) -> None:
    """Delete all ClusterPolicies and wait until no object, label or annotation of the operator is left.

    Works with and without a running operator.

    Example: purser operator uninstall --crd
    """
    import asyncio

    from purser.cli.serving import configure_logs, serve
    from purser.kube import ClusterConfig
    from purser.kube.racing import until
    from purser.operator.previewing import preview_uninstall
    from purser.operator.uninstalling import uninstall as remove

    if dry_run:
        count = _ask(kubeconfig, context, lambda client: preview_uninstall(client, namespace, print))
        print(f"{count} writes" if count else "nothing to remove")
        return
    configure_logs(log_level)

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        work = remove(config, namespace, definition=crd, timeout_s=timeout, say=print)
        await until(work, stop.wait())
        if stop.is_set():
            fail("interrupted: run it again to go on", FAILED)

    serve(main)
    print("nothing of the operator is left")


def _ask(kubeconfig: Path | None, context: str | None, question: "Callable[[Client], Awaitable[Any]]") -> Any:
    """One question to the cluster, and its answer."""
    import asyncio

    from purser.cli.serving import configure_logs
    from purser.kube import Client, ClusterConfig, KubeError

    async def main() -> Any:
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            return await question(client)

    configure_logs(LogLevel.ERROR)
    try:
        return asyncio.run(main())
    except KubeError as error:
        fail(str(error))


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        fail(f"{path}: {error}", MISUSED)
    if not isinstance(found, dict):
        fail(f"{path}: this is no object with apiVersion and kind", MISUSED)
    return found


async def _nvidia_policy(client: "Client") -> dict[str, Any]:
    from purser.kube import KubeError, NotFoundError, untyped

    resource = untyped("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False)
    try:
        listed = (await client.list(resource)).items
    except NotFoundError:
        listed = []
    if not listed:
        raise KubeError("this cluster has no ClusterPolicy of nvidia.com/v1: name a file with one")
    return min(listed, key=lambda each: (each["metadata"].get("creationTimestamp", ""), each["metadata"]["name"]))
