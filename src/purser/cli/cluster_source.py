"""Where commands that look once have their objects from: a cluster, or a file of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from purser.cli.output import MISUSED, fail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from purser.adapters.objects import ClusterObjects
    from purser.kube import Client, KubeError
    from purser.kube.resources import Resource

T = TypeVar("T")

_OTHER_CONTEXT = "choose another context with --context"

FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Read this file instead of a cluster: output of purser snapshot or of kubectl get -o json.",
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
    """What the API server has; ends the command where it does not answer. ``also``: as `read_objects` has it."""
    from purser.adapters.objects import read_objects

    return ask_cluster(kubeconfig, context, lambda client: read_objects(client, also))


def ask_cluster(kubeconfig: Path | None, context: str | None, read: "Callable[[Client], Awaitable[T]]") -> T:
    """What the API server answers; ends the command where it does not."""
    from purser.kube import Client, ClusterConfig

    async def ask() -> T:
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            return await read(client)

    return answer_of(ask())


def answer_of(question: "Coroutine[Any, Any, T]") -> T:
    """The answer of an API server or of Purser's scheduler; ends the command where there is none, with exit code 2 if a
    kubeconfig or an option is wrong."""
    import asyncio

    from purser.kube import ConfigError, KubeError

    try:
        return asyncio.run(question)
    except ConfigError as error:
        fail(str(error), MISUSED)
    except KubeError as error:
        fail(with_advice(error))


def with_advice(error: "KubeError") -> str:
    """What a cluster that did not answer says, and what to do about it."""
    from purser.kube import ApiUnavailableError, UnauthorizedError
    from purser.kube.errors import TlsError

    if isinstance(error, UnauthorizedError):
        return f"the API server refused the credentials ({error}): log in again, or {_OTHER_CONTEXT}"
    if isinstance(error, TlsError):
        return f"{error}. Check certificate-authority in the kubeconfig, or {_OTHER_CONTEXT}"
    if isinstance(error, ApiUnavailableError):
        return f"{error}. Check server in the kubeconfig, or {_OTHER_CONTEXT}"
    return str(error)
