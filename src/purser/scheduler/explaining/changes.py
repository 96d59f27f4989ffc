"""The nouns: a kind of change, what to change, and a change by which a pod fits."""

from enum import StrEnum

import msgspec

from purser.core.kubernetes.taints import Taint

EXAMPLES = 3
"""Nodes that are named beside a suggestion."""


class ChangeKind(StrEnum):
    """What is changed."""

    AMOUNT = "amount"
    """One container asks for less of one resource, or the pod by one of KAI's annotations."""
    ANNOTATION = "annotation"
    """The pod loses one annotation that narrows the choice of GPUs."""
    NODE_SELECTOR = "nodeSelector"
    AFFINITY = "nodeAffinity"
    POD_AFFINITY = "podAffinity"
    POD_ANTI_AFFINITY = "podAntiAffinity"
    SPREAD = "topologySpreadConstraints"
    TOLERATIONS = "tolerations"
    QUOTA = "quota"
    UNCORDON_GPU = "uncordonGpu"
    UNCORDON_NODE = "uncordonNode"
    AGENT = "agent"
    """Purser's agent on one node runs again."""
    KUBELET = "kubelet"
    """The topology manager policy of one node's kubelet."""
    END = "end"
    """Pods end, or move."""


class SuggestedChange(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What to change, for programs: the fields that the kind has."""

    container: str = ""
    resource: str = ""
    """Of a decision log one of ``gpus``, ``gpuMemoryMiB``, ``gpuMemoryPercent``, ``gpuCoresPercent``, ``cpu``,
    ``memory``: a log does not have the pod's words."""
    amount: str = ""
    annotation: str = ""
    field: str = ""
    """In place of an annotation, of a decision log: what of the request (`purser.core.model`) is not said."""
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Taint, ...] = ()
    """The taints to tolerate."""
    quotas: dict[str, dict[str, str]] = {}
    """By name of a ResourceQuota, what of ``spec.hard`` is to be at least."""
    quota_left: dict[str, int] = {}
    """In place of quotas, of a decision log: what those of the namespace have to leave, by resource."""
    node: str = ""
    gpus: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    moves: dict[str, str] = {}
    """Of these pods, by key, which fit a node instead: which one."""


class Suggestion(msgspec.Struct, frozen=True):
    """One change, after which the pod fits."""

    kind: ChangeKind
    text: str
    change: SuggestedChange
    fits: int
    """How many nodes it fits then."""
    examples: tuple[str, ...] = ()
    """Some of them."""
