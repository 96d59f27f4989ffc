"""Settings of the operator, with the reason of each default. The options are described in `purser.options`."""

from dataclasses import dataclass, replace
from typing import Annotated

from purser.core.names import DEFAULT_NAMESPACE
from purser.options import METRICS_ADDRESS, METRICS_PORT, Option

DEFAULT_IMAGE = "purser:latest"
"""The default of Purser's image."""


@dataclass(frozen=True)
class LeaseSettings:
    """Leader election; durations are in seconds.

    Between the deadline and the duration no process leads: as long as a write may be under way, so that two leaders
    never write at once.
    """

    duration_s: float = 30.0
    """A rollout takes minutes: half a minute without a leader does not matter."""
    renew_deadline_s: float = 20.0
    retry_s: float = 4.0

    @property
    def write_s(self) -> float:
        """A write takes no longer than this."""
        return self.duration_s - self.renew_deadline_s


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of one operator process."""

    namespace: Annotated[str, Option("Namespace of the operands and of the operator's lease.")] = DEFAULT_NAMESPACE
    purser_image: Annotated[
        str,
        Option(
            "Purser image for Purser's own operands. Default: purser:latest; in previews, the image that runs in the "
            "cluster.",
            name="image",
            environment="PURSER_IMAGE",
        ),
    ] = ""
    """For its agent, discovery, and MIG worker. Empty: the default, see `image_to_run`."""
    identity: Annotated[
        str, Option("Identity of this replica in leader election. Default: the host name with a random suffix.")
    ] = ""
    """A machine's name is a pod's own."""
    metrics_address: Annotated[str, METRICS_ADDRESS] = "0.0.0.0"
    metrics_port: Annotated[int, replace(METRICS_PORT, value="operator.metricsPort")] = 9402
    """Plain HTTP: metrics and health, nothing else."""
    rounds_apart_s: float = 0.5
    """Between the ends of rounds and the starts of others: what changes meanwhile is looked at once."""
    lease: LeaseSettings = LeaseSettings()

    @property
    def image_to_run(self) -> str:
        """Purser's image, where no running one is looked for."""
        return self.purser_image or DEFAULT_IMAGE
