"""The first screen of `purser lab`: what runs, where, and what to try. Plain text where there is no terminal."""

import shutil
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from purser.core.kubelet.config import KubeletConfig, TopologyPolicy
from purser.lab.cluster import PARTS, Lab
from purser.lab.driver import DriverKind
from purser.lab.faults import LOST_GPUS_ANNOTATION

_KINDS = {
    DriverKind.LIBRARY: "C library, through the real NVML binding",
    DriverKind.PYTHON: "in Python, for no C compiler is at hand",
}

_EXAMPLE = Path("examples/share.yaml")
"""In a checkout; a wheel has no examples."""

_POLICY = Path("examples/clusterpolicy.yaml")
"""Likewise; for a lab with the operator."""


def show(lab: Lab, seconds: float, console: Console) -> None:
    """Print the screen for a lab that is ready."""
    kinds = sorted({_KINDS[node.driver.kind] for node in lab.nodes.values()})
    console.print(f"Purser lab: {len(lab.nodes)} nodes ready in {seconds:.1f} s", style="bold", highlight=False)
    _print(console, f"API server {lab.url}, simulated NVIDIA driver: {', '.join(kinds)}", *_control_plane(lab), "")
    console.print(_nodes(lab))
    _print(
        console,
        f"Metrics: http://127.0.0.1:PORT/metrics, those of the scheduler on port {lab.scheduler_metrics_port}",
        "",
    )
    _print(console, "In another terminal:")
    _print(console, f"  export KUBECONFIG={lab.kubeconfig}")
    if lab.settings.operator and _POLICY.exists():
        _print(console, f"  kubectl apply -f {_POLICY.absolute()}   # agents come with it")
    if _EXAMPLE.exists():
        _print(console, f"  kubectl apply -f {_EXAMPLE.absolute()}")
    _print(console, f"  {_purser()} get gpus")
    _print(console, f"  kubectl annotate node {next(iter(lab.nodes))} {LOST_GPUS_ANNOTATION}=0   # a card dies", "")
    if shutil.which("kubectl") is None:
        _print(console, "There is no kubectl on this PATH: https://kubernetes.io/docs/tasks/tools/ says how to get it.")
    _print(console, "Ctrl-C ends the lab and removes it.")


def _purser() -> str:
    """How another terminal calls this command: `make lab` puts nothing on anybody's PATH."""
    here = str(Path(sys.executable).with_name("purser"))
    return "purser" if shutil.which("purser") == here else here


def _control_plane(lab: Lab) -> list[str]:
    """What is real of it, and where its logs are; nothing to say where all of it is the lab's own."""
    if not lab.real:
        return []
    real = ", ".join(f"{lab.real[part]} ({part})" for part in PARTS if part in lab.real)
    rest = ", ".join(part for part in PARTS if part not in lab.real) or "no part"
    return [f"Real: etcd, {real}; the lab's stand-ins: {rest}", f"Logs of what is real: {lab.folder / 'logs'}"]


def _nodes(lab: Lab) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("NODE", "KUBELET", "SHARES PER CARD", "METRICS PORT", "CARDS"):
        table.add_column(head, no_wrap=True)
    for choice in lab.settings.nodes:
        node = lab.nodes[choice.name]
        models = Counter(choice.profile.model_of(gpu).name for gpu in choice.profile.gpus)
        cards = ", ".join(f"{count} x {model}" for model, count in models.items())
        kubelet = _kubelet(lab.settings.kubelet_of(choice).config)
        table.add_row(choice.name, kubelet, str(lab.settings.slots), str(node.metrics_port), cards)
    return table


def _kubelet(config: KubeletConfig) -> str:
    """Its version, and its topology policy where it aligns anything."""
    policy = config.topology_policy
    return config.version if policy is TopologyPolicy.NONE else f"{config.version} {policy}"


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
