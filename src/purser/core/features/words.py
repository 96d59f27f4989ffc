"""Every label of feature discovery in a sentence, for the reference, and for who has to know which labels are its."""

from purser.core.device.resources import mig_resource
from purser.core.features.values import TIMESTAMP_LABEL
from purser.core.names import GPU_RESOURCE, MODEL_LABEL_PREFIX

_GPU = GPU_RESOURCE
_MIG = mig_resource("<profile>")
_ENGINES = ("copy", "decoder", "encoder", "jpeg", "ofa")

LABELS: dict[str, tuple[tuple[str, str], ...]] = {
    "GPUs": (
        (
            f"{_GPU}.product",
            "Model, such as `NVIDIA-L4`; ends in `-SHARED` where replicas are offered under its own name.",
        ),
        (f"{MODEL_LABEL_PREFIX}<model>", "How many of the node's GPUs are of the model; Purser's own label."),
        (f"{_GPU}.count", "How many GPUs of the model there are."),
        (f"{_GPU}.replicas", "How many containers may have the same GPU; `0` in MIG mode."),
        (f"{_GPU}.sharing-strategy", "`none`, `time-slicing` or `mps`."),
        (f"{_GPU}.memory", "MiB of a GPU."),
        (
            f"{_GPU}.family",
            "Architecture by compute capability: `turing`, `ampere`, `ada-lovelace`, `hopper`, `blackwell` ...",
        ),
        (f"{_GPU}.compute.major", "Compute capability."),
        (f"{_GPU}.compute.minor", "Compute capability."),
        (f"{_GPU}.mode", "By PCI class: `compute`, `graphics`, or `unknown`, also where GPUs differ."),
        (f"{_GPU}.clique", "NVLink domain that the GPUs have joined: cluster's UUID, dot, clique."),
        (f"{_GPU}.machine", "The machine's product name, or `unknown`."),
        ("nvidia.com/mps.capable", "`true` where GPUs are shared by MPS."),
    ),
    "MIG": (
        ("nvidia.com/mig.capable", "`true` where a GPU supports MIG."),
        ("nvidia.com/mig.strategy", "`single` or `mixed`; no label where MIG devices are not offered."),
        (
            f"{_GPU}.product",
            "Strategy `single`: `<model>-MIG-<profile>`; count, replicas, strategy and memory are of MIG devices,"
            " too. `<model>-MIG-INVALID` where these differ, or not all GPUs have some.",
        ),
        (f"{_GPU}.multiprocessors", "Strategy `single`: of a MIG device."),
        (f"{_GPU}.slices.gi", "Strategy `single`: slices of its GPU instance."),
        (f"{_GPU}.slices.ci", "Strategy `single`: slices of its compute instance."),
        *((f"{_GPU}.engines.{engine}", "Strategy `single`: its engines.") for engine in _ENGINES),
        (
            f"{_MIG}.product",
            "Strategy `mixed`: `<model>-MIG-<profile>`. A `+` in a profile is a dot in names of labels and resources.",
        ),
        (f"{_MIG}.count", "Strategy `mixed`: how many MIG devices of the profile there are."),
        (f"{_MIG}.replicas", "Strategy `mixed`: how many containers may have the same one."),
        (f"{_MIG}.sharing-strategy", "Strategy `mixed`: `none` or `time-slicing`."),
        (f"{_MIG}.memory", "Strategy `mixed`: MiB of one."),
        (f"{_MIG}.multiprocessors", "Strategy `mixed`: of one."),
        (f"{_MIG}.slices.gi", "Strategy `mixed`: slices of its GPU instance."),
        (f"{_MIG}.slices.ci", "Strategy `mixed`: slices of its compute instance."),
        *((f"{_MIG}.engines.{engine}", "Strategy `mixed`: its engines.") for engine in _ENGINES),
    ),
    "Driver": (
        ("nvidia.com/cuda.driver-version.full", "The driver's version."),
        ("nvidia.com/cuda.driver-version.major", "Its first part."),
        ("nvidia.com/cuda.driver-version.minor", "Its second part."),
        ("nvidia.com/cuda.driver-version.revision", "Its third part, or empty."),
        ("nvidia.com/cuda.runtime-version.full", "The newest CUDA that the driver supports."),
        ("nvidia.com/cuda.runtime-version.major", "Its first part."),
        ("nvidia.com/cuda.runtime-version.minor", "Its second part."),
        *((f"nvidia.com/cuda.driver.{part}", "Older name of the same.") for part in ("major", "minor", "rev")),
        *((f"nvidia.com/cuda.runtime.{part}", "Older name of the same.") for part in ("major", "minor")),
    ),
    "Virtual machines": (
        ("nvidia.com/vgpu.present", "`true` where a GPU is a vGPU."),
        ("nvidia.com/vgpu.host-driver-version", "The driver on the hypervisor's host."),
        ("nvidia.com/vgpu.host-driver-branch", "Its branch."),
    ),
    "The labels themselves": ((TIMESTAMP_LABEL, "When they became what they are, in Unix time."),),
}
"""By title of a table: name and sentence. In ``<>`` stands what differs from node to node."""

FEATURE_LABELS = frozenset(name for rows in LABELS.values() for name, _ in rows if "<" not in name)
"""Labels that are feature discovery's."""

FEATURE_LABEL_PREFIXES = (MODEL_LABEL_PREFIX, mig_resource(""))
"""Labels that begin so are, too."""


def is_feature_label(key: str) -> bool:
    """Whether a node's label is feature discovery's: one that it does not (any more) find is to go."""
    return key in FEATURE_LABELS or key.startswith(FEATURE_LABEL_PREFIXES)
