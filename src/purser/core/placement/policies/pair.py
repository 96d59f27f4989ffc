"""A policy for nodes with one for GPUs."""

from dataclasses import dataclass

from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.protocol import ArrayGpuPolicy, ArrayNodePolicy, Gpus
from purser.core.placement.shape import View


@dataclass(frozen=True)
class NodeAndGpuPolicy:
    """The node by one policy, the GPUs there by another."""

    node: ArrayNodePolicy
    gpu: ArrayGpuPolicy

    @property
    def steady(self) -> bool:
        """See `Steady.steady`."""
        return self.node.steady and self.gpu.steady

    @property
    def epoch(self) -> int:
        """See `Steady.epoch`."""
        return self.node.epoch + self.gpu.epoch

    def rate(self, view: View) -> tuple[Floats, Gpus]:
        """See `ArrayPolicy.rate`."""
        return self.node.score(view), self.gpu.first(view)

    def choose(self, view: View) -> tuple[int, ...]:
        """See `ArrayPolicy.choose`."""
        return self.gpu.choose(view)

    def why(self, view: View, gpus: tuple[int, ...]) -> str:
        """See `ArrayPolicy.why`."""
        return ""
