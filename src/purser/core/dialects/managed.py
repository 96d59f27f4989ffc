"""The resources of pods that kube-scheduler asks Purser's extender about: it wants them one by one, by their names."""

from collections.abc import Collection

from purser.core.device.resources import SHARED_SUFFIX, mig_resource
from purser.core.dialects import RESOURCES
from purser.core.mig import MIG_KINDS
from purser.core.mig.families import profile_names
from purser.core.names import GPU_RESOURCE
from purser.core.vendors.catalogue import FAMILIES


def ignored_resources() -> dict[str, tuple[str, ...]]:
    """Those of other vendors' families, by the family's name: kube-scheduler must not count them itself where they are
    served, for their plugins list some of them alone."""
    return {family.name: family.resources for family in FAMILIES}


MANAGED_VALUE = "scheduler.kubeScheduler.managedResources"
"""Of the Helm chart: names that an administrator adds."""


def managed_resources() -> tuple[str, ...]:
    """All that pods ask for NVIDIA's GPUs with, MIG devices of the profiles known here, and both as replicas; sorted.

    What else a device plugin's file names its resources is an administrator's to add: agents list no other name
    (`is_managed`), for kube-scheduler would place its pods without asking Purser.
    """
    profiles = {mig_resource(profile.name) for kind in MIG_KINDS.values() for profile in kind.profiles}
    profiles |= set(map(mig_resource, profile_names()))
    replicated = {f"{resource}{SHARED_SUFFIX}" for resource in (GPU_RESOURCE, *profiles)}
    return tuple(sorted({*RESOURCES, *profiles, *replicated}))


def is_managed(resource: str, more: Collection[str] = ()) -> bool:
    """Whether kube-scheduler asks Purser about pods that ask for it. ``more``: what the administrator added."""
    return resource in _MANAGED or resource in more


_MANAGED = frozenset(managed_resources())
