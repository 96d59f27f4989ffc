"""`purser lab gpu process`: what runs on the GPUs of a running lab."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli.groups import CommandGroup
from purser.cli.lab_node import CODES, GpuName, LabKubeconfig, NodeName, OneNode, gpu_of, lab_nodes, one_of, refusals
from purser.cli.options import DocumentOption, OutputOption
from purser.cli.output import MISUSED, Column, DocumentFormat, OutputFormat, dump, fail, show

if TYPE_CHECKING:
    from purser.lab.driver.parts import ProcessState
    from purser.lab.kubelet.runtime import ContainerRecord
    from purser.lab.processes import GpuProcesses

HELP = f"""Start and stop simulated processes on GPUs. The driver lists the processes, and /proc below the node's root
shows their containers, but no real process runs. A process stops together with its pod.

{CODES}

Example: purser lab gpu process list
"""

MAX_PID = 1 << 22
"""Linux has none above."""

START_HELP = f"""Start a process on a GPU or MIG device, and print the PID. The process runs in a container of --pod, or
outside of pods. With the --pid of a running process, that process also uses this GPU, or changes how much it uses.

{CODES}

Example: purser lab gpu process start a100-40gb-8-0 2 --pod default/train --memory 8Gi --sm 80

Example: purser lab gpu process start a100-40gb-8-0 3 --pid 4711 --memory 1Gi -o json
"""

app = typer.Typer(cls=CommandGroup, name="process", help=HELP, no_args_is_help=True, rich_markup_mode=None)


@dataclass(frozen=True)
class LabProcessRow:
    """A process on a GPU."""

    node: str
    index: int
    process: "ProcessState"
    owner: str
    """The container that it is in, as namespace/pod/container; empty: none."""

    @property
    def type(self) -> str:
        """Which of NVML's lists it is in."""
        return "graphics" if self.process.graphics else "mps" if self.process.mps else "compute"

    def document(self) -> dict[str, Any]:
        """All that is known of it."""
        import msgspec

        plain: dict[str, Any] = msgspec.to_builtins(self.process)
        return {"node": self.node, "gpu": self.index, "container": self.owner, **plain}


COLUMNS = [
    Column[LabProcessRow]("NODE", lambda row: row.node),
    Column[LabProcessRow]("GPU", lambda row: row.index),
    Column[LabProcessRow]("PID", lambda row: row.process.pid),
    Column[LabProcessRow]("CONTAINER", lambda row: row.owner),
    Column[LabProcessRow]("MEMORY MiB", lambda row: row.process.memory_mib),
    Column[LabProcessRow]("SM %", lambda row: row.process.sm_percent),
    Column[LabProcessRow]("TYPE", lambda row: row.type),
    Column[LabProcessRow]("MEMORY %", lambda row: row.process.memory_percent, wide=True),
    Column[LabProcessRow]("ENCODER %", lambda row: row.process.encoder_percent, wide=True),
    Column[LabProcessRow]("DECODER %", lambda row: row.process.decoder_percent, wide=True),
    Column[LabProcessRow]("GPU INSTANCE", lambda row: row.process.gpu_instance, wide=True),
    Column[LabProcessRow]("COMPUTE INSTANCE", lambda row: row.process.compute_instance, wide=True),
]


