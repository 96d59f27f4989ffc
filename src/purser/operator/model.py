"""The nouns between the edges and the kernel: what is there (`Snapshot`), and what to do about it (`Outcome`).

All of it is plain, frozen data. Times are seconds since the epoch, handed in; nothing here reads a clock.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from purser.operator.order import Operand
from purser.operator.policy.spec import ClusterPolicy
from purser.operator.policy.status import ClusterPolicyStatus

Raw = Mapping[str, Any]


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


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator reads of a node."""

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    unschedulable: bool = False
    ready: bool = True
    """Its Ready condition is True."""
    os_image: str = ""
    kernel: str = ""
    runtime: str = ""
    """``containerd://1.7.22``, as the node says it."""
    boot_id: str = ""
    kubelet_version: str = ""


class PodView(msgspec.Struct, frozen=True, kw_only=True):
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
    ready: bool = False
    """Its Ready condition is True."""
    ready_changed: float = 0.0
    """When that last changed; 0: since it was created."""
    going: bool = False
    """It was asked to go."""
    restarts: int = 0
    """The most that any of its containers has."""
    trouble: str = ""
    """Why a container waits or ended badly, in one word: CrashLoopBackOff, ErrImagePull; empty: none."""
    message: str = ""
    """The same in a sentence."""
    created: float = 0.0


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is no operand's, on a node that is to be emptied."""

    namespace: str
    name: str
    uid: str
    node: str
    labels: dict[str, str] = {}
    phase: str = "Running"
    uses_gpu: bool = False
    """A container asks for nvidia.com/gpu, nvidia.com/mig-*, or another resource that Purser's dialects know."""
    controller: str = ""
    """Kind of its controller; empty: nobody makes it anew."""
    empty_dir: bool = False
    mirror: bool = False
    """A static pod: the API cannot end it."""
    going: bool = False


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    selector: Raw = {}
    allowed: int = 0
    """How many disruptions it allows now."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one round decides from."""

    now: float
    namespace: str
    """Where operands run."""
    purser_image: str
    """Of the operands that are Purser's own."""
    policies: tuple[Raw, ...] = ()
    """Whole objects: each is decoded by the kernel, so that a bad one spoils no other."""
    nodes: tuple[NodeView, ...] = ()
    objects: dict[ObjectKey, Raw] = {}
    """Live objects that carry the operator's label."""
    settled: dict[ObjectKey, "Settled"] = {}
    """What this process applied and how it came out; empty after a start."""
    pods: tuple[PodView, ...] = ()
    workloads: dict[str, tuple[Workload, ...]] = {}
    """By node: only of nodes that `nodes_to_look_into` named."""
    budgets: tuple[Budget, ...] = ()
    service_monitors: bool = False
    """The Prometheus operator's CRDs are there."""


class Settled(msgspec.Struct, frozen=True):
    """An apply of this process: what was wanted, and how the server wrote it (it may spell quantities its own way)."""

    wanted_hash: str
    came_out: Raw


# --- what to do; in the order in which it is done


class Apply(msgspec.Struct, frozen=True, tag=True):
    """Server-side apply of a whole object, with force."""

    object: Raw
    why: str
    """``created``, ``changed`` or ``drift``: with the paths that differ."""


class Delete(msgspec.Struct, frozen=True, tag=True):
    """Remove an owned object; its uid is the precondition."""

    key: ObjectKey
    uid: str
    why: str


