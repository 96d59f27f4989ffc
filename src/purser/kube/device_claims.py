"""Claims of dynamic resource allocation (DRA), as far as they say whether and where a pod can run."""

from typing import Any

from purser.kube.objects import ObjectMeta, Slim
from purser.kube.resources import Resource


class DeviceClassRequest(Slim, frozen=True, gc=False):
    """One way to meet a request: devices of one class."""

    device_class_name: str = ""


class DeviceClaimRequest(Slim, frozen=True, gc=False):
    """Devices that a claim requests: of one class, or the first that is available of several."""

    exactly: DeviceClassRequest | None = None
    first_available: tuple[DeviceClassRequest, ...] = ()


class DeviceClaimSpec(Slim, frozen=True, gc=False):
    """All requests of a claim."""

    requests: tuple[DeviceClaimRequest, ...] = ()


class ResourceClaimSpec(Slim, frozen=True, gc=False):
    """What a claim requests."""

    devices: DeviceClaimSpec = DeviceClaimSpec()


class AllocationResult(Slim, frozen=True, gc=False):
    """The devices of a claim."""

    node_selector: Any = None
    """Nodes that can use them, as it came; None: all nodes."""


class ResourceClaimStatus(Slim, frozen=True, gc=False):
    """What a claim has got."""

    allocation: AllocationResult | None = None
    """None: nothing yet."""


class ResourceClaim(Slim, frozen=True, gc=False):
    """A claim of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClass(Slim, frozen=True, gc=False):
    """A class of devices; only its name."""

    metadata: ObjectMeta = ObjectMeta()


RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, ResourceClaim)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, DeviceClass)
"""Both are served from Kubernetes 1.34 on."""
