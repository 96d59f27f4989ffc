"""The labels of a node, by the rules of NVIDIA's GPU feature discovery: a group of them by each function."""

from collections.abc import Callable

from purser.core.features.facts import LabelFacts
from purser.core.features.resources import model_labels, resource_labels
from purser.core.features.values import TIMESTAMP_LABEL, Labels, LabelTrouble, is_label, label_value
from purser.core.features.vgpu import vgpu_host
from purser.core.sharing import SharingStrategy

_UNKNOWN = "unknown"
_GPU_MODES = {0x030000: "graphics", 0x030200: "compute"}
"""By PCI class: VGA and 3D controllers."""


def labels_of(node: LabelFacts) -> tuple[Labels, tuple[str, ...]]:
    """A node's labels, and what is in the way of those that are missing: what fails costs its group alone.

    Labels of the device groups are of nodes with GPUs only.
    """
    labels: Labels = {}
    troubles: list[str] = []
    for labels_of_group in (*NODE_GROUPS, *(GPU_GROUPS if node.gpus else ())):
        try:
            labels |= labels_of_group(node)
        except LabelTrouble as trouble:
            troubles.append(str(trouble))
    written = {key: value for key, value in labels.items() if is_label(key, value)}
    troubles += [f"{key}={labels[key]} is not a valid label" for key in sorted(labels.keys() - written.keys())]
    return written, tuple(troubles)


def timestamp_labels(node: LabelFacts) -> Labels:
    """When the labels became what they are."""
    return {} if node.timestamp is None else {TIMESTAMP_LABEL: str(node.timestamp)}


def vgpu_labels(node: LabelFacts) -> Labels:
    """Whether the node's GPUs are virtual, and the driver on the hypervisor's host."""
    hosts = [host for config in node.pci_configs if (host := vgpu_host(config)) is not None]
    labels = {"nvidia.com/vgpu.present": _word(bool(hosts))}
    for host in hosts:
        labels["nvidia.com/vgpu.host-driver-version"] = label_value(host.version)
        labels["nvidia.com/vgpu.host-driver-branch"] = label_value(host.branch)
    return labels


def machine_labels(node: LabelFacts) -> Labels:
    """The machine's product name."""
    return {"nvidia.com/gpu.machine": label_value(node.machine) or _UNKNOWN}


def version_labels(node: LabelFacts) -> Labels:
    """Driver and newest CUDA, each under the older names, too."""
    driver = node.driver_version.split(".")
    if not 2 <= len(driver) <= 3:
        raise LabelTrouble(f"driver version {node.driver_version!r} does not have the form X.Y or X.Y.Z")
    major, minor, revision = (*driver, "")[:3]
    cuda_major, dot, cuda_minor = node.cuda_version.partition(".")
    if not dot:
        raise LabelTrouble("the driver does not report which CUDA version it supports")
    return {
        "nvidia.com/cuda.driver.major": major,
        "nvidia.com/cuda.driver.minor": minor,
        "nvidia.com/cuda.driver.rev": revision,
        "nvidia.com/cuda.runtime.major": cuda_major,
        "nvidia.com/cuda.runtime.minor": cuda_minor,
        "nvidia.com/cuda.driver-version.major": major,
        "nvidia.com/cuda.driver-version.minor": minor,
        "nvidia.com/cuda.driver-version.revision": revision,
        "nvidia.com/cuda.driver-version.full": node.driver_version,
        "nvidia.com/cuda.runtime-version.major": cuda_major,
        "nvidia.com/cuda.runtime-version.minor": cuda_minor,
        "nvidia.com/cuda.runtime-version.full": f"{cuda_major}.{cuda_minor}",
    }


def mig_capable_labels(node: LabelFacts) -> Labels:
    """Whether any GPU knows MIG."""
    return {"nvidia.com/mig.capable": _word(any(gpu.can_mig for gpu in node.gpus))}


def mps_labels(node: LabelFacts) -> Labels:
    """Whether GPUs are shared by MPS."""
    is_mps = node.sharing.strategy is SharingStrategy.MPS
    if is_mps and any(gpu.mig_enabled for gpu in node.gpus):
        raise LabelTrouble("MPS cannot share GPUs in MIG mode")
    return {"nvidia.com/mps.capable": _word(is_mps)}


def mode_labels(node: LabelFacts) -> Labels:
    """Whether the GPUs are for graphics or for compute alone, where all are alike."""
    classes = {gpu.pci_class for gpu in node.gpus}
    [one] = classes if len(classes) == 1 else [None]
    return {"nvidia.com/gpu.mode": _UNKNOWN if one is None else _GPU_MODES.get(one, _UNKNOWN)}


def clique_labels(node: LabelFacts) -> Labels:
    """The one NVLink domain that the node's GPUs have joined, as far as they have joined any."""
    joined = [gpu.fabric for gpu in node.gpus if gpu.fabric is not None]
    clusters, cliques = {each.cluster_uuid for each in joined}, {each.clique for each in joined}
    if len(clusters) != 1 or len(cliques) != 1:
        return {}
    return {"nvidia.com/gpu.clique": label_value(f"{joined[0].cluster_uuid}.{joined[0].clique}")}


def _word(truth: bool) -> str:
    return str(truth).lower()


LabelGroup = Callable[[LabelFacts], Labels]

NODE_GROUPS: tuple[LabelGroup, ...] = (timestamp_labels, vgpu_labels)
"""Of every node."""

GPU_GROUPS: tuple[LabelGroup, ...] = (
    machine_labels,
    version_labels,
    mig_capable_labels,
    mps_labels,
    resource_labels,
    model_labels,
    mode_labels,
    clique_labels,
)
"""Of nodes with GPUs."""
