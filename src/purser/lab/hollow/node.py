"""What a hollow node is, and the annotations by which people break it."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import msgspec

from purser.core.device.pci import device_of_product
from purser.core.mig import MigKind, kind_of_device
from purser.core.sharing import MigStrategy
from purser.kube.resources import Raw
from purser.lab.hollow.vendors import family_of

LABEL = "purser.dev/lab-hollow"
"""On a Node: it is a hollow one."""

FAILING_PODS_ANNOTATION = "purser.dev/lab-failing-pods"
"""On a hollow node, separated by commas: operands, or apps, whose pods crash. ``driver=580.10`` means those pods of the
driver whose image has these letters in it."""

NOT_READY_ANNOTATION = "purser.dev/lab-notready"
"""On a hollow node: with ``true`` its kubelet is away."""

BOOT_ANNOTATION = "purser.dev/lab-boot"
"""On a hollow node: id of its boot. Another one is a reboot, which restarts every container."""

MIG_ANNOTATION = "purser.dev/lab-mig"
"""On a hollow node: how its MIG worker behaves: ``silent`` never answers, ``hanging`` never once something is to be
changed, ``refusing`` cannot change a GPU."""

GPUS_ANNOTATION = "purser.dev/lab-gpus"
"""On a hollow node: how many GPUs are in it."""

PRODUCT_ANNOTATION = "purser.dev/lab-product"
"""On a hollow node: the model of its GPUs. Another one is what an exchange of GPUs is."""

MIG_STRATEGY_ANNOTATION = "purser.dev/lab-mig-strategy"
"""On a hollow node: with ``on-demand`` its GPUs have MIG enabled and are cut into GPU instances on demand, if Purser
knows the profiles of their model."""

FAMILY_ANNOTATION = "purser.dev/lab-family"
"""On a hollow node: its devices are of this family of another vendor, and the vendor's device plugin is at work."""

_H100 = "2330"
_UNKNOWN = "ffff"
MAX_COUNT = 5000
_NFD = "feature.node.kubernetes.io/"
_NFD_KERNEL = f"{_NFD}kernel-version.full"


class HollowNodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some equal hollow nodes, called ``<name>-0`` and so on."""

    name: str
    count: int = 1
    os: str = "Ubuntu 22.04.4 LTS"
    """As kubelet reports it: PRETTY_NAME of os-release."""
    kernel: str = "5.15.0-91-generic"
    runtime: str = "containerd://1.7.22"
    kubelet: str = "v1.36.2"
    gpus: int = 8
    """0: a node without GPUs."""
    product: str = ""
    """The GPUs' product label of feature discovery: ``NVIDIA-H100-80GB-HBM3``. It is set when that runs on the node
    beside node-feature-discovery; until then only the PCI device id is known. Empty: H100s without a label.
    """
    family: str = ""
    """Of another vendor's devices, by its name in `purser.core.vendors`; ``gpus`` says how many. Empty: NVIDIA's."""
    mig_strategy: Literal["", "on-demand"] = ""
    """``on-demand``: its GPUs are cut into GPU instances as pods are granted them. Empty: MIG is not enabled."""
    nfd: bool = True
    """Whether node-feature-discovery has labelled it."""
    unschedulable: bool = False
    """Somebody cordoned it."""
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    """``{key: ..., value: ..., effect: ...}``."""

    def __post_init__(self) -> None:
        """Refuse what could only fail later."""
        if not 1 <= self.count <= MAX_COUNT:
            raise ValueError(f"invalid count {self.count}: must be from 1 to {MAX_COUNT}")
        if self.gpus < 0:
            raise ValueError(f"invalid gpus {self.gpus}: must be 0 or more")
        if self.family and family_of(self.family) is None:
            known = 'see "Devices of other vendors" in the documentation'
            raise ValueError(f"unknown family {self.family[:64]!r}: {known}")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the nodes."""
        return tuple(f"{self.name}-{number}" for number in range(self.count))


def manifests(nodes: HollowNodes) -> list[Raw]:
    """The Node objects, as a kubelet registers them."""
    return [_manifest(nodes, name) for name in nodes.names]


