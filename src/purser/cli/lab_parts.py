"""`purser lab gpu ecc|remap|retire|nvlink|fabric|pcie`: memory and links of the GPUs of a running lab."""

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
    one_of,
)
from purser.cli.output import MISUSED, fail
from purser.core.wording import counted

_help = partial(help_of, "purser lab gpu")

app = typer.Typer()


@app.command(
    "ecc",
    help=_help(
        "Add ECC errors to a GPU's counters. To also report an Xid, use purser lab gpu xid.",
        "ecc t4-4-0 2 --uncorrected 1",
        "ecc a100-40gb-8-0 2 --uncorrected 9 --at sram --sram-threshold",
    ),
)
def ecc(
    node: NodeName,
    gpu: GpuName,
    corrected: Annotated[int, typer.Option(min=0, max=MAX_NUMBER, help="Number of corrected errors to add.")] = 0,
    uncorrected: Annotated[int, typer.Option(min=0, max=MAX_NUMBER, help="Number of uncorrected errors to add.")] = 0,
    at: Annotated[
        str,
        typer.Option(help="Location of the errors: l1, l2, dram, register-file, texture, texture-shm, cbu or sram."),
    ] = "dram",
    sram_threshold: Annotated[
        bool | None, typer.Option(help="Whether NVML reports that SRAM errors exceed NVIDIA's threshold.")
    ] = None,
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Count them."""
    from purser.lab.driver.parts import MemoryLocation

    place = one_of(MemoryLocation, "--at", at)
    if not (corrected or uncorrected or sram_threshold is not None):
        fail("one of --corrected, --uncorrected and --sram-threshold is required", MISUSED)
    added = {"more corrected error": corrected, "more uncorrected error": uncorrected}
    if any(added.values()):
        change(
            kubeconfig,
            node,
            gpu,
            f"counted {' and '.join(counted(count, what) for what, count in added.items() if count)}",
            lambda driver, one: driver.add_ecc_errors(one, place=place, corrected=corrected, uncorrected=uncorrected),
        )
    if sram_threshold is not None:
        done = f"reports SRAM errors {'above' if sram_threshold else 'below'} the threshold"
        change(kubeconfig, node, gpu, done, lambda driver, one: driver.set_sram_threshold_exceeded(one, sram_threshold))


@app.command(
    "remap",
    help=_help(
        "Remap rows of a GPU's memory to spare rows (Ampere and newer).",
        "remap a100-40gb-8-0 2 --uncorrectable 1 --pending",
    ),
)
def remap(
    node: NodeName,
    gpu: GpuName,
    correctable: Annotated[
        int, typer.Option(min=0, max=MAX_NUMBER, help="Number of rows to remap for correctable errors.")
    ] = 0,
    uncorrectable: Annotated[
        int, typer.Option(min=0, max=MAX_NUMBER, help="Number of rows to remap for uncorrectable errors.")
    ] = 0,
    pending: Annotated[bool | None, typer.Option(help="Whether a row remapping is pending until a reset.")] = None,
    failed: Annotated[
        bool | None, typer.Option(help="Whether a row remapping failed because no spare row was left.")
    ] = None,
    spares: Annotated[
        str,
        typer.Option(
            help="Availability of spare rows in the remapped banks, as in NVML's histogram: high, partial, low or none."
        ),
    ] = "high",
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Replace them."""
    from purser.lab.driver.parts import BankSpares

    left = one_of(BankSpares, "--spares", spares)
    if not (correctable or uncorrectable or pending is not None or failed is not None):
        fail("one of --correctable, --uncorrectable, --pending and --failed is required", MISUSED)
    counts = {"correctable": correctable, "uncorrectable": uncorrectable}
    change(
        kubeconfig,
        node,
        gpu,
        "remapped",
        lambda driver, one: driver.remap_rows(one, **counts, pending=pending, failed=failed, spares=left),
    )


@app.command(
    "retire",
    help=_help(
        "Mark a GPU memory page for retirement at the next reset (GPUs older than Ampere only).",
        "retire t4-4-0 2 0x1000",
    ),
)
def retire(
    node: NodeName,
    gpu: GpuName,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Address of the page; hexadecimal numbers begin with 0x.")
    ],
    single_bit: Annotated[
        bool,
        typer.Option(
            "--single-bit", help="Record multiple single-bit ECC errors as the cause. Default: a double-bit error."
        ),
    ] = False,
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Retire it."""
    try:
        page = int(address, 0)
    except ValueError:
        page = -1
    if not 0 <= page < 1 << 64:
        fail(f"invalid address {address[:40]}: must be a number such as 0x1000", MISUSED)
    change(
        kubeconfig,
        node,
        gpu,
        f"retires page {page:#x}",
        lambda driver, one: driver.retire_page(one, page, double_bit=not single_bit),
    )


@app.command(
    "nvlink",
    help=_help(
        "Bring a GPU's end of an NVLink up or down, or add errors to its counters.",
        "nvlink a100-40gb-8-0 2 5 --down",
        "nvlink a100-40gb-8-0 2 5 --error crc-flit --count 100",
    ),
)
def nvlink(
    node: NodeName,
    gpu: GpuName,
    link: Annotated[int, typer.Argument(metavar="LINK", min=0, max=MAX_NUMBER, help="Number of the NVLink.")],
    up: Annotated[bool | None, typer.Option("--up/--down", help="Whether the link is active.")] = None,
    error: Annotated[
        str | None, typer.Option(help="Error counter to increment: replay, recovery, crc-flit, crc-data or ecc-data.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=MAX_NUMBER, help="Number of errors to add.")] = 1,
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Change it."""
    from purser.lab.driver.parts import NvLinkError

    if up is None and error is None:
        fail("one of --up, --down and --error is required", MISUSED)
    if up is not None:
        done = f"NVLink {link} is {'up' if up else 'down'}"
        change(kubeconfig, node, gpu, done, lambda driver, one: driver.set_nvlink(one, link, active=up))
    if error is not None:
        kind = one_of(NvLinkError, "--error", error)
        done = f"NVLink {link} counted {counted(count, f'{kind} error')}"
        change(kubeconfig, node, gpu, done, lambda driver, one: driver.add_nvlink_errors(one, link, kind, count))


@app.command(
    "fabric",
    help=_help(
        "Join a GPU to an NVLink domain, or set the state of its registration with the fabric manager.",
        "fabric gb200-nvl4-0 2 --cluster 7c5f1a30-4b0e-4f8a-9d52-6e1b0c8a2f47 --clique 7",
        "fabric gb200-nvl4-0 2 --state failed",
    ),
)
def fabric(
    node: NodeName,
    gpu: GpuName,
    cluster: Annotated[
        str | None, typer.Option(metavar="UUID", help="UUID of the NVLink domain. Default: none.")
    ] = None,
    clique: Annotated[int, typer.Option(min=0, max=MAX_NUMBER, help="Clique ID in the NVLink domain.")] = 0,
    state: Annotated[
        str,
        typer.Option(
            metavar="STATE",
            help="Without --cluster: state of the GPU's registration with the fabric manager: not-supported, "
            "not-started, in-progress, completed or failed.",
        ),
    ] = "not-started",
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Join it."""
    from uuid import UUID

    from purser.core.health.fabric import FabricState
    from purser.lab.driver.parts import Fabric

    if cluster is None:
        registration = Fabric.so_far(one_of(FabricState, "--state", state))
        done = f"is not in an NVLink domain; its registration with the fabric manager is {state}"
        change(kubeconfig, node, gpu, done, lambda driver, one: driver.set_fabric(one, registration))
        return
    try:
        joined = Fabric(cluster=UUID(cluster), clique=clique)
    except ValueError:
        fail(f"invalid UUID {cluster[:40]}: must be one such as 7c5f1a30-4b0e-4f8a-9d52-6e1b0c8a2f47", MISUSED)
    done = f"joined clique {clique} of NVLink domain {joined.cluster}"
    change(kubeconfig, node, gpu, done, lambda driver, one: driver.set_fabric(one, joined))


@app.command("pcie", help=_help("Add PCIe replays to a GPU's counter.", "pcie t4-4-0 2 --replays 10"))
def pcie(
    node: NodeName,
    gpu: GpuName,
    replays: Annotated[int, typer.Option(min=1, max=MAX_NUMBER, help="Number of replays to add.")] = 1,
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Count them."""
    change(
        kubeconfig,
        node,
        gpu,
        f"counted {counted(replays, 'more replay')}",
        lambda driver, one: driver.replay_pcie(one, replays),
    )
