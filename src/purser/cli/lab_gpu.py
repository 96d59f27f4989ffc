"""`purser lab gpu`: what the GPUs of a running lab report, and what happens to them."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli import lab_mig, lab_process
from purser.cli.groups import CommandGroup
from purser.cli.lab_node import (
    CODES,
    GpuName,
    LabKubeconfig,
    NodeName,
    OneNode,
    change,
    gpu_of,
    help_of,
    lab_nodes,
    one_of,
    refusals,
)
from purser.cli.options import OutputOption
from purser.cli.output import MISUSED, Column, OutputFormat, fail, show
from purser.core.wording import counted

if TYPE_CHECKING:
    from purser.lab.driver.mig import MigState
    from purser.lab.driver.state import GpuState

MAX_NUMBER = 2**31 - 1
"""Of any number: more than is measured of a GPU, and within what the driver's C library holds."""

_help = partial(help_of, "purser lab gpu")

app = typer.Typer(
    cls=CommandGroup,
    name="gpu",
    help="Change GPUs of a running lab: processes, load, faults, MIG. Clients of the driver see changes immediately."
    f"\n\n{CODES}\n\nExample: purser lab gpu list",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(lab_process.app, name="process")
app.add_typer(lab_mig.app, name="mig")


@dataclass(frozen=True)
class LabGpuRow:
    """A GPU of the table."""

    node: str
    index: int
    gpu: "GpuState"
    mig: "MigState"
    xid: int | None
    """The last one that the driver reported; None: it has reported none."""

    @property
    def state(self) -> str:
        """In one word."""
        if not self.gpu.present:
            return "Absent"
        if self.gpu.lost:
            return "Lost"
        if self.gpu.hanging:
            return "Hangs"
        return "Fails" if self.gpu.failures else "Answers"

    @property
    def links(self) -> str:
        """Those that are up, of all."""
        return f"{sum(link.active for link in self.gpu.nvlinks)}/{len(self.gpu.nvlinks)}"

    @property
    def ecc(self) -> str:
        """Corrected and uncorrected errors since the last reset."""
        counts = [errors.counts for errors in self.gpu.ecc.values()]
        return "/".join(str(sum(each[which] for each in counts)) for which in range(2))

    def document(self) -> dict[str, Any]:
        """All that is known of it."""
        import msgspec

        gpu: dict[str, Any] = msgspec.to_builtins(self.gpu)
        gpu.pop("levels")
        gpu |= gpu.pop("load")
        gpu["model"] = self.gpu.model.name
        mig = msgspec.to_builtins(self.mig, str_keys=True)
        return {"node": self.node, "index": self.index, "state": self.state, **gpu, "mig": mig, "last_xid": self.xid}


COLUMNS = [
    Column[LabGpuRow]("NODE", lambda row: row.node),
    Column[LabGpuRow]("GPU", lambda row: row.index),
    Column[LabGpuRow]("MODEL", lambda row: row.gpu.model.name),
    Column[LabGpuRow]("STATE", lambda row: row.state),
    Column[LabGpuRow]("GPU %", lambda row: row.gpu.utilization[0]),
    Column[LabGpuRow]("MEMORY MiB", lambda row: f"{row.gpu.total_used_mib}/{row.gpu.model.memory_mib}"),
    Column[LabGpuRow]("CELSIUS", lambda row: row.gpu.celsius),
    Column[LabGpuRow]("WATTS", lambda row: row.gpu.watts),
    Column[LabGpuRow]("PROCESSES", lambda row: len(row.gpu.processes)),
    Column[LabGpuRow]("MIG", lambda row: len(row.mig.devices) if row.mig.enabled else None),
    Column[LabGpuRow]("LAST XID", lambda row: row.xid),
    Column[LabGpuRow]("ECC", lambda row: row.ecc, wide=True),
    Column[LabGpuRow]("NVLINKS", lambda row: row.links, wide=True),
    Column[LabGpuRow]("SLOWDOWNS", lambda row: [str(each) for each in row.gpu.slowdowns], wide=True),
    Column[LabGpuRow]("PCI", lambda row: row.gpu.pci, wide=True),
    Column[LabGpuRow]("UUID", lambda row: row.gpu.uuid, wide=True),
]


@app.command("list", help=_help("List the lab's GPUs as their drivers report them.", "list -o wide"))
def list_gpus(
    node: OneNode = None, kubeconfig: LabKubeconfig = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Print them."""
    from purser.lab.driver.node_mig import mig_states

    rows = []
    for each in lab_nodes(kubeconfig, node):
        state, mig = each.driver.state, mig_states(each.driver.folder)
        xids = {event.gpu: event.xid for event in state.events}
        rows += [LabGpuRow(each.name, i, gpu, mig[i], xids.get(i)) for i, gpu in enumerate(state.gpus)]
    empty = f"Node {node} has no GPUs." if node else "The lab's nodes have no GPUs."
    show(rows, COLUMNS, output, empty=empty, document=LabGpuRow.document)


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
