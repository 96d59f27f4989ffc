"""The labels of what a node offers: whole GPUs, and MIG devices by the node's strategy."""

from collections import Counter
from collections.abc import Iterable

from purser.core.device.gpus import NodeGpu, NodeMigDevice
from purser.core.device.resources import mig_resource
from purser.core.features.facts import LabelFacts, NodeSharing, Replication
from purser.core.features.values import Labels, label_value
from purser.core.names import GPU_RESOURCE, MODEL_LABEL_PREFIX
from purser.core.sharing import MigStrategy, SharingStrategy

MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"

_SHARED, _MIG, _INVALID = "-SHARED", "-MIG-", "-MIG-INVALID"
_NO_FAMILY = "undefined"
_FAMILIES = (
    ((14, 0), _NO_FAMILY),
    ((13, 0), "rubin"),
    ((12, 0), "blackwell"),
    ((11, 0), _NO_FAMILY),
    ((10, 0), "blackwell"),
    ((9, 0), "hopper"),
    ((8, 9), "ada-lovelace"),
    ((8, 0), "ampere"),
    ((7, 5), "turing"),
    ((7, 0), "volta"),
    ((6, 0), "pascal"),
    ((5, 0), "maxwell"),
    ((4, 0), _NO_FAMILY),
    ((3, 0), "kepler"),
    ((2, 0), "fermi"),
    ((1, 0), "tesla"),
)
"""From which compute capability on a GPU is of which family."""


def resource_labels(node: LabelFacts) -> Labels:
    """All of them."""
    labels = _whole_gpu_labels(node)
    if node.mig_strategy is MigStrategy.NONE:
        return labels
    labels[MIG_STRATEGY_LABEL] = node.mig_strategy
    if node.mig_strategy is MigStrategy.SINGLE:
        return labels | _single_strategy_labels(node)
    on_demand = node.mig_strategy is MigStrategy.ON_DEMAND  # no labels of what comes and goes with every pod
    return labels | _mixed_strategy_labels([gpu for gpu in node.gpus if not (on_demand and gpu.mig_kind)], node.sharing)


def model_labels(node: LabelFacts) -> Labels:
    """Every model of the node, with how many GPUs are of it: a node of several has one in nvidia.com/gpu.product."""
    counts = Counter(label_value(gpu.model) for gpu in node.gpus)
    return {f"{MODEL_LABEL_PREFIX}{model}": str(count) for model, count in counts.items() if model}


def family(capability: tuple[int, int]) -> str:
    """A GPU's family in the words of feature discovery."""
    return next((name for since, name in _FAMILIES if since <= capability), _NO_FAMILY)


def _whole_gpu_labels(node: LabelFacts) -> Labels:
    """Of the model that most GPUs are of. GPUs in MIG mode are counted, and are not shared."""
    counts = Counter(gpu.model for gpu in node.gpus)
    model = min(counts, key=lambda each: (-counts[each], each))
    alike = [gpu for gpu in node.gpus if gpu.model == model]
    whole = [gpu for gpu in alike if not gpu.mig_enabled]
    gpu = (whole or alike)[-1]
    labels = _base(GPU_RESOURCE, node.sharing if whole else None, counts[model], model)
    if gpu.memory_mib:
        labels[f"{GPU_RESOURCE}.memory"] = str(gpu.memory_mib)
    if gpu.compute_capability is not None:
        major, minor = gpu.compute_capability
        labels[f"{GPU_RESOURCE}.family"] = family(gpu.compute_capability)
        labels |= {f"{GPU_RESOURCE}.compute.major": str(major), f"{GPU_RESOURCE}.compute.minor": str(minor)}
    return labels


def _single_strategy_labels(node: LabelFacts) -> Labels:
    """Those of the MIG devices in place of the GPUs'; of a node that mixes anything none, and it says so."""
    cut = [gpu for gpu in node.gpus if gpu.mig_enabled]
    if not cut:
        return {}
    found = [gpu.migs for gpu in cut]
    kinds = {mig.profile for migs in found for mig in migs}
    if not all(found) or len(cut) < len(node.gpus) or len(kinds) != 1:
        return {
            f"{GPU_RESOURCE}.product": label_value(cut[0].model, _INVALID),
            f"{GPU_RESOURCE}.count": "0",
            f"{GPU_RESOURCE}.replicas": "0",
            f"{GPU_RESOURCE}.sharing-strategy": "",
            f"{GPU_RESOURCE}.memory": "0",
        }
    return _mig_device_labels(GPU_RESOURCE, node.sharing, sum(map(len, found)), cut[0], found[0][0])


def _mixed_strategy_labels(gpus: Iterable[NodeGpu], sharing: NodeSharing) -> Labels:
    """Those of each profile, beside the GPUs'."""
    first: dict[str, tuple[NodeGpu, NodeMigDevice]] = {}
    counts = Counter[str]()
    for gpu in gpus:
        for mig in gpu.migs if gpu.mig_enabled else ():
            resource = mig_resource(mig.profile)
            first.setdefault(resource, (gpu, mig))
            counts[resource] += 1
    labels: Labels = {}
    for resource, (gpu, mig) in first.items():
        labels |= _mig_device_labels(resource, sharing, counts[resource], gpu, mig)
    return labels


def _mig_device_labels(resource: str, sharing: NodeSharing, count: int, gpu: NodeGpu, mig: NodeMigDevice) -> Labels:
    """Of equal MIG devices; of MIG devices that differ in engines alone, one speaks for all."""
    properties = {
        "memory": mig.memory_mib,
        "multiprocessors": mig.multiprocessors,
        "slices.gi": mig.gi_slices,
        "slices.ci": mig.ci_slices,
        "engines.copy": mig.copy_engines,
        "engines.decoder": mig.decoders,
        "engines.encoder": mig.encoders,
        "engines.jpeg": mig.jpeg_engines,
        "engines.ofa": mig.ofa_engines,
    }
    labels = _base(resource, sharing, count, gpu.model, f"{_MIG}{label_value(mig.profile.replace('+', '.'))}")
    return labels | {f"{resource}.{name}": str(value) for name, value in properties.items()}


def _base(resource: str, sharing: NodeSharing | None, count: int, model: str, ending: str = "") -> Labels:
    """Labels that every resource has. ``sharing`` is None for resources that are never shared."""
    replicated = Replication(0) if sharing is None else sharing.resources.get(resource) or Replication(1)
    is_shared = sharing is not None and replicated.replicas > 1
    if is_shared and not replicated.is_renamed:
        ending += _SHARED
    return {
        f"{resource}.product": label_value(model, ending),
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(replicated.replicas),
        f"{resource}.sharing-strategy": sharing.strategy if sharing and is_shared else SharingStrategy.NONE,
    }
