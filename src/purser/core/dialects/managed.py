"""The resources of pods that kube-scheduler asks Purser's extender about: it wants them one by one, by their names."""

from purser.core.device.resources import SHARED_SUFFIX, mig_resource
from purser.core.dialects import RESOURCES
from purser.core.mig import MIG_KINDS
from purser.core.names import GPU_RESOURCE


def managed_resources() -> tuple[str, ...]:
    """All that pods ask for GPUs with, MIG devices of the profiles that are known here, and both as replicas; sorted.

    What else a device plugin's file names its resources is an administrator's to add.
    """
    profiles = {mig_resource(profile.name) for kind in MIG_KINDS.values() for profile in kind.profiles}
    replicated = {f"{resource}{SHARED_SUFFIX}" for resource in (GPU_RESOURCE, *profiles)}
    return tuple(sorted({*RESOURCES, *profiles, *replicated}))
