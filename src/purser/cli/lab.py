"""`purser lab`: a cluster with simulated GPUs in this process. Commands for a running lab are in `lab_gpu`."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purser.cli import lab_gpu
from purser.cli.groups import CommandGroup
from purser.cli.output import FAILED, MISUSED, fail
from purser.cli.serving import LogLevel
from purser.core.kubelet.config import CpuPolicy, MemoryPolicy, TopologyPolicy, TopologyScope

if TYPE_CHECKING:
    import asyncio

    from purser.lab.cluster import Lab
    from purser.lab.controlplane.programs import Programs
    from purser.lab.progress import Progress
    from purser.lab.scenario.spec import LoadedScenario
    from purser.lab.settings import LabSettings

    Follow = Callable[[Lab, list[str]], Awaitable[None]]
    """What happens in a lab that is ready; what goes wrong is added to the list."""

HELP = """Start a cluster with simulated GPUs on this machine, without root, Docker or network.

The lab has an API server, emulated nodes, a simulated NVIDIA driver, and every part of Purser as in production. Press
Ctrl-C to stop and remove the lab. To change the GPUs of a running lab, use purser lab gpu.

With --demo, the lab shows in less than a minute, and without kubectl, how Purser places a share, handles a lost GPU and
explains why a pod waits. With --run, the lab runs a scenario and exits.

If KUBEBUILDER_ASSETS is a folder with etcd and kube-apiserver, they replace the lab's own API server. If the folder
also has kube-scheduler and kube-controller-manager, they replace those of the lab.

Exit code: 0 the lab was stopped, or every step of --run or --demo succeeded; 1 the lab could not run, or a step failed
or was interrupted; 2 wrong usage, or an invalid scenario.

Example: purser lab --node a100-40gb-8 --node t4-4:3

Example: purser lab --demo
"""

_PLAIN_WIDTH = 200


app = typer.Typer(cls=CommandGroup, name="lab", rich_markup_mode=None)
app.add_typer(lab_gpu.app, name="gpu")


@app.callback(invoke_without_command=True, help=HELP)
def lab(
    asked: typer.Context,
    node: Annotated[
        list[str] | None,
        typer.Option(
            help="Nodes to start: PROFILE or PROFILE:COUNT. May be repeated. PROFILE is a name, a path, or a device "
            "family of another vendor, such as hygon-dcu.",
            metavar="PROFILE",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Scenario file to run. The scenario defines its own nodes.", metavar="SCENARIO.yaml"),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Play a short demonstration on its own node, then exit.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the API server. 0 picks a free port.")] = 0,
    kubelet_version: Annotated[
        str | None,
        typer.Option(help="Version of the emulated kubelets, v1.20.0 or newer. Default: v1.36.2.", metavar="V1.X.Y"),
    ] = None,
    topology_policy: Annotated[
        TopologyPolicy | None, typer.Option(help="kubelet's topologyManagerPolicy on every node.", show_default=False)
    ] = None,
    topology_scope: Annotated[
        TopologyScope | None, typer.Option(help="kubelet's topologyManagerScope on every node.", show_default=False)
    ] = None,
    cpu_manager: Annotated[
        CpuPolicy | None, typer.Option(help="kubelet's cpuManagerPolicy on every node.", show_default=False)
    ] = None,
    memory_manager: Annotated[
        MemoryPolicy | None, typer.Option(help="kubelet's memoryManagerPolicy on every node.", show_default=False)
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of containers per GPU. Default: 10. With --operator, the ClusterPolicy sets this.",
            show_default=False,
        ),
    ] = None,
    device_plugin_configs: Annotated[
        Path | None,
        typer.Option(
            help="Folder with NVIDIA device plugin files. The node label nvidia.com/device-plugin.config selects one.",
            metavar="FOLDER",
        ),
    ] = None,
    decision_log_folder: Annotated[
        Path | None,
        typer.Option(help="Folder for the scheduler's decision log, which purser replay reads.", metavar="FOLDER"),
    ] = None,
    adopt_scheduler_name: Annotated[
        list[str] | None,
        typer.Option(
            help="schedulerName of another scheduler, such as volcano, whose GPU pods Purser places. May be repeated.",
            metavar="NAME",
        ),
    ] = None,
    serve_scheduler_name: Annotated[
        list[str] | None,
        typer.Option(
            help="schedulerName of another scheduler that you run beside the lab. It places its GPU pods on nodes, and "
            "Purser assigns the GPUs. May be repeated.",
            metavar="NAME",
        ),
    ] = None,
    memory_unit: Annotated[
        list[str] | None,
        typer.Option(
            help="MiB per unit of a memory resource, such as aliyun.com/gpu-mem=1. May be repeated.",
            metavar="RESOURCE=MIB",
        ),
    ] = None,
    managed_resource: Annotated[
        list[str] | None,
        typer.Option(
            help="Additional resource name for GPUs, like the chart value scheduler.kubeScheduler.managedResources. "
            "Names in --device-plugin-configs are already known. May be repeated.",
            metavar="RESOURCE",
        ),
    ] = None,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator", help="Also run Purser's operator. The agents are then rolled out by a ClusterPolicy."
        ),
    ] = False,
    log_level: Annotated[LogLevel, typer.Option(help="Log level of the cluster's components.")] = LogLevel.WARNING,
) -> None:
    """Run a lab until it is stopped, or until its scenario is over."""
    if asked.invoked_subcommand is not None:
        return
    import os
    import sys
    from dataclasses import replace

    from purser.lab.progress import Progress

    # gRPC's C core writes lines of its own whenever a kubelet or a plugin ends; it reads this when it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    progress = Progress(sys.stderr)
    progress.doing("Loading Purser")
    from purser.cli.serving import configure_logs
    from purser.lab.demo import demo_settings
    from purser.lab.kubelet.configuration import KubeletSection
    from purser.lab.scenario import ScenarioError, load
    from purser.lab.settings import LabSettings, chosen_nodes

    if run is not None and node:
        fail("--node cannot be used with --run, because the scenario defines its nodes", MISUSED)
    if demo and (run is not None or node or operator):
        fail(
            "--demo cannot be used with --node, --run or --operator: the demonstration has its own node and pods",
            MISUSED,
        )
    kubelet = KubeletSection(
        version=kubelet_version,
        topologyManagerPolicy=topology_policy,
        topologyManagerScope=topology_scope,
        cpuManagerPolicy=cpu_manager,
        memoryManagerPolicy=memory_manager,
    )
    try:
        scenario = load(run) if run is not None else None
        nodes, hollow = chosen_nodes(node or ())
        chosen = scenario.settings if scenario else LabSettings(nodes, hollow=hollow, operator=operator)
        chosen = demo_settings() if demo else chosen
        settings = replace(
            chosen,
            port=port,
            programs=_programs(),
            kubelet=kubelet.over(chosen.kubelet),
            slots=chosen.slots if slots is None else slots,
            device_plugin_configs=device_plugin_configs,
            decision_log_folder=decision_log_folder,
            **_with_device_plugin_names(
                {
                    "adopt-scheduler-name": adopt_scheduler_name,
                    "serve-scheduler-name": serve_scheduler_name,
                    "memory-unit": memory_unit,
                    "managed-resource": managed_resource,
                }
            ),
        )
    except (ScenarioError, ValueError) as error:
        fail(str(error), MISUSED)
    configure_logs(LogLevel.ERROR if demo else log_level)
    _run(settings, progress, partial(_run_scenario, scenario) if scenario else _play_demo if demo else None)


def _with_device_plugin_names(given: dict[str, list[str] | None]) -> dict[str, Any]:
    """Fields of the settings, of the scheduler's options that a lab has, too. Raises ValueError."""
    from purser.options import settings_from
    from purser.scheduler.settings import SchedulerSettings

    read = settings_from(SchedulerSettings, given, {})
    return {
        "adopted_scheduler_names": read.adopted_scheduler_names,
        "served_scheduler_names": read.served_scheduler_names,
        "memory_units": read.memory_units,
        "managed_resources": read.managed_resources,
    }


