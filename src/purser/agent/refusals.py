"""Why the agent refuses, as values: reasons are shared by events, metrics and gRPC errors."""

from collections.abc import Iterable
from enum import StrEnum

from purser.core.grant.disputes import RefusedPod


class RefusalReason(StrEnum):
    """Stable strings."""

    NO_GRANT = "NoGrant"
    """The pod under admission has no grant that counts."""
    GONE = "PodGone"
    """The pod under admission was deleted meanwhile."""
    AMBIGUOUS = "AmbiguousPod"
    """It cannot be told which of several pods kubelet asks for."""
    MISMATCH = "DevicesDifferFromGrant"
    """kubelet's ids are not on the devices that were granted."""
    OVERCOMMIT = "DeviceOvercommitted"
    """The grant is more than what is left of a device."""
    STRANGER = "DeviceHeldByOtherPod"
    """A pod without a grant holds the device."""
    UNHEALTHY = "DeviceUnhealthy"
    MALFORMED = "MalformedRequest"
    """A call that no kubelet makes."""
    KUBELET = "KubeletUnavailable"
    """kubelet's PodResources API does not answer."""
    HOST = "HostNotWritable"
    """A folder that the container needs cannot be made on the host."""


class AllocationRefused(Exception):
    """kubelet's call is refused; the message says why and what to do."""

    def __init__(
        self, reason: RefusalReason, message: str, pods: Iterable[str] = (), dispute: RefusedPod | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.pods = tuple(pods)
        """Keys of the pods that this is about: they get an event."""
        self.dispute = dispute
        """What the scheduler has to hear, where it granted what is not there."""
