"""Where the state comes from, as the loop sees it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from purser.core.state import ClusterState, NodeDetails, Rollout, StateEvent, StateStep

ADDITIONS_FRESH_S = 15.0
"""For how long steps and events are not read again, as long as a page with them stays: one that could not wait for them
has them when it is read again."""


class StateSource(Protocol):
    """The cluster by watches, or the scheduler's read API."""

    where: str
    """What is asked, for people."""

    @property
    def state(self) -> ClusterState | None:
        """The newest; None: nothing is known yet. Another object whenever it has changed."""
        ...

    @property
    def problem(self) -> str:
        """Why it is not up to date; empty: it is."""
        ...

    async def run(self, on_change: Callable[[], None]) -> None:
        """Keep it up to date until cancelled. Raises `purser.kube.errors.KubeError` where it cannot be had at all."""
        ...

    def wants(self, uids: Sequence[str]) -> None:
        """These waiting pods are looked at: their reasons go first."""
        ...

    async def details(self, namespace: str, pod: str) -> list[str]:
        """Why a pod waits, or is where it is, as lines."""
        ...

    async def rollout(self) -> Rollout:
        """What the operator rolls out, a few seconds old at most. Raises `purser.kube.errors.KubeError` and
        `purser.kube.ConfigError` where it cannot be had."""
        ...

    async def steps(self, namespace: str, pod: str, uid: str) -> Sequence[StateStep]:
        """When a pod came to each step of its way; empty: not known, or another pod has the name by now. Raises as
        `rollout` does."""
        ...

    async def events(self, namespace: str, about: Mapping[str, str]) -> Sequence[StateEvent] | None:
        """The last events about an object, the last at the end; ``about``: its ``uid``, or its ``kind`` and ``name``.
        None: they may not be read. Raises as `rollout` does."""
        ...

    async def node_details(self, name: str) -> NodeDetails | None:
        """How a node's GPUs are connected, and what its kubelet reports; None: not known. Raises as `rollout` does."""
        ...
