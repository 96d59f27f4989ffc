"""What can be set of the operator, and why each default is what it is."""

from dataclasses import dataclass

from purser.core.names import DEFAULT_NAMESPACE


@dataclass(frozen=True)
class LeaseSettings:
    """Leader election; durations are in seconds.

    Between the deadline and the duration no process leads: as long as a write may be under way, so that two leaders
    never write at once.
    """

    duration_s: float = 30.0
    """A rollout takes minutes: half a minute without a leader delays nobody."""
    renew_deadline_s: float = 20.0
    retry_s: float = 4.0

    @property
    def write_s(self) -> float:
        """A write takes no longer than this."""
        return self.duration_s - self.renew_deadline_s


@dataclass(frozen=True)
class OperatorSettings:
    """Everything about one operator process."""

    purser_image: str
    """What runs on nodes of Purser's own: its agent, discovery, and MIG worker."""
    namespace: str = DEFAULT_NAMESPACE
    """Where operands and the lease are."""
    identity: str = ""
    """Of this process among its replicas. Empty: this machine's name, which is a pod's own, and a random end."""
    metrics_address: str = "0.0.0.0"
    metrics_port: int = 9402
    """Plain HTTP: metrics and health. 0: any free port."""
    rounds_apart_s: float = 0.5
    """Between the ends of rounds and the starts of others: what changes meanwhile is looked at once."""
    lease: LeaseSettings = LeaseSettings()
