"""The resources of pods that kube-scheduler asks Purser's extender about: it wants them one by one, by their names."""

from purser.core.device.resources import SHARED_SUFFIX, mig_resource
from purser.core.dialects import RESOURCES
from purser.core.mig import MIG_KINDS
from purser.core.names import GPU_RESOURCE
from purser.core.vendors.catalogue import FAMILIES


def ignored_resources() -> dict[str, tuple[str, ...]]:
    """Those of other vendors' families, by the family's name: kube-scheduler must not count them itself where they are
    served, for their plugins list some of them alone."""
    return {family.name: family.resources for family in FAMILIES}


def managed_resources() -> tuple[str, ...]:
    """All that pods ask for NVIDIA's GPUs with, MIG devices of the profiles known here, and both as replicas; sorted.

    What else a device plugin's file names its resources is an administrator's to add.
    """
    profiles = {mig_resource(profile.name) for kind in MIG_KINDS.values() for profile in kind.profiles}
    replicated = {f"{resource}{SHARED_SUFFIX}" for resource in (GPU_RESOURCE, *profiles)}
    return tuple(sorted({*RESOURCES, *profiles, *replicated}))
