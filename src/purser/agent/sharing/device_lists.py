"""How containers' devices are named to the container runtime: the device plugin's ``deviceListStrategy``."""

from enum import StrEnum


class DeviceList(StrEnum):
    """How a container's devices are named to what adds them; the words are NVIDIA's device plugin's."""

    VARIABLE = "envvar"
    """The variable NVIDIA_VISIBLE_DEVICES, which a container's own variables replace."""
    MOUNTS = "volume-mounts"
    """Mounts, and the variable that says so (``accept-nvidia-visible-devices-as-volume-mounts`` of the toolkit)."""
    CDI_ANNOTATIONS = "cdi-annotations"
    """CDI's names, in an annotation of the container, which containerd 1.7 and CRI-O 1.23 read."""
    CDI_CRI = "cdi-cri"
    """CDI's names, in kubelet's own field for them: kubelet 1.29 and a runtime that reads it."""

    @property
    def is_cdi(self) -> bool:
        """Whether it takes a CDI specification."""
        return self in (DeviceList.CDI_ANNOTATIONS, DeviceList.CDI_CRI)
