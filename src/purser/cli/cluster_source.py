"""Where commands that look once have their objects from: a cluster, or a file of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.output import MISUSED, fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from purser.adapters.objects import ClusterObjects
    from purser.kube.resources import Resource

FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Read this file instead of a cluster: of purser snapshot, or output of kubectl get -o json.",
        metavar="FILE",
    ),
]


def objects_of_file(path: Path) -> "ClusterObjects":
    """What a file has; ends the command where it has none."""
    from purser.adapters.objects import MAX_DUMP_BYTES, DumpError, objects_of_dump

    try:
        with path.open("rb") as file:
            return objects_of_dump(file.read(MAX_DUMP_BYTES + 1))
    except OSError as error:
        fail(f"--from {path}: {error.strerror or error}", MISUSED)
    except DumpError as error:
        fail(f"--from {path}: {error}", MISUSED)


def objects_of_cluster(
    kubeconfig: Path | None, context: str | None, also: "Sequence[Resource[Any]]" = ()
) -> "ClusterObjects":
    """What the API server answers; ends the command where it does not. ``also``: as `read_objects` has it."""
    import asyncio

    from purser.adapters.objects import read_objects
    from purser.kube import Client, ClusterConfig, ConfigError, KubeError

    async def ask() -> "ClusterObjects":
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            return await read_objects(client, also)

    try:
        return asyncio.run(ask())
    except ConfigError as error:
        fail(str(error), MISUSED)
    except KubeError as error:
        fail(str(error))