def _manifest(nodes: HollowNodes, name: str) -> Raw:
    own = {LABEL: "true", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    labels = {**own, **(_nfd_labels(nodes) if nodes.nfd else {}), **nodes.labels}
    annotated = {
        PRODUCT_ANNOTATION: nodes.product,
        MIG_STRATEGY_ANNOTATION: nodes.mig_strategy,
        FAMILY_ANNOTATION: nodes.family,
    }
    annotations = {GPUS_ANNOTATION: str(nodes.gpus), **{key: value for key, value in annotated.items() if value}}
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {**({"unschedulable": True} if nodes.unschedulable else {}), "taints": list(nodes.taints)},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow"}],
            "nodeInfo": _info(nodes, name),
        },
    }


def nfd_labels(os_id: str, version: str, kernel: str, *, has_gpu: bool) -> dict[str, str]:
    """The labels of node-feature-discovery for such a node, as far as they are read here."""
    found = {
        f"{_NFD}system-os_release.ID": os_id,
        f"{_NFD}system-os_release.VERSION_ID": version,
        _NFD_KERNEL: kernel,
    }
    return {**found, f"{_NFD}pci-10de.present": "true"} if has_gpu else found


def _nfd_labels(nodes: HollowNodes) -> dict[str, str]:
    os_id, version = split_os(nodes.os)
    return nfd_labels(os_id, version, nodes.kernel, has_gpu=nodes.gpus > 0 and not nodes.family)


def split_os(pretty_name: str) -> tuple[str, str]:
    """ID and VERSION_ID of os-release, as far as they follow from PRETTY_NAME: ``ubuntu``, ``22.04``."""
    words = pretty_name.split()
    version = next((word for word in words if word[0].isdigit()), "")
    os_id = "rhel" if pretty_name.startswith("Red Hat") else words[0].lower() if words else ""
    return os_id, ".".join(version.split(".")[:2])


def _info(nodes: HollowNodes, name: str) -> dict[str, str]:
    return {
        "kubeletVersion": nodes.kubelet,
        "kubeProxyVersion": nodes.kubelet,
        "containerRuntimeVersion": nodes.runtime,
        "osImage": nodes.os,
        "operatingSystem": "linux",
        "architecture": "amd64",
        "kernelVersion": nodes.kernel,
        "machineID": name,
        "systemUUID": name,
        "bootID": f"{name}-1",
    }


# --- what a hollow kubelet reads off its node


def annotation(node: Mapping[str, Any], key: str) -> str:
    """Empty where there is none."""
    return str((node["metadata"].get("annotations") or {}).get(key) or "")


def is_away(node: Mapping[str, Any]) -> bool:
    """Its kubelet sends no heartbeats."""
    return annotation(node, NOT_READY_ANNOTATION) == "true"


def boot_of(node: Mapping[str, Any]) -> str:
    """Its boot, now."""
    return annotation(node, BOOT_ANNOTATION) or f"{node['metadata']['name']}-1"


def device_count(node: Mapping[str, Any]) -> int:
    """How many devices are in it; what is no number counts as none."""
    text = annotation(node, GPUS_ANNOTATION)
    return int(text) if text.isdecimal() else 0


def gpu_count(node: Mapping[str, Any]) -> int:
    """How many of them are NVIDIA's."""
    return 0 if annotation(node, FAMILY_ANNOTATION) else device_count(node)


def has_nfd(node: Mapping[str, Any]) -> bool:
    """Whether node-feature-discovery is at work there: labels of feature discovery come by it alone."""
    return _NFD_KERNEL in (node["metadata"].get("labels") or {})


def product_of(node: Mapping[str, Any]) -> str:
    """The model of its GPUs as a label has it; empty where nothing labels them."""
    return annotation(node, PRODUCT_ANNOTATION)


def mig_kind_of(node: Mapping[str, Any]) -> MigKind | None:
    """How its GPUs are cut on demand; None: they are not."""
    if annotation(node, MIG_STRATEGY_ANNOTATION) != MigStrategy.ON_DEMAND:
        return None
    return kind_of_device(device_id(product_of(node)))


@cache
def device_id(product: str) -> str:
    """PCI device id of a model, four hexadecimal digits; of a model that Purser does not know, one that no GPU has."""
    return (device_of_product(product) or _UNKNOWN) if product else _H100


def is_failing(node: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether the node's annotation says that this pod crashes."""
    labels = pod["metadata"].get("labels") or {}
    names = {labels.get("purser.dev/operand"), labels.get("app"), labels.get("app.kubernetes.io/name")}
    images = [str(each.get("image", "")) for each in pod["spec"].get("containers") or ()]
    for word in annotation(node, FAILING_PODS_ANNOTATION).split(","):
        name, _, part = word.strip().partition("=")
        if name and name in names and any(part in image for image in images):
            return True
    return False
