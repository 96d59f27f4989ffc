"""Publishes facts of the node in an annotation: for clusters without node-feature-discovery, and on GPU nodes for the
models of their GPUs, which that does not report.

Reads only the host's files: no driver, no GPU library. The node is only written when facts differ from the annotation.
"""

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog

from purser.agent.host.files import read_head
from purser.agent.host.sysfs import NVIDIA_VENDOR
from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.facts import NodeFacts, PciGpu, decode_facts
from purser.kube import Client, KubeError
from purser.kube.racing import until
from purser.kube.resources import NODES
from purser.options import HOST_ROOT, NODE_NAME, SYSFS_ROOT

log = structlog.get_logger("purser.agent")

DISPLAY_CLASS = "0x03"
"""First byte of a display controller's PCI class: VGA 0x0300, 3D 0x0302."""

DISTRIBUTIONS = {
    "k3s": ("var/lib/rancher/k3s", "etc/rancher/k3s"),
    "rke2": ("var/lib/rancher/rke2", "etc/rancher/rke2"),
    "k0s": ("var/lib/k0s", "etc/k0s"),
    "microk8s": ("var/snap/microk8s",),
}
"""Folders that these distributions of Kubernetes keep on a host."""

_OS_RELEASE = ("etc/os-release", "usr/lib/os-release")  # in this order: os-release(5)
_MAX_OS_RELEASE_BYTES = 64 * 1024
_READS_BETWEEN_CHECKS = 10  # looks between two checks of the node's annotation, which may have been removed


@dataclass(frozen=True)
class DiscoverySettings:
    """Settings of `purser discover`. The options are described in `purser.options`."""

    node_name: Annotated[str, NODE_NAME]
    host_root: Annotated[Path, HOST_ROOT] = Path("/")
    sysfs_root: Annotated[Path, SYSFS_ROOT] = Path("/sys")
    interval_s: float = 60.0
    """Between two looks. GPUs come and go with the machine's power, or by hand."""


async def run(settings: DiscoverySettings, client: Client, stop: asyncio.Event) -> None:
    """Keep the node's facts up to date until ``stop`` is set; the annotation stays. An unexpected error ends the
    process, and its DaemonSet restarts it.
    """
    await until(_run(settings, client), stop.wait())


async def _run(settings: DiscoverySettings, client: Client) -> None:
    written: NodeFacts | None = None
    reads = 0
    while True:
        facts = await asyncio.to_thread(read_facts, settings)
        if facts != written or reads % _READS_BETWEEN_CHECKS == 0:
            written = facts if await _publish(settings.node_name, facts, client) else None
        reads += 1
        await asyncio.sleep(settings.interval_s)


async def _publish(node_name: str, facts: NodeFacts, client: Client) -> bool:
    """Whether the facts stand at the node now."""
    try:
        node = await client.get(NODES, node_name)
        if decode_facts(node.metadata.annotations.get(NODE_FACTS_ANNOTATION)) != facts:
            annotations = {NODE_FACTS_ANNOTATION: encode(facts)}
            await client.patch_merge(NODES, node_name, {"metadata": {"annotations": annotations}})
            log.info("Published the node's facts", node=node_name, gpus=len(facts.gpus), os=facts.os_id)
    except KubeError as error:
        log.warning("Cannot publish the node's facts", node=node_name, error=str(error))
        return False
    return True


def read_facts(settings: DiscoverySettings) -> NodeFacts:
    """What the host's files say. What cannot be read is as if it were not there: the other facts still count."""
    os_release = _os_release(settings.host_root)
    return NodeFacts(
        os_id=os_release.get("ID", ""),
        os_version=os_release.get("VERSION_ID", ""),
        gpus=_gpus(settings.sysfs_root),
        distribution=_distribution(settings.host_root),
    )


def _gpus(sysfs_root: Path) -> tuple[PciGpu, ...]:
    devices = sorted((sysfs_root / "bus/pci/devices").glob("*"))
    return tuple(
        PciGpu(_pci_id(device / "device"), _pci_id(device / "subsystem_device"))
        for device in devices
        if _is_gpu(device)
    )


def _pci_id(path: Path) -> str:
    return _text(path).removeprefix("0x").lower()


def _is_gpu(device: Path) -> bool:
    return _text(device / "vendor").lower() == NVIDIA_VENDOR and _text(device / "class").lower().startswith(
        DISPLAY_CLASS
    )


def _distribution(host_root: Path) -> str:
    for name, folders in DISTRIBUTIONS.items():
        if any((host_root / folder).is_dir() for folder in folders):
            return name
    return ""


def _os_release(host_root: Path) -> dict[str, str]:
    for name in _OS_RELEASE:
        text = _text(_resolve_in_host(host_root, host_root / name))
        if text:
            return dict(_parse_assignments(text))
    return {}


def _resolve_in_host(host_root: Path, path: Path) -> Path:
    """A link to an absolute path means the host's, not this container's."""
    if path.is_symlink():
        target = path.readlink()
        if target.is_absolute():
            return host_root / target.relative_to("/")
    return path


def _parse_assignments(text: str) -> list[tuple[str, str]]:
    """os-release's lines: NAME=value, quoted as a shell would; lines that make no sense are passed over."""
    found = []
    for line in text.splitlines():
        name, separator, value = line.strip().partition("=")
        if separator and not name.startswith("#"):
            found.append((name, _unquote(value)))
    return found


def _unquote(value: str) -> str:
    try:
        return "".join(shlex.split(value)[:1])
    except ValueError:
        return value


def _text(path: Path) -> str:
    try:
        return read_head(path, _MAX_OS_RELEASE_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
