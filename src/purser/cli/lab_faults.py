"""`purser lab gpu xid|lose|recover|hang|fail|answer`: whether the GPUs of a running lab answer."""

from functools import partial
from typing import Annotated

import typer

from purser.cli.lab_node import (
    MAX_NUMBER,
    GpuName,
    LabKubeconfig,
    NodeName,
    change,
    help_of,
    lab_nodes,
)
from purser.cli.output import MISUSED, fail

_help = partial(help_of, "purser lab gpu")

app = typer.Typer()


@app.command("xid", help=_help("Make the driver report an Xid error.", "xid t4-4-0 2 79"))
def xid(
    node: NodeName,
    gpu: GpuName,
    number: Annotated[
        int, typer.Argument(metavar="XID", min=1, max=MAX_NUMBER, help="Xid number, such as 79 (fell off the bus).")
    ],
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Report it."""
    change(kubeconfig, node, gpu, f"reported Xid {number}", lambda driver, one: driver.inject_xid(one, number))


@app.command(
    "lose",
    help=_help(
        "Make a GPU fall off the bus, so that NVML calls on the GPU fail and the driver reports Xid 79.",
        "lose t4-4-0 2",
    ),
)
def lose(
    node: NodeName,
    gpu: GpuName,
    quietly: Annotated[bool, typer.Option("--quietly", help="Do not report an Xid.")] = False,
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Lose it."""
    change(kubeconfig, node, gpu, "lost", lambda driver, one: driver.lose_gpu(one, xid=None if quietly else 79))


@app.command(
    "recover",
    help=_help(
        "Reset a GPU so that it answers again. A reset removes processes and MIG devices and applies pending changes.",
        "recover t4-4-0 2",
    ),
)
def recover(node: NodeName, gpu: GpuName, kubeconfig: LabKubeconfig = None) -> None:
    """Reset it."""
    change(kubeconfig, node, gpu, "recovered", lambda driver, one: driver.recover_gpu(one))


@app.command(
    "hang",
    help=_help(
        "Make NVML calls hang, on a GPU or on the whole node, until purser lab gpu answer or a reset.",
        "hang t4-4-0 2 --call nvmlDeviceGetTemperature",
        "hang t4-4-0",
    ),
)
def hang(
    node: NodeName,
    gpu: Annotated[str | None, typer.Argument(metavar="[GPU]", help="GPU, by index or UUID.")] = None,
    call: Annotated[str, typer.Option(help="Name of the NVML call, or * for every call on the GPU.")] = "*",
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Have them hang."""
    _check_call(call)
    if gpu is not None:
        change(kubeconfig, node, gpu, f"hangs in {_named(call)}", lambda driver, one: driver.hang_call(one, call))
        return
    [found] = lab_nodes(kubeconfig, node)
    found.driver.set_hanging(True)
    print(f"driver of node/{node} hangs")


@app.command(
    "fail",
    help=_help(
        "Make an NVML call on a GPU fail with a return code, until purser lab gpu answer or a reset.",
        "fail t4-4-0 2 nvmlDeviceGetUUID 999",
    ),
)
def fail_call(
    node: NodeName,
    gpu: GpuName,
    call: Annotated[str, typer.Argument(metavar="CALL", help="Name of the NVML call, or * for every call on the GPU.")],
    code: Annotated[
        int, typer.Argument(metavar="CODE", min=1, max=MAX_NUMBER, help="NVML return code, such as 4 or 999.")
    ],
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Have it fail."""
    _check_call(call)
    change(kubeconfig, node, gpu, f"fails in {_named(call)}", lambda driver, one: driver.fail_call(one, call, code))


@app.command(
    "answer",
    help=_help("Undo hang and fail on a GPU. If no GPU is given, undo hang on the whole node.", "answer t4-4-0"),
)
def answer(
    node: NodeName,
    gpu: Annotated[str | None, typer.Argument(metavar="[GPU]", help="GPU, by index or UUID.")] = None,
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Undo hang and fail."""
    if gpu is not None:
        change(kubeconfig, node, gpu, "answers", lambda driver, one: driver.clear_failures(one))
        return
    [found] = lab_nodes(kubeconfig, node)
    found.driver.set_hanging(False)
    print(f"driver of node/{node} answers")


def _named(call: str) -> str:
    return "every call" if call == "*" else call


def _check_call(call: str) -> None:
    """End the command where NVML has no such call: nothing would ever fail in it."""
    from difflib import get_close_matches

    import pynvml

    known = {name for name in dir(pynvml) if name.startswith("nvml")}
    if call == "*" or any(call.removesuffix(version) in known for version in ("", "_v2", "_v3", "_v4")):
        return
    near = get_close_matches(call, known, 1)
    instead = f"did you mean {near[0]}?" if near else "use a name such as nvmlDeviceGetTemperature, or *"
    fail(f"{call[:40]!a} is not an NVML call: {instead}", MISUSED)
