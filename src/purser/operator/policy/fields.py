"""What sections of a ClusterPolicy have in common."""

import re
from typing import Annotated, Literal

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A section, or a part of one. Docstrings below fields become the CRD's descriptions."""


# Patterns end with \Z, which is $ to an API server: to Python that is a newline before the end, too.
PullPolicy = Literal["", "Always", "IfNotPresent", "Never"]
Percent = Annotated[str, msgspec.Meta(pattern=r"^(100|[1-9]?[0-9])%\Z")]
Seconds = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z", max_length=40)]
Quantity = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?\Z"
    ),
]


Workload = Literal["container", "vm-passthrough", "vm-vgpu"]
"""Whom the GPUs of a node are for: containers, or virtual machines that get whole GPUs or vGPUs. The values of NVIDIA's
GPU operator (v26.7, controllers/state_manager.go)."""


class EnvVar(Section, frozen=True, kw_only=True):
    """An environment variable."""

    name: str
    """Name of the variable."""
    value: str = ""
    """Value of the variable."""


class Toleration(Section, frozen=True, kw_only=True):
    """A toleration, as Kubernetes defines it."""

    key: str = ""
    """Key of the taint; empty with Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How the key is matched."""
    value: str = ""
    """Value of the taint."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Effect of the taint; empty: every effect."""
    toleration_seconds: int | None = None
    """How long a NoExecute taint is tolerated, in seconds; absent: no limit."""


class SeLinuxOptions(Section, frozen=True, kw_only=True):
    """SELinux labels of a process; the runtime chooses what is omitted."""

    user: str = ""
    """The user."""
    role: str = ""
    """The role."""
    type: str = ""
    """The type."""
    level: str = ""
    """The level."""


class SeccompProfile(Section, frozen=True, kw_only=True):
    """Which system calls processes may make."""

    type: Literal["RuntimeDefault", "Unconfined", "Localhost"]
    """Kind of profile."""
    localhost_profile: str = ""
    """With Localhost: the profile's file on the node."""


class Sysctl(Section, frozen=True, kw_only=True):
    """A kernel parameter of the pod's namespaces."""

    name: str
    """Name of the parameter."""
    value: str
    """Value of the parameter."""


class PodSecurityContext(Section, frozen=True, kw_only=True):
    """Security context of a pod, with Kubernetes' field names and defaults."""

    run_as_user: Count | None = None
    """User ID of the containers."""
    run_as_group: Count | None = None
    """Group ID of the containers."""
    run_as_non_root: bool | None = None
    """kubelet refuses containers that run as root."""
    fs_group: Count | None = None
    """Group ID that owns volumes."""
    fs_group_change_policy: Literal["", "OnRootMismatch", "Always"] = ""
    """When the group of volumes is changed."""
    supplemental_groups: tuple[int, ...] = ()
    """Additional group IDs."""
    se_linux_options: SeLinuxOptions | None = None
    """SELinux labels."""
    seccomp_profile: SeccompProfile | None = None
    """System calls."""
    sysctls: tuple[Sysctl, ...] = ()
    """Kernel parameters."""


class Resources(Section, frozen=True, kw_only=True):
    """Resources of a container, as Kubernetes defines them."""

    limits: dict[str, int | Quantity] = {}
    """Upper limits."""
    requests: dict[str, int | Quantity] = {}
    """Requests."""


class Image(Section, frozen=True, kw_only=True):
    """Image of a container. Omitted fields have Purser's defaults."""

    repository: str = ""
    """Registry and path, without the image's name."""
    image: str = ""
    """Name of the image, or a full reference with a tag or digest."""
    version: str = ""
    """Tag, or a digest that begins with sha256:."""
    image_pull_policy: PullPolicy = ""
    """Pull policy; empty: Kubernetes' default."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of pull Secrets."""


class OperandSection(Image, frozen=True, kw_only=True):
    """Settings that every operand has."""

    resources: Resources = Resources()
    """Resources of its main container."""
    args: tuple[str, ...] = ()
    """Additional arguments of its main container."""
    env: tuple[EnvVar, ...] = ()
    """Additional environment variables of its main container; they override Purser's own."""
    host_network: bool = False
    """Use the host's network."""


class Relabeling(Section, frozen=True, kw_only=True):
    """A relabel_config of Prometheus, with the Prometheus operator's field names and Prometheus' defaults."""

    source_labels: tuple[str, ...] = ()
    """Labels whose values are joined."""
    separator: str | None = None
    """Separator between the values."""
    target_label: str = ""
    """Label to write."""
    regex: str | None = None
    """Regular expression that the joined values must match."""
    modulus: Count = 0
    """Modulus of their hash, for hashmod; 0: none."""
    replacement: str | None = None
    """Replacement value."""
    action: str = ""
    """Action; empty: replace."""


class ServiceMonitor(Section, frozen=True, kw_only=True):
    """A ServiceMonitor of the Prometheus operator."""

    enabled: bool = False
    """Create it; needs the CRDs of the Prometheus operator."""
    interval: str = "15s"
    """Interval between scrapes."""
    scrape_timeout: str = ""
    """Timeout of a scrape; empty: Prometheus' default."""
    honor_labels: bool = False
    """Scraped labels override Prometheus' own."""
    additional_labels: dict[str, str] = {}
    """Additional labels of the ServiceMonitor, so that Prometheus selects it."""
    relabelings: tuple[Relabeling, ...] = ()
    """Relabelings of scraped targets, in order."""


class Sidecar(Image, frozen=True, kw_only=True):
    """A container in the driver's pod."""

    enabled: bool = False
    """Run it."""
    args: tuple[str, ...] = ()
    """Additional arguments."""
    env: tuple[EnvVar, ...] = ()
    """Additional environment variables."""


# --- images


ImageParts = tuple[str, str, str]
"""Repository, image and version of a reference."""

DEFAULTS: dict[str, ImageParts] = {
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


def reference(default: ImageParts, image: Image, *, suffix: str = "") -> str:
    """The image of a container. ``suffix`` (a driver's OS and kernel) is appended to a tag, never to a digest; nodes
    report it, and `image_tag_part` says what a tag can hold of it.

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
    return f"{name}:{version}{image_tag_part(suffix)}" if version else name


def image_tag_part(text: str) -> str:
    """What nodes report, as a part of an image's tag: ``_`` for every character that no tag has, such as the plus sign
    of ``5.14.0-570.el9_6.aarch64+64k``.

    Tags are of the distribution's reference grammar. NVIDIA's operator reads the kernel of node-feature-discovery's
    label, which has the same ``_``, so that the images in its registry are tagged so.
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def split(whole: str) -> ImageParts:
    """The parts of a reference; those that are not there are empty. Of a tag and a digest the digest counts."""
    path, at, digest = whole.partition("@")
    repository, _, base = path.rpartition("/")
    name, _, tag = base.partition(":")
    return repository, name, digest if at else tag


def is_whole(image: str) -> bool:
    """Whether an image's name is a whole reference, with a registry, a tag or a digest."""
    return any(mark in image for mark in "/:@")
