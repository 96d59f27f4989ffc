"""`purser lab gpu`: what the GPUs of a running lab report. What is done to them is in `lab_faults`, `lab_parts`,
`lab_load`, `lab_process` and `lab_mig`."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from purser.cli import lab_faults, lab_load, lab_mig, lab_parts, lab_process
from purser.cli.groups import CommandGroup
from purser.cli.lab_node import CODES, LabKubeconfig, OneNode, help_of, lab_nodes
from purser.cli.options import OutputOption
from purser.cli.output import Column, OutputFormat, show

if TYPE_CHECKING:
    from purser.lab.driver.mig import MigState
    from purser.lab.driver.state import GpuState

_help = partial(help_of, "purser lab gpu")

app = typer.Typer(
    cls=CommandGroup,
    name="gpu",
    help="Change GPUs of a running lab: processes, load, faults, MIG. Clients of the driver see changes immediately."
    f"\n\n{CODES}\n\nExample: purser lab gpu list",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(lab_faults.app)
app.add_typer(lab_parts.app)
app.add_typer(lab_load.app)
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
