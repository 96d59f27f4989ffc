"""`purser agent`: the node's device plugin."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purser.cli.options import (
    Context,
    DriverRootFile,
    DriverRoots,
    Kubeconfig,
    LogLevelOption,
    MetricsAddress,
    MetricsPort,
    NodeName,
)
from purser.cli.output import MISUSED, fail, one_of
from purser.cli.serving import LogLevel
from purser.core.names import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from purser.agent.settings import AgentSettings

HELP = """Serve one node: kubelet's device plugin for nvidia.com/gpu, health, metrics.

Runs on every node with GPUs, as root; the Helm chart's DaemonSet does so. SIGHUP looks for GPUs anew. Without a
driver, kubelet or API server it waits for them, and says so in its log and under /readyz.

Exit code: 0 it was told to stop; 1 it could not go on, such as for a port that is taken; 2 wrong usage: an option, or
the kubeconfig.

Example: purser agent --node-name $(hostname) --kubeconfig /etc/kubernetes/kubelet.conf
"""


def agent(
    node_name: NodeName,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[str, typer.Option(help="Where the scheduler keeps its public keys.")] = DEFAULT_NAMESPACE,
    mode: Annotated[str, typer.Option(help="shared: cards have slots; whole: one container per card.")] = "shared",
    slots: Annotated[int, typer.Option(help="How many containers may share a card.")] = 10,
    device_plugin_dir: Annotated[Path, typer.Option(help="kubelet's folder with kubelet.sock.")] = Path(
        "/var/lib/kubelet/device-plugins"
    ),
    pod_resources_socket: Annotated[Path, typer.Option(help="kubelet's PodResources API.")] = Path(
        "/var/lib/kubelet/pod-resources/kubelet.sock"
    ),
    kubelet_dir: Annotated[Path, typer.Option(help="kubelet's root folder, with its state files.")] = Path(
        "/var/lib/kubelet"
    ),
    kubelet_config: Annotated[
        Path | None, typer.Option(help="kubelet's configuration file; default: config.yaml in its root folder.")
    ] = None,
    state_dir: Annotated[Path, typer.Option(help="Where the agent keeps its checkpoint.")] = Path("/var/lib/purser"),
    host_root: Annotated[Path, typer.Option(help="Where the host's file system is mounted.")] = Path("/"),
    driver_library: Annotated[Path | None, typer.Option(help="The NVML library, when it is no usual place.")] = None,
    driver_root: DriverRoots = None,
    driver_root_file: DriverRootFile = None,
    sysfs_root: Annotated[Path, typer.Option(help="Where sysfs is mounted.")] = Path("/sys"),
    hami_core_dir: Annotated[
        Path, typer.Option(help="On the host: folder of HAMi-core's libvgpu.so and ld.so.preload.")
    ] = Path("/usr/local/vgpu"),
    pass_device_specs: Annotated[bool, typer.Option(help="Name /dev/nvidia* to kubelet as well.")] = False,
    device_list_strategy: Annotated[
        str,
        typer.Option(
            help="How it is told which devices a container gets: envvar, or what no pod can replace as well: "
            "volume-mounts (the container toolkit has to accept them), cdi-annotations or cdi-cri (the runtime needs "
            "the toolkit's CDI specification)."
        ),
    ] = "envvar",
    metrics_address: MetricsAddress = "0.0.0.0",
    metrics_port: MetricsPort = 9440,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the agent until it is told to stop."""
    import asyncio

    from purser.agent.driver_roots import driver_roots
    from purser.agent.nvml import Driver, open_driver
    from purser.agent.run import run
    from purser.cli.serving import configure_logs, serve
    from purser.kube import Client, ClusterConfig

    def find_driver() -> Driver:
        roots = driver_roots(driver_root_file, driver_root or (), host_root)
        return open_driver(library=driver_library, driver_roots=roots, sysfs_root=sysfs_root)

    settings = _settings(
        node_name=node_name,
        namespace=namespace,
        mode=mode,
        slots=slots,
        device_plugin_dir=device_plugin_dir,
        pod_resources_socket=pod_resources_socket,
        kubelet_dir=kubelet_dir,
        kubelet_config=kubelet_config,
        sysfs_root=sysfs_root,
        state_dir=state_dir,
        host_root=host_root,
        hami_core_dir=hami_core_dir,
        pass_device_specs=pass_device_specs,
        device_list=device_list_strategy,
        metrics_host=metrics_address,
        metrics_port=metrics_port,
    )
    configure_logs(log_level)
    reload = asyncio.Event()

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        driver = find_driver()
        try:
            async with Client(config, field_manager="purser-agent", user_agent="purser-agent") as client:
                await run(settings, client, driver, stop, reload=reload, find_driver=find_driver)
        finally:
            driver.close()

    serve(main, on_hangup=reload.set)


def _settings(*, mode: str, device_list: str, **options: object) -> "AgentSettings":
    import os

    from purser.agent.allocation import DeviceList
    from purser.agent.nvml import XidPolicy
    from purser.agent.settings import AgentSettings
    from purser.core.model import DeviceMode

    try:
        return AgentSettings(
            mode=DeviceMode(one_of("--mode", mode, (DeviceMode.SHARED, DeviceMode.WHOLE))),
            device_list=DeviceList(one_of("--device-list-strategy", device_list, tuple(DeviceList))),
            xid_policy=XidPolicy.from_environment(os.environ),
            **options,  # type: ignore[arg-type]
        )
    except ValueError as error:
        fail(str(error), MISUSED)
