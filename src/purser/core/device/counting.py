"""Which of the devices that a driver lists are GPUs for pods."""

DISPLAY_MODELS = frozenset({"DGX Display", "NVIDIA DGX Display"})
"""By NVML's name: the cards of DGX Stations that drive the monitor. The rule is go-nvlib's (``pkg/nvlib/device``, its
default `WithSkippedDevices`, at 3c161560): k8s-device-plugin, GPU feature discovery, the container toolkit's CDI
specifications and mig-parted's profiles all list devices through it. The others keep NVML's indexes, so that GPU 4 is
GPU 4 though index 3 is such a card."""


def is_usable_by_pods(model: str) -> bool:
    """Whether a device with this name is listed, handed out and counted. One without a readable name is: it is a GPU
    that is not well."""
    return model not in DISPLAY_MODELS
