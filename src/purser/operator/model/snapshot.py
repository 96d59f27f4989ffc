"""What is there: everything that one round decides from."""

from collections.abc import Mapping
from typing import Any

import msgspec

from purser.core.kubernetes.taints import Taint

Raw = Mapping[str, Any]
"""A whole object of the API, as it came."""


class ObjectKey(msgspec.Struct, frozen=True, order=True):
    """Names one object of one kind."""

    api_version: str
    kind: str
    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str

    @classmethod
    def of(cls, obj: Raw) -> "ObjectKey":
        """The key of a whole object."""
        metadata = obj["metadata"]
        return cls(obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"])

    @classmethod
    def of_node(cls, name: str) -> "ObjectKey":
        """The key of a node."""
        return cls("v1", "Node", "", name)

    @property
    def path(self) -> str:
        """``purser-system/purser-toolkit``; the name alone for cluster-scoped kinds."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        """How people read it: ``DaemonSet purser-system/purser-toolkit``."""
        return f"{self.kind} {self.path}"


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator reads of a node."""

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    """Its Ready condition is True."""
    os_image: str = ""
    kernel: str = ""
    runtime: str = ""
    """``containerd://1.7.22``, as the node says it."""
    boot_id: str = ""
    kubelet_version: str = ""


class OperandPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of an operand."""

    namespace: str
    name: str
    uid: str
    node: str
    operand: str
    """Value of its label `purser.dev/operand`."""
    daemon_set: str
    """Its owner's name; empty for an orphan."""
    template: str = ""
    """Value of its label `purser.dev/template`."""
    driver_config: str = ""
    """Value of its label `purser.dev/driver-config`; empty for every operand but the driver."""
    ready: bool = False
    """Its Ready condition is True."""
    ready_changed: float = 0.0
    """When that last changed; 0: since it was created."""
    terminating: bool = False
    """It was asked to go."""
    restarts: int = 0
    """The most that any of its containers has."""
    trouble: str = ""
    """Why a container waits or ended badly, in one word: CrashLoopBackOff, ErrImagePull; empty: none."""
    message: str = ""
    """The same in a sentence."""
    created: float = 0.0


class NodeWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is no operand's, on a node that is to be emptied, or whose driver is to leave."""

    namespace: str
    name: str
    uid: str
    node: str
    labels: dict[str, str] = {}
    phase: str = "Running"
    ready: bool = True
    """Its Ready condition is True: disruption budgets ask for it."""
    uses_gpu: bool = False
    """It asks for a resource that Purser's dialects know, or whose name begins as theirs do; or has any claim."""
    devices: frozenset[str] | None = None
    """The uuids of all that it holds, by its grant; None: that is not known, or it would not outlive the agent."""
    controller: str = ""
    """Kind of its controller; empty: it is not recreated."""
    empty_dir: bool = False
    mirror: bool = False
    """A static pod: the API cannot end it."""
    terminating: bool = False


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    selector: Raw = {}
    allowed: int = 0
    """How many disruptions it allows now."""
    current_healthy: int = 0
    desired_healthy: int = 0
    unhealthy_may_go: bool = False
    """Its unhealthyPodEvictionPolicy is AlwaysAllow: pods that are not ready are not counted."""


class RefusedWrite(msgspec.Struct, frozen=True):
    """A write of the last round that the API server did not take, for a reason that does not pass by itself."""

    key: ObjectKey
    """Of what was to be written."""
    why: str
    """What the server said."""


class IsolatedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a part of Purser failed on, unexpectedly: it stays as it is, and is reported."""

    node: NodeView
    why: str
    """In one line."""
    error: Exception | None = None
    """What was raised; None: it is left out with others, of which it is not known yet which ones are to blame."""
    driver_is_ready: bool = False
    """Its driver has a pod that is ready."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one round decides from."""

    now: float
    namespace: str
    """Where operands run."""
    purser_image: str
    """Of the operands that are Purser's own."""
    defined: bool = True
    """The server has the definition of ClusterPolicy."""
    policies: tuple[Raw, ...] = ()
    """Whole objects: each is decoded by the round, so that a bad one spoils no other."""
    nodes: tuple[NodeView, ...] = ()
    objects: dict[ObjectKey, Raw] = {}
    """Live objects that carry the operator's label."""
    settled: dict[ObjectKey, "AppliedObject"] = {}
    """What this process applied and how it came out; empty after a start."""
    pods: tuple[OperandPod, ...] = ()
    workloads: dict[str, tuple[NodeWorkload, ...]] = {}
    """By node: only of nodes that `nodes_to_inspect` named."""
    budgets: tuple[Budget, ...] = ()
    service_monitors: bool = False
    """The Prometheus operator's CRDs are there."""
    node_features: bool = False
    """node-feature-discovery takes NodeFeature objects: its definition is there, and this is no OpenShift, whose
    node-feature-discovery does not look at them."""
    config_keys: Mapping[str, tuple[str, ...]] = {}
    """Keys of the ConfigMaps in the namespace, by name."""
    versions: dict[str, str] = {}
    """resourceVersion by node: a patch is made on condition that the node is still the one that was looked at."""
    foreign: frozenset[ObjectKey] = frozenset()
    """RuntimeClasses that are not the operator's: they are used as they are."""
    rivals: tuple[str, ...] = ()
    """Names of ClusterPolicies of nvidia.com: another operator is at work on the same nodes."""
    other_namespace: str = ""
    """Namespace of the operator whose policies these are; empty: they are this one's, or free to take."""
    refusals: tuple[RefusedWrite, ...] = ()
    """Of this process's last round."""
    suspects: tuple[str, ...] = ()
    """Nodes that this process's last round left out; first those of which it is not known whether they are to blame."""
    isolated: tuple[IsolatedNode, ...] = ()
    """Nodes that are not among `nodes`, because what is decided fails on them."""

    @property
    def daemon_sets(self) -> dict[str, Raw]:
        """Live ones by name: they are all in one namespace."""
        return {key.name: obj for key, obj in self.objects.items() if key.kind == "DaemonSet"}

    @property
    def alive(self) -> frozenset[str]:
        """Nodes whose pods may still write; there is no wait for pods of other nodes, which may never end."""
        return frozenset(node.name for node in self.nodes if node.ready)


class AppliedObject(msgspec.Struct, frozen=True):
    """An apply of this process: what was wanted, and how the server wrote it (it may spell quantities its own way)."""

    wanted_hash: str
    came_out: Raw