@app.command(
    "list", help=f"List the processes on the lab's GPUs.\n\n{CODES}\n\nExample: purser lab gpu process list -o wide"
)
def list_processes(
    node: OneNode = None,
    kubeconfig: LabKubeconfig = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print them."""
    rows = [
        LabProcessRow(each.name, index, process, each.processes.owner(process.pid))
        for each in lab_nodes(kubeconfig, node)
        for index, gpu in enumerate(each.driver.state.gpus)
        for process in gpu.processes
    ]
    empty = f"No processes are running on the GPUs of {f'node {node}' if node else 'the lab'}."
    show(rows, COLUMNS, output, empty=empty, document=LabProcessRow.document)


@app.command("start", help=START_HELP)
def start(
    node: NodeName,
    gpu: GpuName,
    pod: Annotated[
        str | None,
        typer.Option(help="Pod in which the process runs: NAMESPACE/NAME, or NAME for a pod in the default namespace."),
    ] = None,
    container: Annotated[
        str | None,
        typer.Option(help="Container in which the process runs. Default: the pod's container that started last."),
    ] = None,
    pid: Annotated[int | None, typer.Option(min=1, max=MAX_PID, help="PID of the process. Default: a new PID.")] = None,
    memory: Annotated[str, typer.Option(help="GPU memory that the process uses, such as 512Mi or 8Gi.")] = "0",
    sm: Annotated[int, typer.Option(min=0, max=100, help="GPU utilization in percent.")] = 0,
    memory_utilization: Annotated[int, typer.Option(min=0, max=100, help="Memory utilization in percent.")] = 0,
    encoder: Annotated[int, typer.Option(min=0, max=100, help="Encoder utilization in percent.")] = 0,
    decoder: Annotated[int, typer.Option(min=0, max=100, help="Decoder utilization in percent.")] = 0,
    graphics: Annotated[
        bool, typer.Option("--graphics", help="Start a graphics process instead of a compute process.")
    ] = False,
    mps: Annotated[bool, typer.Option("--mps", help="Start the process as an MPS client.")] = False,
    cgroup: Annotated[str, typer.Option(help="cgroup version on the host: v1 or v2.")] = "v2",
    cgroup_driver: Annotated[str, typer.Option(help="kubelet's cgroup driver: systemd or cgroupfs.")] = "systemd",
    kubeconfig: LabKubeconfig = None,
    output: DocumentOption = DocumentFormat.TEXT,
) -> None:
    """Start it."""
    from purser.lab.driver.parts import ProcessLoad
    from purser.lab.processes import CgroupDriver, CgroupVersion

    if graphics and mps:
        fail("--graphics and --mps cannot be used together", MISUSED)
    version = one_of(CgroupVersion, "--cgroup", cgroup)
    driver = one_of(CgroupDriver, "--cgroup-driver", cgroup_driver)
    load = ProcessLoad(
        memory_mib=_mib(memory),
        graphics=graphics,
        mps=mps,
        sm_percent=sm,
        memory_percent=memory_utilization,
        encoder_percent=encoder,
        decoder_percent=decoder,
    )
    [found] = lab_nodes(kubeconfig, node)
    with refusals():
        inside = _container(found.processes, pod, container)
        started = found.processes.start(gpu_of(gpu), load, container=inside, pid=pid, version=version, driver=driver)
    if output is not DocumentFormat.TEXT:
        dump({"node": node, "gpu": gpu, "pid": started}, output)
        return
    print(f"process/{started} on gpu/{gpu} on node/{node} started")


@app.command(
    "stop",
    help=f"Stop a process on all its GPUs.\n\n{CODES}\n\nExample: purser lab gpu process stop a100-40gb-8-0 10001",
)
def stop(
    node: NodeName,
    pid: Annotated[int, typer.Argument(metavar="PID", help="PID, as shown by purser lab gpu process list.")],
    kubeconfig: LabKubeconfig = None,
) -> None:
    """End it."""
    [found] = lab_nodes(kubeconfig, node)
    with refusals():
        found.processes.stop(pid)
    print(f"process/{pid} on node/{node} stopped")


def _container(processes: "GpuProcesses", pod: str | None, container: str | None) -> "ContainerRecord | None":
    if pod is None:
        if container is not None:
            fail("--container requires --pod", MISUSED)
        return None
    namespace, _, name = pod.rpartition("/")
    return processes.container(namespace or "default", name, container)


def _mib(text: str) -> int:
    from purser.core.kubernetes.quantities import QuantityError, quantity_mib

    try:
        found = quantity_mib(text)
    except QuantityError as error:
        fail(f"--memory {text}: {error}", MISUSED)
    if found < 0:
        fail(f"invalid value {text!r} for --memory: must not be negative", MISUSED)
    return found
