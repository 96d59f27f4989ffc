"""`purser cordon gpu` and `purser uncordon gpu`: keep new pods off single GPUs of a node."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from purser.cli.cluster_source import answer_of
from purser.cli.groups import CommandGroup
from purser.cli.options import Context, Kubeconfig
from purser.cli.output import MISUSED, fail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from pathlib import Path

    from purser.kube import Client

_EXIT_CODES_HELP = """Exit code: 0 done, or nothing to do; 1 the cluster did not answer, or the node or GPU does not
exist; 2 wrong usage, or a kubeconfig that cannot be used."""

CORDON_HELP = f"""Keep new pods off a node's GPUs. Running pods keep their GPUs.

Specify GPUs by index, UUID, or UUID prefix, as shown by purser get gpus -o wide. GPUs in HAMi's annotation
hami.io/device-cordon are also cordoned.

{_EXIT_CODES_HELP}

Example: purser cordon gpu node-1 3

Example: purser cordon gpu node-1 GPU-8f5c6d1e
"""

UNCORDON_HELP = f"""Let new pods use a node's GPUs again, including GPUs that HAMi's annotation cordoned. Specify GPUs
by index, UUID, or UUID prefix.

{_EXIT_CODES_HELP}

Example: purser uncordon gpu node-1 3
"""

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="The node.")]
Gpus = Annotated[list[str], typer.Argument(metavar="GPU...", help="Index or UUID of each GPU.")]


def _group(name: str, what: str) -> typer.Typer:
    return typer.Typer(
        cls=CommandGroup,
        name=name,
        help=f"{what}\n\nExample: purser {name} gpu node-1 3",
        no_args_is_help=True,
        rich_markup_mode=None,
    )


cordon_app = _group("cordon", "Keep new pods off GPUs.")
uncordon_app = _group("uncordon", "Let new pods use GPUs again.")


@cordon_app.callback()
@uncordon_app.callback()
def groups() -> None:
    """Has a group of one command stay a group."""


@cordon_app.command("gpu", help=CORDON_HELP)
def cordon_gpu(node: NodeName, gpus: Gpus, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Cordon them."""
    from purser.adapters.cordoning import cordon_gpus

    _run(cordon_gpus, node, gpus, "cordoned", kubeconfig, context)


@uncordon_app.command("gpu", help=UNCORDON_HELP)
def uncordon_gpu(node: NodeName, gpus: Gpus, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Uncordon them."""
    from purser.adapters.cordoning import uncordon_gpus

    _run(uncordon_gpus, node, gpus, "uncordoned", kubeconfig, context)


def _run(
    change: "Callable[[Client, str, Sequence[str]], Awaitable[bool]]",
    node: str,
    gpus: "Sequence[str]",
    done: str,
    kubeconfig: "Path | None",
    context: str | None,
) -> None:
    """Change it, and say what kubectl would say."""
    from purser.adapters.cordoning import UnknownGpuError, named_gpus
    from purser.adapters.nodes import InventoryError
    from purser.cli.serving import LogLevel, configure_logs
    from purser.kube import Client, ClusterConfig

    async def ask() -> "tuple[Sequence[str], bool]":
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            uuids = await named_gpus(client, node, gpus)
            return uuids, await change(client, node, uuids)

    if not all(each and each.isprintable() for each in (node, *gpus)):
        fail("NODE and GPU must be non-empty printable text", MISUSED)
    configure_logs(LogLevel.WARNING)
    try:
        uuids, written = answer_of(ask())
    except (UnknownGpuError, InventoryError) as error:
        fail(str(error))
    for uuid in uuids:
        print(f"gpu/{uuid} on node/{node} {done}" if written else f"gpu/{uuid} on node/{node} already {done}")
