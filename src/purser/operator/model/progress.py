"""What a round found out: how far each GPU node is, and what manifests are made from."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from purser.operator.model.snapshot import NodeView, OperandPod, Raw
from purser.operator.order import Operand
from purser.operator.policy.fields import Workload
from purser.operator.policy.spec import ClusterPolicy
from purser.operator.reasons import OperatorReason

OperandState = Literal["waiting", "paused", "progressing", "ready", "failing", "excluded"]
"""Waiting: for a prerequisite; paused: for an upgrade or a MIG change; excluded: by a label of the user."""

Runtime = Literal["containerd", "crio", "docker"]
Distribution = Literal["", "k3s", "rke2", "k0s", "microk8s"]
"""Of Kubernetes, where its files are elsewhere than usual."""


class GateBlocker(msgspec.Struct, frozen=True):
    """What an operand waits for before it is let in to a node."""

    reason: OperatorReason
    message: str
    """In one sentence, for people."""
    fails: bool = False
    """It does not come by itself."""
    leaves: bool = False
    """It has to wait outside: what is in already goes."""


class OperandOnNode(msgspec.Struct, frozen=True, kw_only=True):
    """How far an operand is on a node."""

    operand: Operand
    state: OperandState
    outdated: bool = False
    """Its pod is of an older template."""
    reason: str = ""
    message: str = ""
    blocker: GateBlocker | None = None
    """What keeps it out as long as it is not in; None: its gate may open."""


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
    runtime: Runtime = "containerd"
    """Where it makes a difference to the driver: ``crio`` on nodes whose CRI-O hands the host's subscription to every
    container."""

    @property
    def daemon_set(self) -> str:
        """Name of the DaemonSet of its driver."""
        return daemon_set_of(self.name)


def daemon_set_of(pool: str) -> str:
    """Name of the DaemonSet of a pool's driver."""
    return f"purser-driver-{pool}"


class Template(msgspec.Struct, frozen=True):
    """What a DaemonSet makes pods from, as the policy leads to it."""

    hash: str = ""
    """Of the pod template."""
    configuration: str = ""
    """Of a driver's: digest of what the driver is loaded from. Where it is equal, a new template changes nothing that
    is loaded: the driver's pod is restarted under its users."""


class RuntimeKind(msgspec.Struct, frozen=True, order=True):
    """Nodes whose runtime and kubelet are alike: the same paths, and the same way to hand GPUs over.

    Only differences between nodes that change a manifest of the policy count."""

    runtime: Runtime
    distribution: Distribution = ""
    cdi: bool = True
    """It can do the Container Device Interface: containerd from 1.7, CRI-O from 1.23. Docker never gets it anyway.
    True, too, where the policy hands no GPU over by it."""
    config_v2: bool = False
    """Of k3s and RKE2: their containerd is older than 2, and its configuration of version 2. False, too, where
    the policy has no toolkit: nothing else writes there."""

    @property
    def label(self) -> str:
        """Value of `purser.dev/runtime`, and the end of the names of DaemonSets: ``containerd-k3s``."""
        marks = ("v2" if self.config_v2 else "", "" if self.cdi else "nocdi")
        return "-".join(filter(None, (self.runtime, self.distribution, *marks)))


class RenderInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What manifests are rendered from."""

    policy: ClusterPolicy
    namespace: str
    purser_image: str
    pools: tuple[Pool, ...] = ()
    """Those of GPU nodes, and those that a node still carries."""
    runtimes: tuple[RuntimeKind, ...] = ()
    """Of GPU nodes."""
    service_monitors: bool = False
    node_features: bool = False
    """Feature discovery may leave what it finds in objects of node-feature-discovery."""
    config_keys: Mapping[str, tuple[str, ...]] = {}
    """Keys of ConfigMaps in the namespace, by name: each is mounted as a file of its own."""


class RenderedManifest(msgspec.Struct, frozen=True):
    """A manifest: with owner, labels and hash annotation; a DaemonSet also with its template's hash on its pods."""

    object: Raw
    operand: str
    """An `Operand`, or a name for what belongs to none: ``gpu-discovery``, ``mps-control-daemon``, ``operator``."""


class DriverRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """A driver that is to leave its node. It goes last: a driver that is in use cannot be unloaded, and who uses it
    would lose its GPU."""

    terminating: bool = False
    """Its pod was asked to go, or its label has gone and the pod will follow: nothing holds it any more."""
    operands: tuple[str, ...] = ()
    """Those that need it and still have a pod there."""
    users: tuple[str, ...] | None = None
    """Pods with a GPU, ``namespace/name``; None: not known yet."""

    @property
    def stays(self) -> bool:
        """Somebody still needs it, or may."""
        return not self.terminating and (self.users != () or bool(self.operands))


class Presence(msgspec.Struct, frozen=True):
    """Whether a node has GPUs, as far as one can see."""

    state: Literal["never", "present", "missing", "gone"]
    """Never: it had none; missing: they are no longer seen, which may be temporary; gone: for so long that it has
    none."""
    gone_at: float | None = None
    """When a missing GPU will count as gone, if nothing changes."""
    users: tuple[str, ...] = ()
    """Pods that use GPUs which would count as gone otherwise, ``namespace/name``."""


class NodeAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU node and where it belongs: known before any manifest is."""

    node: NodeView
    presence: Presence
    runtime: RuntimeKind
    workload: Workload = "container"
    """Whom its GPUs are for."""
    excluded: bool = False
    """By people: it gets no operand."""
    pool: Pool | None = None
    """None: the driver is the node's own, or is not known (`obstacle` or `waits` says why)."""
    obstacle: str = ""
    """Why it gets no driver, in one sentence: an unknown OS, a requirement that rules the version out."""
    waits: str = ""
    """What has to be known before its driver can be chosen, in one sentence."""


class NodeProgress(NodeAssignment, frozen=True, kw_only=True):
    """How a GPU node stands in one round: found once, and read by gates, upgrade, MIG and status alike."""

    driver_template: Template = Template()
    """Of the driver that its pool is to have; empty without a pool."""
    operands: dict[Operand, OperandOnNode] = {}
    """Of every enabled operand."""
    pods: tuple[OperandPod, ...] = ()
    """Of operands, on this node; terminating ones included."""
    mig_capable: bool = False
    driver_removal: DriverRemoval | None = None
    """Of its driver, where that is to leave."""
    untolerated: str = ""
    """Why operands that leave the node would not come back to it, in one sentence: a taint; empty: they would. What is
    there already stays."""

    def pod_of(self, operand: Operand) -> OperandPod | None:
        """The operand's newest pod that is not terminating."""
        found = [pod for pod in self.pods if pod.operand == operand and not pod.terminating]
        if len(found) > 1:  # as a rule there is one
            return max(found, key=lambda pod: (pod.created, pod.name))
        return found[0] if found else None

    @property
    def kept_away_by_taint(self) -> str:
        """The first operand whose pod a taint of the node keeps away, and what to do; empty: there is none."""
        found = (each for each in self.operands.values() if each.reason == OperatorReason.UNTOLERATED)
        return next((f"{each.operand}: {each.message}" for each in found), "")

    @property
    def driver_is_current(self) -> bool:
        """The driver's pod comes from the template that the policy leads to. True without a pool."""
        pod = self.pod_of(Operand.DRIVER)
        if self.pool is None:
            return True
        return pod is not None and (pod.daemon_set, pod.template) == (self.pool.daemon_set, self.driver_template.hash)

    @property
    def validation_is_stale(self) -> bool:
        """The validator's pod is older than the driver's: it validated one that is no longer there."""
        driver, validator = self.pod_of(Operand.DRIVER), self.pod_of(Operand.VALIDATOR)
        return driver is not None and validator is not None and validator.created < driver.created

    @property
    def target(self) -> str:
        """What an upgrade leads to: equal for nodes whose driver is the same one; empty without a pool."""
        return f"{self.pool.name}.{self.driver_template.hash}" if self.pool is not None else ""
