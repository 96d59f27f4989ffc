"""What the commands of `purser lab gpu` share: the lab that is meant, its nodes, and how they end."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from purser.cli.output import MISUSED, fail

if TYPE_CHECKING:
    from purser.lab.driver import SimulatedDriver
    from purser.lab.processes import GpuProcesses

T = TypeVar("T")
Word = TypeVar("Word", bound=StrEnum)

LabKubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Path of the lab's kubeconfig, which purser lab prints when it starts. Default: $KUBECONFIG.",
    ),
]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Node of the lab.")]
OneNode = Annotated[str | None, typer.Argument(metavar="[NODE]", help="Show only this node.")]
GpuName = Annotated[str, typer.Argument(metavar="GPU", help="GPU, by index or UUID.")]

MAX_NUMBER = 2**31 - 1
"""Of any number: more than is measured of a GPU, and within what the driver's C library holds."""

CODES = """Exit code: 0 done; 1 the node, GPU or process does not exist, or the driver refused the change; 2 wrong
usage, or the kubeconfig is not for a lab."""


def help_of(commands: str, text: str, *examples: str) -> str:
    """Help of one of ``commands``, such as ``purser lab gpu``: what it does, its exit codes, and examples, which are
    what follows that."""
    shown = "\n\n".join(f"Example: {commands} {example}" for example in examples)
    return f"{text}\n\n{CODES}\n\n{shown}\n"


class LabNode(NamedTuple):
    """A node of a lab that runs in another process."""

    name: str
    driver: "SimulatedDriver"
    processes: "GpuProcesses"


def lab_nodes(kubeconfig: Path | None, name: str | None = None) -> list[LabNode]:
    """The lab's nodes, or the one of that name; ends the command where there are none."""
    from purser.lab.driver import SimulatedDriver
    from purser.lab.folders import running_nodes

    listed = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = kubeconfig or (Path(listed) if listed else None)
    if path is None:
        fail(
            "KUBECONFIG is not set: run the export command that purser lab prints when it starts, or use --kubeconfig",
            MISUSED,
        )
    found = running_nodes(path.resolve())
    if not found:
        fail(
            f"kubeconfig {path} does not belong to a running lab: use the path that purser lab prints when it starts",
            MISUSED,
        )
    if name is not None and name not in found:
        fail(f"the lab has no node {name}: use one of {', '.join(found)}")
    names = found if name is None else {name: found[name]}
    drivers = {each: SimulatedDriver(folders.driver) for each, folders in names.items()}
    return [LabNode(each, drivers[each], folders.processes(drivers[each])) for each, folders in names.items()]


def gpu_of(text: str) -> int | str:
    """An index, or a uuid."""
    return int(text) if text.isdecimal() else text


@contextmanager
def refusals() -> Iterator[None]:
    """Ends the command with what the lab or its driver does not do."""
    from purser.lab.driver.mig import MigRefusedError

    try:
        yield
    except (LookupError, ValueError, MigRefusedError) as error:
        fail(str(error))


def change(
    kubeconfig: Path | None, node: str, gpu: str, done: str, make: "Callable[[SimulatedDriver, int | str], T]"
) -> T:
    """Change a GPU, and say so."""
    [found] = lab_nodes(kubeconfig, node)
    with refusals():
        given = make(found.driver, gpu_of(gpu))
    print(f"gpu/{gpu} on node/{node} {done}")
    return given


def one_of(words: type[Word], what: str, text: str) -> Word:
    """A member of an enum, whose module only some commands import; ends the command where there is none."""
    try:
        return words(text)
    except ValueError:
        fail(f"invalid value {text!r} for {what}: must be one of {', '.join(words)}", MISUSED)
