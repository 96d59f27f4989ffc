"""Volumes, as far as they say where a pod can run."""

from typing import Any

from purser.kube.objects import ObjectMeta, Slim
from purser.kube.resources import Resource


class ClaimSpec(Slim, frozen=True, gc=False):
    """What a claim is bound to."""

    volume_name: str = ""
    """Empty: nothing yet."""


class PersistentVolumeClaim(Slim, frozen=True, gc=False):
    """A claim of a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()


class VolumeNodeAffinity(Slim, frozen=True, gc=False):
    """Where a volume is available."""

    required: Any = None
    """As it came."""


class VolumeSpec(Slim, frozen=True, gc=False):
    """A volume."""

    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()


class PersistentVolume(Slim, frozen=True, gc=False):
    """A volume of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()


PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, PersistentVolumeClaim
)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume)