def _programs() -> "Programs | None":
    """The control plane's programs in KUBEBUILDER_ASSETS; None where that is not set. Raises ValueError."""
    import os

    from purser.lab.controlplane.programs import ASSETS_VARIABLE, Programs

    assets = os.environ.get(ASSETS_VARIABLE)
    return Programs.find(Path(assets)) if assets else None


def _run(settings: "LabSettings", progress: "Progress", follow: "Follow | None") -> None:
    """Run the lab until it is stopped, or until what it follows is over. Exits with 1 if that failed."""
    from purser.cli.kernels import choose_kernels
    from purser.cli.serving import serve

    # A handful of nodes is decided as fast without numba, which takes seconds to compile at a machine's first start.
    choose_kernels("numpy")
    failures: list[str] = []
    try:
        serve(
            _follow_until_stopped(settings, progress, follow, failures)
            if follow
            else _show_until_stopped(settings, progress)
        )
    finally:
        progress.done()
    if failures:
        raise typer.Exit(FAILED)


def _show_until_stopped(settings: "LabSettings", progress: "Progress") -> "Callable[[asyncio.Event], Awaitable[None]]":
    async def main(stop: "asyncio.Event") -> None:
        import sys
        import time

        from rich.console import Console

        from purser.cli.web import pages_of
        from purser.kube.racing import until
        from purser.lab.cluster import Lab
        from purser.lab.screen import show, surroundings

        start = time.monotonic()
        async with Lab(settings, progress.doing) as running:
            await until(running.ready(), stop.wait())
            progress.done()
            if not stop.is_set():
                seconds = time.monotonic() - start
                # In a file or a pipe nothing is gained by cutting lines.
                console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
                async with pages_of(running.client) as url:
                    show(running, seconds, console, surroundings(), url)
                    await stop.wait()

    return main


def _follow_until_stopped(
    settings: "LabSettings", progress: "Progress", follow: "Follow", failures: list[str]
) -> "Callable[[asyncio.Event], Awaitable[None]]":
    async def main(stop: "asyncio.Event") -> None:
        from purser.kube.racing import until
        from purser.lab.cluster import Lab

        async def ready_and_follow(running: "Lab") -> None:
            await running.ready()
            progress.done()
            await follow(running, failures)

        async with Lab(settings, progress.doing) as running:
            await until(ready_and_follow(running), stop.wait())
        if stop.is_set():
            failures.append("stopped")

    return main


async def _run_scenario(scenario: "LoadedScenario", running: "Lab", failures: list[str]) -> None:
    from purser.lab.scenario import run_scenario

    async for verdict in run_scenario(running, scenario):
        word = "FAILED" if verdict.problem else "ok"
        print(f"{word:6} {verdict.number}/{verdict.of} {verdict.step}  {verdict.seconds:.1f} s", flush=True)
        if verdict.problem:
            print(f"       {verdict.problem}", flush=True)
            failures.append(verdict.problem)


async def _play_demo(running: "Lab", failures: list[str]) -> None:
    import sys

    from purser.kube.errors import KubeError
    from purser.lab.demo import DemoError, play
    from purser.lab.screen import next_steps, surroundings

    try:
        async for lines in play(running):
            typer.secho(lines, bold=lines.startswith("#"))
    except (DemoError, KubeError) as error:
        print(f"error: {error}", file=sys.stderr)
        failures.append(str(error))
        return
    for line in next_steps(surroundings()):
        print(line)
