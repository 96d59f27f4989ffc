"""Which image an operand runs, from what the policy says and Purser's defaults."""

from purser.operator.policy.fields import Image

Parts = tuple[str, str, str]
"""Repository, image and version of a reference."""

DEFAULTS: dict[str, Parts] = {
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
"""By container. Images that are not here are Purser's own: their parts are the operator's, see `split`."""


def reference(default: Parts, image: Image, *, suffix: str = "") -> str:
    """The image of a container. ``suffix`` (a driver's OS) is appended to a tag, never to a digest.

    A whole reference in `image.image` is taken as it is, where no other part is given; a registry and path in it
    count as the repository. Parts that are left out come from ``default``; empty ones of that stay away.
    """
    if is_whole(image.image) and not image.repository and not image.version:
        return image.image
    path, _, base = image.image.rpartition("/")
    parts = (image.repository or path, base if not image.repository else image.image, image.version)
    repository, base, version = (given or own for given, own in zip(parts, default, strict=True))
    name = f"{repository}/{base}" if repository else base
    if version.startswith("sha256:"):
        return f"{name}@{version}"
    return f"{name}:{version}{suffix}" if version else name


def split(whole: str) -> Parts:
    """The parts of a reference; those that are not there are empty. Of a tag and a digest the digest counts."""
    path, at, digest = whole.partition("@")
    repository, _, base = path.rpartition("/")
    name, _, tag = base.partition(":")
    return repository, name, digest if at else tag


def is_whole(image: str) -> bool:
    """Whether an image's name is a whole reference, with a registry, a tag or a digest."""
    return any(mark in image for mark in "/:@")
