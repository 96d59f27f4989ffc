"""Which image an operand runs, from what the policy says and Purser's defaults."""

from purser.operator.policy.fields import Image

DEFAULTS: dict[str, tuple[str, str, str]] = {
    "driver": ("nvcr.io/nvidia", "driver", "595.91.07"),
    "driver-manager": ("nvcr.io/nvidia/cloud-native", "k8s-driver-manager", "v0.12.0"),
    "container-toolkit": ("nvcr.io/nvidia/k8s", "container-toolkit", "v1.20.0"),
    "device-plugin": ("nvcr.io/nvidia", "k8s-device-plugin", "v0.20.0"),
    "gpu-feature-discovery": ("nvcr.io/nvidia", "k8s-device-plugin", "v0.20.0"),
    "operator-validator": ("nvcr.io/nvidia", "gpu-operator", "v26.7.0"),
    "node-status-exporter": ("nvcr.io/nvidia", "gpu-operator", "v26.7.0"),
    "dcgm": ("nvcr.io/nvidia/cloud-native", "dcgm", "4.6.0-1-ubuntu24.04"),
    "dcgm-exporter": ("nvcr.io/nvidia/k8s", "dcgm-exporter", "4.6.0-4.8.3-distroless"),
    "gds": ("nvcr.io/nvidia/cloud-native", "nvidia-fs", "2.29.4"),
    "gdrcopy": ("nvcr.io/nvidia/cloud-native", "gdrdrv", "v2.6"),
}
"""Repository, image and version by container. Images that are not here are Purser's own."""


def reference(name: str, image: Image, *, suffix: str = "") -> str:
    """The image of container ``name``. ``suffix`` (a driver's OS) is appended to a tag, never to a digest.

    A whole reference in `image.image` is taken as it is; other parts that are left out come from `DEFAULTS`.
    Raises KeyError for a container that Purser has no default for.
    """
    if _is_whole(image.image) and not image.repository and not image.version:
        return image.image
    parts = (image.repository, image.image, image.version)
    repository, base, version = (given or default for given, default in zip(parts, DEFAULTS[name], strict=True))
    if version.startswith("sha256:"):
        return f"{repository}/{base}@{version}"
    return f"{repository}/{base}:{version}{suffix}"


def _is_whole(image: str) -> bool:
    return any(mark in image for mark in "/:@")