class PatchNode(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One merge patch of a node; None removes a key. Labels, annotations and cordon change in one write."""

    node: str
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    unschedulable: bool | None = None
    """None: as it is."""
    why: str = ""


class DeletePod(msgspec.Struct, frozen=True, tag=True):
    """Delete an operand's pod: how an OnDelete DaemonSet is told to go on."""

    pod: PodView
    why: str


class Evict(msgspec.Struct, frozen=True, tag=True):
    """Ask for a pod's eviction, which its disruption budgets may refuse: then it is asked again in a later round."""

    workload: Workload
    why: str


class WriteStatus(msgspec.Struct, frozen=True, tag=True):
    """Write a policy's status; only when it differs from what is there."""

    policy: str
    status: ClusterPolicyStatus


class SetFinalizer(msgspec.Struct, frozen=True, tag=True):
    """Add or remove the operator's finalizer, on condition of the policy's version."""

    policy: str
    resource_version: str
    finalizers: tuple[str, ...]


Action = Apply | Delete | PatchNode | DeletePod | Evict | WriteStatus | SetFinalizer


class Say(msgspec.Struct, frozen=True):
    """An event on a policy or a node."""

    kind: Literal["ClusterPolicy", "Node"]
    name: str
    uid: str
    reason: str
    message: str
    warning: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one round came to. The actions are independent of one another unless order says otherwise: an edge does them
    in this order, tries all, and the next round sees what became of them."""

    actions: tuple[Action, ...] = ()
    events: tuple[Say, ...] = ()
    gauges: dict[str, float] = {}
    """Metric name without its prefix -> value."""
    look_again_s: float | None = None
    """When time alone changes something; None: never."""


class OperandOnNode(msgspec.Struct, frozen=True, kw_only=True):
    """How far an operand is on a node."""

    operand: Operand
    state: Literal["waiting", "paused", "progressing", "ready", "failing", "excluded"]
    """Waiting: for a prerequisite; paused: for an upgrade or a MIG change; excluded: by a label of the user."""
    outdated: bool = False
    """Its pod is of an older template."""
    reason: str = ""
    message: str = ""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with equal OS, kernel and driver profile: one driver DaemonSet."""

    name: str
    """Value of `purser.dev/driver-pool`, and the end of the DaemonSet's name."""
    os_id: str
    os_version: str
    kernel: str
    profile: str
    """Of spec.driver.profiles; empty: the driver's own section."""
    version: str
    """Driver version."""
    daemon_set: str
    template: str
    """Hash of the pod template that the policy leads to."""

    @property
    def target(self) -> str:
        """What an upgrade leads to: equal for nodes whose driver is the same one."""
        return f"{self.name}.{self.template}"


class RuntimeKind(msgspec.Struct, frozen=True, order=True):
    """Nodes on which configuration and sockets of runtime and kubelet are at the same paths."""

    runtime: Literal["containerd", "crio", "docker"]
    distribution: Literal["", "k3s", "rke2", "k0s", "microk8s"] = ""
    cdi: bool = True
    """It can do the Container Device Interface: containerd from 1.7, CRI-O from 1.23. Docker never gets it anyway."""

    @property
    def label(self) -> str:
        """Value of `purser.dev/runtime`, and the end of the names of DaemonSets: ``containerd-k3s``."""
        return "-".join(filter(None, (self.runtime, self.distribution, "" if self.cdi else "nocdi")))


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What manifests are rendered from."""

    policy: ClusterPolicy
    namespace: str
    purser_image: str
    pools: tuple[Pool, ...] = ()
    """Without templates: those come out of rendering. Those of GPU nodes, and those that a node still carries."""
    runtimes: tuple[RuntimeKind, ...] = ()
    """Of GPU nodes."""
    service_monitors: bool = False


class Rendered(msgspec.Struct, frozen=True):
    """A manifest: with owner, labels and hash annotation; a DaemonSet also with its template's hash on its pods."""

    object: Raw
    operand: str
    """An `Operand`, or a name for what belongs to none: ``gpu-discovery``, ``mps-control-daemon``, ``operator``."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a GPU node stands in one round: found once, and read by gates, upgrade, MIG and status alike."""

    node: NodeView
    pool: Pool | None = None
    """Where it belongs; None: the driver is the node's own, or cannot be told (`obstacle` says why)."""
    obstacle: str = ""
    """Why it gets no driver, in one sentence: an unknown OS, a requirement that rules the version out."""
    operands: dict[Operand, OperandOnNode] = {}
    """Of every enabled operand."""
    pods: tuple[PodView, ...] = ()
    """Of operands, on this node; those that are going included."""
    runtime: RuntimeKind | None = None
    mig_capable: bool = False

    def pod_of(self, operand: Operand) -> PodView | None:
        """The operand's newest pod that is not going."""
        found = [pod for pod in self.pods if pod.operand == operand and not pod.going]
        return max(found, key=lambda pod: (pod.created, pod.name), default=None)

    @property
    def driver_is_current(self) -> bool:
        """The driver's pod comes from the template that the policy leads to. True without a pool."""
        pod = self.pod_of(Operand.DRIVER)
        if self.pool is None:
            return True
        return pod is not None and (pod.daemon_set, pod.template) == (self.pool.daemon_set, self.pool.template)


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """What a state machine does in one round, at most one patch per node. The kernel merges it with the gates' labels
    into one write per node."""

    patches: dict[str, PatchNode] = {}
    """By node."""
    deletions: tuple[DeletePod, ...] = ()
    evictions: tuple[Evict, ...] = ()
    events: tuple[Say, ...] = ()
    gauges: dict[str, float] = {}
    look_again_s: float | None = None
