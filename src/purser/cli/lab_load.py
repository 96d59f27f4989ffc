"""`purser lab gpu slowdown|load`: what the sensors of the GPUs of a running lab measure."""

from functools import partial
from typing import Annotated

import typer

from purser.cli.lab_node import (
    MAX_NUMBER,
    GpuName,
    LabKubeconfig,
    NodeName,
    change,
    gpu_of,
    help_of,
    lab_nodes,
    one_of,
    refusals,
)
from purser.cli.output import MISUSED, fail

_help = partial(help_of, "purser lab gpu")

app = typer.Typer()


@app.command(
    "slowdown",
    help=_help(
        "Slow down a GPU's clocks for the given reasons. If no reason is given, end the slowdown.",
        "slowdown a100-40gb-8-0 2 hw-thermal",
        "slowdown a100-40gb-8-0 2",
    ),
)
def slowdown(
    node: NodeName,
    gpu: GpuName,
    reasons: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REASON]...", help="Slowdown reason: power-cap, sw-thermal, hw-thermal or power-brake."
        ),
    ] = None,
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Slow it down."""
    from purser.lab.driver.parts import ClocksLimit

    limits = [one_of(ClocksLimit, "REASON", each) for each in reasons or ()]
    done = f"slowed down for {', '.join(limits)}" if limits else "not slowed down"
    change(kubeconfig, node, gpu, done, lambda driver, one: driver.set_slowdowns(one, limits))


@app.command(
    "load",
    help=_help(
        "Override a GPU's sensor readings, which otherwise follow its processes. --follow removes all overrides.",
        "load a100-40gb-8-0 2 --utilization 90 --celsius 88 --watts 390",
        "load a100-40gb-8-0 2 --follow",
    ),
)
def load(
    node: NodeName,
    gpu: GpuName,
    follow: Annotated[bool, typer.Option("--follow", help="Derive all values from the GPU's processes again.")] = False,
    utilization: Annotated[int | None, typer.Option(min=0, max=100, help="GPU utilization in percent.")] = None,
    memory_utilization: Annotated[
        int | None, typer.Option(min=0, max=100, help="Memory utilization in percent.")
    ] = None,
    encoder: Annotated[int | None, typer.Option(min=0, max=100, help="Encoder utilization in percent.")] = None,
    decoder: Annotated[int | None, typer.Option(min=0, max=100, help="Decoder utilization in percent.")] = None,
    tensor: Annotated[int | None, typer.Option(min=0, max=100, help="Tensor core utilization in percent.")] = None,
    celsius: Annotated[
        int | None, typer.Option(min=0, max=MAX_NUMBER, help="GPU temperature in degrees Celsius.")
    ] = None,
    memory_celsius: Annotated[
        int | None, typer.Option(min=0, max=MAX_NUMBER, help="Memory temperature in degrees Celsius.")
    ] = None,
    watts: Annotated[int | None, typer.Option(min=0, max=MAX_NUMBER, help="Power draw in watts.")] = None,
    pcie_tx: Annotated[
        int | None, typer.Option(min=0, max=MAX_NUMBER, help="Sent over PCIe, in KiB per second.")
    ] = None,
    pcie_rx: Annotated[
        int | None, typer.Option(min=0, max=MAX_NUMBER, help="Received over PCIe, in KiB per second.")
    ] = None,
    nvlink_tx: Annotated[
        int | None, typer.Option(min=0, max=MAX_NUMBER, help="Sent over all NVLinks, in KiB per second.")
    ] = None,
    nvlink_rx: Annotated[
        int | None, typer.Option(min=0, max=MAX_NUMBER, help="Received over all NVLinks, in KiB per second.")
    ] = None,
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Say it."""
    from purser.lab.driver.parts import GpuLoad

    measured = GpuLoad(
        gpu_utilization_percent=utilization,
        memory_utilization_percent=memory_utilization,
        encoder_utilization_percent=encoder,
        decoder_utilization_percent=decoder,
        tensor_percent=tensor,
        temperature_celsius=celsius,
        memory_temperature_celsius=memory_celsius,
        power_watts=watts,
        pcie_tx_kib_per_s=pcie_tx,
        pcie_rx_kib_per_s=pcie_rx,
        nvlink_tx_kib_per_s=nvlink_tx,
        nvlink_rx_kib_per_s=nvlink_rx,
    )
    if not follow and measured == GpuLoad():
        fail("--follow or at least one reading is required, such as --utilization", MISUSED)
    [found] = lab_nodes(kubeconfig, node)
    with refusals():
        if follow:
            found.driver.clear_load(gpu_of(gpu))
        found.driver.set_load(gpu_of(gpu), measured)
    print(f"gpu/{gpu} on node/{node} load set")
