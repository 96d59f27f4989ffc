"""The messages between kube-scheduler and an extender (k8s.io/kube-scheduler/extender/v1), and who answers them.

The Go types carry no JSON tags, so that fields have Go's own names on the wire. Only ``nodeCacheCapable: true``
extenders are served: kube-scheduler then sends node names instead of whole nodes, which this side knows anyway.
A field that Go writes as null has its zero value.
"""

from typing import Protocol

import msgspec

from purser.kube.objects import Pod


class ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """What ``filter`` and ``prioritize`` are asked."""

    pod: Pod = Pod()
    node_names: list[str] | None = None
    """None when kube-scheduler was configured without ``nodeCacheCapable: true``; the server refuses that."""


class ExtenderFilterResult(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """The answer to ``filter``."""

    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    """Why each node does not fit now; kube-scheduler may try preemption on these."""
    failed_and_unresolvable_nodes: dict[str, str] = {}
    """Why each node can never fit, with any victims; since Kubernetes 1.21, where it beats `failed_nodes`."""
    error: str = ""
    """Not empty: the whole attempt failed, and the pod is tried again later."""


class HostPriority(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The score of one node, 0 to `purser.core.placement.MAX_SCORE`."""

    host: str
    score: int


class ExtenderBindingArgs(msgspec.Struct, frozen=True):
    """What ``bind`` is asked."""

    pod_name: str = msgspec.field(default="", name="PodName")
    pod_namespace: str = msgspec.field(default="", name="PodNamespace")
    pod_uid: str = msgspec.field(default="", name="PodUID")
    node: str = msgspec.field(default="", name="Node")


class ExtenderBindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer to ``bind``: an empty error means that the pod is bound."""

    error: str = ""


class MetaPod(msgspec.Struct, frozen=True):
    """A victim of preemption, by its uid."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, frozen=True):
    """The pods that would have to go from one node."""

    pods: tuple[MetaPod, ...] | None = msgspec.field(default=(), name="Pods")
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """What ``preempt`` is asked: kube-scheduler's own candidates."""

    pod: Pod = Pod()
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class ExtenderPreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer to ``preempt``: the candidates that help, with the victims that are needed."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


class Extender(Protocol):
    """Who answers kube-scheduler. The server decodes, encodes, measures and logs around it.

    Answers that can fail say so in their ``error``. `NotLeadingError` is answered with status 503, whatever else is
    raised with 500 and a log entry.
    """

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """Which of the nodes could hold the pod, and why not the others. Writes nothing."""
        ...

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """A score for each of the nodes. Writes nothing."""
        ...

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        """Reserves the pod's devices on the node and posts its Binding."""
        ...

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """Which candidates would let the pod in, once their victims are gone. Writes nothing."""
        ...
