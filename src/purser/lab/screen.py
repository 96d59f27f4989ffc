"""The first screen of `purser lab`: what runs, where, and what to try. Plain text where there is no terminal."""

import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from purser.core.kubelet.config import KubeletConfig, TopologyPolicy
from purser.lab.cluster import PARTS, Lab
from purser.lab.driver import DriverKind
from purser.operator.names import GROUP, KIND, PLURAL, VERSION

_KINDS = {
    DriverKind.LIBRARY: "a C library behind the real NVML bindings",
    DriverKind.PYTHON: "a Python module, because no C compiler was found",
}

_EXAMPLE_FILE, _POLICY_FILE = "share.yaml", "clusterpolicy.yaml"
"""What is applied first, and first where the operator runs."""

_NO_KUBECTL = "kubectl is not on your PATH. To install it, see https://kubernetes.io/docs/tasks/tools/"

_NAME = "gpus"
_ANY_POLICY = f'{{"apiVersion": "{GROUP}/{VERSION}", "kind": "{KIND}", "metadata": {{"name": "{_NAME}"}}}}'
_POLICIES = f"{PLURAL}.{GROUP}"


@dataclass(frozen=True)
class Surroundings:
    """What another terminal on this machine has for the commands that the screen proposes."""

    purser: str
    """How it calls Purser's command."""
    examples: Path | None
    """The examples of a checkout; a wheel has none."""
    kubectl: bool


def surroundings() -> Surroundings:
    """Of this process."""
    here = str(Path(sys.executable).with_name("purser"))
    examples = Path("examples").absolute()
    return Surroundings(
        purser="purser" if shutil.which("purser") == here else here,  # `make lab` puts nothing on the PATH
        examples=examples if (examples / _EXAMPLE_FILE).exists() else None,
        kubectl=shutil.which("kubectl") is not None,
    )


def show(lab: Lab, seconds: float, console: Console, around: Surroundings, pages: str = "") -> None:
    """Print the screen for a lab that is ready. ``pages``: the address of `purser.web`, if it is served."""
    kinds = sorted({_KINDS[node.driver.kind] for node in lab.nodes.values()})
    count = len(lab.nodes) + sum(each.count for each in lab.settings.hollow)
    nodes = f"{count} node{'' if count == 1 else 's'}"
    console.print(f"Purser lab: {nodes} ready in {seconds:.1f} s", style="bold", highlight=False)
    driver = f", simulated NVIDIA driver: {', '.join(kinds)}" if kinds else ""
    _print(console, f"API server {lab.url}{driver}", *_control_plane(lab))
    _print(console, *([f"The fleet in a browser: {pages}"] if pages else []), "")
    console.print(_nodes(lab))
    servers = [f"the scheduler on port {lab.scheduler_metrics_port}"]
    servers += [f"the operator on port {lab.operator_metrics_port}"] if lab.settings.operator else []
    servers += ["agents on their nodes' ports"] if lab.nodes else []
    _print(console, f"Metrics: http://127.0.0.1:PORT/metrics, served by {', '.join(servers)}", "")
    _print(console, "In another terminal:")
    _print(console, f"  export KUBECONFIG={lab.kubeconfig}")
    if lab.settings.operator:
        _print(console, *_operator_first_steps(around))
    if around.examples and lab.nodes:
        _print(console, f"  kubectl apply -f {around.examples / _EXAMPLE_FILE}")
    _print(console, f"  {around.purser} get gpus")
    if lab.settings.operator:
        _print(
            console,
            f"  {around.purser} operator uninstall --dry-run   # show what would be removed",
            "",
        )
    elif lab.nodes:
        _print(console, f"  {around.purser} lab gpu lose {next(iter(lab.nodes))} 0   # make a GPU fail", "")
    if not around.kubectl:
        _print(console, _NO_KUBECTL, f"A demonstration without kubectl: {around.purser} lab --demo")
    _print(console, "Press Ctrl-C to stop and remove the lab.")


def next_steps(around: Surroundings) -> list[str]:
    """What to try after the demonstration."""
    lines = [
        "The demonstration is over and its lab has been removed. To try this yourself, start a lab that keeps running:"
    ]
    return [*lines, f"  {around.purser} lab", *([] if around.kubectl else [_NO_KUBECTL])]


def _operator_first_steps(around: Surroundings) -> list[str]:
    """Agents, and with them GPUs, come with a policy only."""
    apply = (
        f"kubectl apply -f {around.examples / _POLICY_FILE}"
        if around.examples
        else f"echo '{_ANY_POLICY}' | kubectl apply -f -"
    )
    upgrade = '{"spec": {"driver": {"version": "590.10"}}}'
    return [
        f"  {apply}   # roll out a GPU stack, in order on each node",
        f"  kubectl get {_POLICIES} --watch   # wait until the policy is ready, then press Ctrl-C",
        f"  kubectl patch {_POLICIES} {_NAME} --type merge --patch '{upgrade}'   # upgrade the driver, node by node",
        f"  kubectl describe {_POLICIES} {_NAME}   # show progress and recent events",
    ]


def _control_plane(lab: Lab) -> list[str]:
    """What is real of it, and where its logs are; nothing to say where all of it is the lab's own."""
    if not lab.real:
        return []
    real = ", ".join(f"{lab.real[part]} ({part})" for part in PARTS if part in lab.real)
    rest = ", ".join(part for part in PARTS if part not in lab.real) or "none"
    return [
        f"Real components: etcd, {real}; the lab's stand-ins: {rest}",
        f"Logs of the real components: {lab.folder / 'logs'}",
    ]


def _nodes(lab: Lab) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    # With the operator its policy says how many share a GPU.
    shares = () if lab.settings.operator else (str(lab.settings.slots),)
    for head in ("NODE", "KUBELET", *("SHARES PER GPU" for _ in shares), "METRICS PORT", "GPUS"):
        table.add_column(head, no_wrap=head != "GPUS")  # what is typed again is never cut off
    for choice in lab.settings.nodes:
        node = lab.nodes[choice.name]
        models = Counter(choice.profile.model_of(gpu).name for gpu in choice.profile.gpus)
        gpus = ", ".join(f"{count} x {model}" for model, count in models.items())
        kubelet = _kubelet(lab.settings.kubelet_of(choice).config)
        table.add_row(choice.name, kubelet, *shares, str(node.metrics_port), gpus)
    for hollow in lab.settings.hollow:
        for name in hollow.names:
            devices = f"{hollow.gpus} x {hollow.family or hollow.product or 'GPU'}, hollow"
            table.add_row(name, hollow.kubelet, *("" for _ in shares), "", devices)
    return table


def _kubelet(config: KubeletConfig) -> str:
    """Its version, and its topology policy where it aligns anything."""
    policy = config.topology_policy
    return config.version if policy is TopologyPolicy.NONE else f"{config.version} {policy}"


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
