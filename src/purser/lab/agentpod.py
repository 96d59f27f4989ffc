"""An agent's settings as the pod of the operator's DaemonSet gives them, at the lab's own places."""

import argparse
import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from purser.agent.settings import AgentSettings
from purser.kube.client import Client
from purser.kube.informer import Informer
from purser.kube.objects import ConfigMap
from purser.kube.resources import CONFIG_MAPS
from purser.lab.driver.files import write_atomically
from purser.lab.kubelet.pods import Raw, pod_environment
from purser.options import OptionField, Variables, settings_from, settings_of

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def is_agent_pod(pod: Raw) -> bool:
    """Whether a pod of the device plugin is Purser's agent, which the lab runs; NVIDIA's plugin it does not have."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get("app.kubernetes.io/component") == "agent")


def settings_of_pod(pod: Raw, node: str, at: AgentSettings) -> AgentSettings:
    """What the pod's arguments and environment say, with the places, ports and intervals of ``at``.

    How GPUs are named to a container runtime is that of ``at``, too: the lab has no runtime. Raises ValueError.
    """
    [container] = pod["spec"]["containers"]
    environment = pod_environment(pod, container, node)
    arguments = [_VARIABLE.sub(lambda found: environment.get(found[1], found[0]), each) for each in container["args"]]
    settings = settings_from(AgentSettings, agent_options(arguments[2:], environment), environment)
    sharing = settings.sharing
    if sharing.folder is not None or at.sharing.folder is not None:
        sharing = replace(sharing, folder=at.sharing.folder or at.state_dir / "configs")
    flags = replace(sharing.flags, device_lists=at.sharing.flags.device_lists, cdi_hook=at.sharing.flags.cdi_hook)
    return replace(
        settings,
        device_plugin_dir=at.device_plugin_dir,
        pod_resources_socket=at.pod_resources_socket,
        kubelet_dir=at.kubelet_dir,
        kubelet_config=at.kubelet_config,
        sysfs_root=at.sysfs_root,
        state_dir=at.state_dir,
        host_root=at.host_root,
        sharing=replace(sharing, flags=flags),
        managed_resources=(*settings.managed_resources, *at.managed_resources),
        probe_interval_s=at.probe_interval_s,
        recovery_s=at.recovery_s,
        reopen_interval_s=at.reopen_interval_s,
        metrics_address=at.metrics_address,
        metrics_port=at.metrics_port,
    )


def agent_options(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """The agent's options on a command line, or in the variables that stand for them, for `settings_from`. Raises
    ValueError."""
    parser = _Parser(allow_abbrev=False, add_help=False)
    for each in settings_of(AgentSettings):
        if isinstance(each.option, Variables):
            continue
        how: dict[str, Any] = {"type": _type_of(each), "default": environment.get(each.option.environment)}
        if each.kind is bool:
            how = {"action": argparse.BooleanOptionalAction}
        elif each.option.repeated:
            how["action"] = "append"
        parser.add_argument(each.flag, dest=each.name, **how)
    return vars(parser.parse_args(list(arguments)))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _type_of(field: OptionField) -> type:
    """Of words and of what is read of a text, that text."""
    if field.words or (not isinstance(field.option, Variables) and field.option.read is not None):
        return str
    return Path if Path in (field.kind, *getattr(field.kind, "__args__", ())) else field.kind


async def mount_config_map(client: Client, pod: Raw, folder: Path, mounted: asyncio.Event | None = None) -> None:
    """Keep the files of the pod's ConfigMap in a folder, as kubelet does, until cancelled. Returns at once where the
    pod has none. ``mounted``: set once they are there."""
    volumes = (each["configMap"]["name"] for each in pod["spec"].get("volumes") or () if "configMap" in each)
    name = next(volumes, None)
    if name is None:
        return
    folder.mkdir(parents=True, exist_ok=True)

    def write(found: ConfigMap) -> None:
        for key, text in found.data.items():
            write_atomically(folder / key, text.encode())
        for path in folder.iterdir():
            if path.name not in found.data:
                path.unlink()
        if mounted is not None:
            mounted.set()

    where = {"namespace": pod["metadata"]["namespace"], "field_selector": f"metadata.name={name}"}
    informer = Informer(client, CONFIG_MAPS, **where)
    informer.add_handler(on_add=write, on_update=lambda _, new: write(new))
    await informer.run()
