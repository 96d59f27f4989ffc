"""`purser lab gpu mig`: into what the GPUs of a running lab are cut."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import typer

from purser.cli.groups import CommandGroup
from purser.cli.lab_node import (
    GpuName,
    LabKubeconfig,
    NodeName,
    OneNode,
    change,
    gpu_of,
    help_of,
    lab_nodes,
    refusals,
)
from purser.cli.options import DocumentOption, OutputOption
from purser.cli.output import Column, DocumentFormat, OutputFormat, dump, show

_help = partial(help_of, "purser lab gpu mig")

app = typer.Typer(
    cls=CommandGroup,
    name="mig",
    help=_help("Partition GPUs into MIG devices.", "create a100-40gb-8-0 2 3g.20gb"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class LabMigRow:
    """A MIG device."""

    node: str
    gpu: int
    profile: str
    start: int
    size: int
    gpu_instance: int
    compute_instance: int
    processes: int
    uuid: str

    def document(self) -> dict[str, Any]:
        """All that is known of it."""
        return asdict(self)


COLUMNS = [
    Column[LabMigRow]("NODE", lambda row: row.node),
    Column[LabMigRow]("GPU", lambda row: row.gpu),
    Column[LabMigRow]("PROFILE", lambda row: row.profile),
    Column[LabMigRow]("PLACEMENT", lambda row: f"{row.start}:{row.size}"),
    Column[LabMigRow]("PROCESSES", lambda row: row.processes),
    Column[LabMigRow]("UUID", lambda row: row.uuid),
    Column[LabMigRow]("GPU INSTANCE", lambda row: row.gpu_instance, wide=True),
    Column[LabMigRow]("COMPUTE INSTANCE", lambda row: row.compute_instance, wide=True),
]


@app.command("list", help=_help("List the lab's MIG devices.", "list -o wide"))
def list_devices(
    node: OneNode = None,
    kubeconfig: LabKubeconfig = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print them."""
    from purser.lab.driver.mig import device_name, mig_uuid, profile_of
    from purser.lab.driver.node_mig import mig_states

    rows = []
    for each in lab_nodes(kubeconfig, node):
        for index, (gpu, mig) in enumerate(zip(each.driver.state.gpus, mig_states(each.driver.folder), strict=True)):
            for place in mig.devices:
                inside = [p for p in gpu.processes if (p.gpu_instance, p.compute_instance) == place]
                start, size = mig.instances[place[0]].start, profile_of(gpu, mig, place[0]).size
                name, uuid = device_name(gpu, mig, *place), mig_uuid(gpu.uuid, *place)
                rows.append(LabMigRow(each.name, index, name, start, size, *place, len(inside), uuid))
    empty = f"Node {node} has no MIG devices." if node else "The lab has no MIG devices."
    show(rows, COLUMNS, output, empty=empty, document=LabMigRow.document)


@app.command(
    "on",
    help=_help(
        "Enable MIG mode. If the GPU is in use, the change takes effect at the next reset.", "on a100-40gb-8-0 2"
    ),
)
def on(node: NodeName, gpu: GpuName, kubeconfig: LabKubeconfig = None) -> None:
    """Turn it on."""
    from purser.lab.driver.node_mig import set_mig

    change(kubeconfig, node, gpu, "is in MIG mode", lambda driver, one: set_mig(driver.folder, one, enabled=True))


@app.command(
    "off",
    help=_help(
        "Disable MIG mode. If the GPU is in use, the change takes effect at the next reset.", "off a100-40gb-8-0 2"
    ),
)
def off(node: NodeName, gpu: GpuName, kubeconfig: LabKubeconfig = None) -> None:
    """Turn it off."""
    from purser.lab.driver.node_mig import set_mig

    change(kubeconfig, node, gpu, "is not in MIG mode", lambda driver, one: set_mig(driver.folder, one, enabled=False))


@app.command(
    "create",
    help=_help(
        "Create a GPU instance with a compute instance, and print the UUID of the MIG device.",
        "create a100-40gb-8-0 2 3g.20gb --start 4",
        "create a100-40gb-8-0 2 2g.10gb --slices 1 -o json",
    ),
)
def create(
    node: NodeName,
    gpu: GpuName,
    profile: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE", help="Profile, such as 1g.5gb. The supported profiles depend on the GPU model."
        ),
    ],
    start: Annotated[int | None, typer.Option(min=0, help="First memory slice. Default: the driver chooses.")] = None,
    slices: Annotated[
        int | None, typer.Option(min=1, help="Number of compute slices in the compute instance. Default: all.")
    ] = None,
    kubeconfig: LabKubeconfig = None,
    output: DocumentOption = DocumentFormat.TEXT,
) -> None:
    """Create it."""
    from purser.lab.driver.node_mig import create_mig

    [found] = lab_nodes(kubeconfig, node)
    with refusals():
        uuid = create_mig(found.driver.folder, gpu_of(gpu), profile, start=start, slices=slices)
    if output is DocumentFormat.TEXT:
        print(f"{uuid} on gpu/{gpu} on node/{node} created")
    else:
        dump({"node": node, "gpu": gpu, "profile": profile, "uuid": uuid}, output)


@app.command(
    "destroy",
    help=_help(
        "Destroy a MIG device. The driver does not destroy a device that a process uses.",
        "destroy a100-40gb-8-0 MIG-8f5c6d1e-2a4b-4f0e-9d3c-7b6a5e4d3c2b",
    ),
)
def destroy(
    node: NodeName,
    uuid: Annotated[
        str, typer.Argument(metavar="UUID", help="UUID of the MIG device, as shown by purser lab gpu mig list.")
    ],
    kubeconfig: LabKubeconfig = None,
) -> None:
    """Destroy it."""
    from purser.lab.driver.node_mig import destroy_mig

    [found] = lab_nodes(kubeconfig, node)
    with refusals():
        destroy_mig(found.driver.folder, uuid)
    print(f"{uuid} on node/{node} destroyed")
