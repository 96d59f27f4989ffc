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
            "Model, such as `NVIDIA-L4`. Ends in `-SHARED` if GPUs are shared under their original resource name.",
        ),
        (f"{MODEL_LABEL_PREFIX}<model>", "Number of the node's GPUs of this model. Purser's own label."),
        (f"{_GPU}.count", "Number of GPUs of this model."),
        (f"{_GPU}.replicas", "Number of containers that may share a GPU; `0` in MIG mode."),
        (f"{_GPU}.sharing-strategy", "`none`, `time-slicing` or `mps`."),
        (f"{_GPU}.memory", "MiB of a GPU."),
        (
            f"{_GPU}.family",
            "Architecture, from the compute capability: `turing`, `ampere`, `ada-lovelace`, `hopper`, `blackwell` ...",
        ),
        (f"{_GPU}.compute.major", "Compute capability."),
        (f"{_GPU}.compute.minor", "Compute capability."),
        (
            f"{_GPU}.mode",
            "`compute` or `graphics`, from the PCI class. `unknown` if it cannot be determined or GPUs differ.",
        ),
        (f"{_GPU}.clique", "NVLink domain that the GPUs have joined: the cluster UUID, a dot and the clique ID."),
        (f"{_GPU}.machine", "The machine's product name, or `unknown`."),
        ("nvidia.com/mps.capable", "`true` if GPUs are shared with MPS."),
    ),
    "MIG": (
        ("nvidia.com/mig.capable", "`true` if a GPU supports MIG."),
        ("nvidia.com/mig.strategy", "The MIG strategy: `single`, `mixed` or `on-demand`. Absent if it is `none`."),
        (
            f"{_GPU}.product",
            "With strategy `single`: `<model>-MIG-<profile>`; count, replicas, strategy and memory then also "
            "describe MIG devices. `<model>-MIG-INVALID` if MIG devices differ, or if a GPU has none.",
        ),
        (f"{_GPU}.multiprocessors", "With strategy `single`: number of multiprocessors of a MIG device."),
        (f"{_GPU}.slices.gi", "With strategy `single`: number of slices of a MIG device's GPU instance."),
        (f"{_GPU}.slices.ci", "With strategy `single`: number of slices of a MIG device's compute instance."),
        *(
            (f"{_GPU}.engines.{engine}", "With strategy `single`: number of engines of this type per MIG device.")
            for engine in _ENGINES
        ),
        (
            f"{_MIG}.product",
            "With strategy `mixed`: `<model>-MIG-<profile>`. A `+` in a profile becomes a dot in names of labels and "
            "resources.",
        ),
        (f"{_MIG}.count", "With strategy `mixed`: number of MIG devices with this profile."),
        (f"{_MIG}.replicas", "With strategy `mixed`: number of containers that may share a MIG device."),
        (f"{_MIG}.sharing-strategy", "With strategy `mixed`: `none` or `time-slicing`."),
        (f"{_MIG}.memory", "With strategy `mixed`: memory of a MIG device, in MiB."),
        (f"{_MIG}.multiprocessors", "With strategy `mixed`: number of multiprocessors of a MIG device."),
        (f"{_MIG}.slices.gi", "With strategy `mixed`: number of slices of a MIG device's GPU instance."),
        (f"{_MIG}.slices.ci", "With strategy `mixed`: number of slices of a MIG device's compute instance."),
        *(
            (f"{_MIG}.engines.{engine}", "With strategy `mixed`: number of engines of this type per MIG device.")
            for engine in _ENGINES
        ),
    ),
    "Driver": (
        ("nvidia.com/cuda.driver-version.full", "The driver's version."),
        ("nvidia.com/cuda.driver-version.major", "Major version of the driver."),
        ("nvidia.com/cuda.driver-version.minor", "Minor version of the driver."),
        ("nvidia.com/cuda.driver-version.revision", "Revision of the driver, or empty."),
        ("nvidia.com/cuda.runtime-version.full", "Newest CUDA version that the driver supports."),
        ("nvidia.com/cuda.runtime-version.major", "Major version of the newest CUDA that the driver supports."),
        ("nvidia.com/cuda.runtime-version.minor", "Minor version of the newest CUDA that the driver supports."),
        *(
            (f"nvidia.com/cuda.driver.{old}", f"Older name of `nvidia.com/cuda.driver-version.{new}`.")
            for old, new in (("major", "major"), ("minor", "minor"), ("rev", "revision"))
        ),
        *(
            (f"nvidia.com/cuda.runtime.{part}", f"Older name of `nvidia.com/cuda.runtime-version.{part}`.")
            for part in ("major", "minor")
        ),
    ),
    "Virtual machines": (
        ("nvidia.com/vgpu.present", "`true` if a GPU is a vGPU."),
        ("nvidia.com/vgpu.host-driver-version", "Version of the driver on the hypervisor host."),
        ("nvidia.com/vgpu.host-driver-branch", "Branch of the driver on the hypervisor host."),
    ),
    "The labels themselves": ((TIMESTAMP_LABEL, "When the labels last changed, in Unix time."),),
}
"""By title of a table: name and sentence. In ``<>`` stands what differs from node to node."""

FEATURE_LABELS = frozenset(name for rows in LABELS.values() for name, _ in rows if "<" not in name)
"""Labels that are feature discovery's."""

FEATURE_LABEL_PREFIXES = (MODEL_LABEL_PREFIX, mig_resource(""))
"""Labels that begin so are, too."""


def is_feature_label(key: str) -> bool:
    """Whether a node's label is feature discovery's: one that it does not (any more) find is to go."""
    return key in FEATURE_LABELS or key.startswith(FEATURE_LABEL_PREFIXES)
