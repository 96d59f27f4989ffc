"""What a decision log holds: one Struct for each kind of record.

A record is an array, so that names of fields cost nothing. Fields are only ever added, at the end and with a default:
then older files can be read, and newer ones by older readers, which skip what they do not know. Any other change is a
new `LOG_FORMAT`.

Two kinds of logs: a simulation's (`SimulationStart` and the records up to `ShapeReleased`) and a scheduler's
(`SchedulingStart` and those after it). In a scheduler's log the records between two `Moment` are of one time. All that
a decision depends on stands before it: what is not written again is as it was.
"""

from collections.abc import Mapping

import msgspec

from purser.core.fleet.arrays import Model
from purser.core.fleet.facts import FleetNodeFacts
from purser.core.fleet.free_resources import FreeResources
from purser.core.fleet.kubelet_snapshot import KubeletPods
from purser.core.grant.quota import UNLIMITED, QuotaLimits
from purser.core.kubelet.state import KubeletNode, KubeletState
from purser.core.ledger import Usage
from purser.core.model import ContainerGrant, Grant, GrantState, NodeInventory, PodRequest, PoolShare
from purser.core.placement.mix import Mix
from purser.core.placement.shape import PodShape
from purser.core.policy.settings import PolicySettings

LOG_FORMAT = 2
"""Of files; readers refuse a larger one. 1: simulations alone."""


class SimulationStart(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The first record of a simulation's log."""

    format: int
    purser: str
    """The version that wrote it, for people."""
    policy: str
    """As `purser.core.placement.policies.parse_policy` reads it."""
    seed: int
    """Of policies that choose at random."""
    learns: bool
    """Whether the policy learns the mix of pods from those that arrive."""
    mix: Mix
    """What it expects where it does not learn."""


class SimulatedNode(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A node of the simulation, before the first decision; its row is its place among these records."""

    facts: FleetNodeFacts
    rank: int
    """Of equally good nodes the one with the smallest is taken."""


class ShapeSeen(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A shape that records after this one are about; its number is its place among these records."""

    shape: PodShape


class ShapeArrived(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """A pod has come, to be learnt from. Not written where the policy does not learn."""

    shape: int


class ShapePlaced(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """A decision: where a pod goes, which takes its share there; or that it fits nowhere."""

    shape: int
    row: int = -1
    """-1: nowhere."""
    gpus: tuple[int, ...] = ()
    """Places among the node's GPUs; one that is cut on demand is there once for each instance."""
    score: float = 0.0
    """Of the node, by the policy."""


class ShapeReleased(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """A pod has ended, and gives back what it had."""

    shape: int
    row: int
    gpus: tuple[int, ...] = ()
    mig_bits: tuple[int, ...] = ()
    """See `purser.core.fleet.facts.Take.mig_bits`."""


class SchedulingStart(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The first record of a scheduler's log: each file stands by itself, the whole state follows."""

    format: int
    purser: str
    """The version that wrote it, for people."""
    policy: PolicySettings
    """Of pods that name none."""
    at: float
    """Unix time, in seconds."""
    one_in: int = 1
    """Of so many pods the decisions on one are in the log; what pods hold is there of all."""
    is_anonymous: bool = False
    """Names of pods, namespaces and nodes are hashes."""


class Moment(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """The records after it are of this time: decisions to the point, what changed of the fleet at the latest."""

    at: float
    """Unix time, in seconds. It goes backwards where the machine's clock does."""


class ModelsKnown(msgspec.Struct, frozen=True, array_like=True, tag=29):
    """The kinds of GPUs that the fleet has or once had, before the first node: plans hold as long as they are these."""

    models: tuple[Model, ...]


class NodeSeen(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """A node that records after this one are about; its number is its place among these records."""

    name: str


class InventoryTaken(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """What a node has now: it has come, or its GPUs have changed."""

    node: int
    inventory: NodeInventory


class NodeGone(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """A node has no inventory any more. Nothing is said of it, and of what pods hold there, until it comes again: what
    they still hold then is written again."""

    node: int


class FreeResourcesTaken(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """What is free of a node beside its GPUs."""

    node: int
    free: FreeResources


class DisputesTaken(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Of which of a node's GPUs no new grants are made, and why: by uuid."""

    node: int
    disputes: Mapping[str, str]


class CpuLists(msgspec.Struct, frozen=True, array_like=True):
    """`purser.core.kubelet.state.CpuState`, its sets as lists of the kernel's format: they have more than 64 CPUs."""

    default: str
    reserved: str
    exclusive: tuple[tuple[str, str, str], ...]
    """(pod uid, container name, CPUs)."""


class KubeletTaken(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """What a node's kubelet was last seen to have and to hold."""

    node: int
    kubelet: KubeletNode | None
    """None: nothing is known of it, or it refuses nothing."""
    state: KubeletState = KubeletState()
    """Without the CPU manager's."""
    cpus: CpuLists | None = None
    counted: tuple[str, ...] | None = None
    """See `purser.core.fleet.kubelet_snapshot.ReportedKubelet.counted`."""
    masks: tuple[bytes, ...] = ()
    """Of the state, where NUMA nodes go beyond 64: see `purser.core.decisions.masks`."""


class KubeletPodsTaken(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """The pods on a node whose kubelet may refuse some."""

    node: int
    pods: KubeletPods


class GrantTaken(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """A pod holds GPUs of a node; it takes the place of what was written of the pod before."""

    node: int
    grant: Grant
    """Its node is empty: ``node`` says it."""
    state: GrantState = GrantState.RESERVED
    """How far it was when it was first seen."""


class GrantReleased(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """A pod holds nothing any more: it has ended, or its Binding came to nothing (then nothing says that it was bound,
    neither `GrantTaken.state` nor a `PodBound`)."""

    node: int
    pod_uid: str


class MixLearnt(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """The pods to expect from now on."""

    mix: Mix


class PlanMade(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """The policy `purser` plans for the fleet and the mix as they are; the plan holds until the next one."""


class NodeOrder(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """The nodes in the order of their names, where the log has others: of equally good nodes the first is taken."""

    nodes: tuple[int, ...]


class RequestSeen(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """What pods ask for; its number is its place among these records."""

    request: PodRequest
    """Who asks is empty."""


class CandidatesSeen(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Nodes that decisions after this one are about; its number is its place among these records."""

    nodes: bytes
    """A bit for each node by its number, the first is the highest of the first byte."""


class PodKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The pod of a decision."""

    uid: str
    namespace: str
    name: str
    created: float = 0.0
    """Unix time, in seconds. 0: not known."""


class HeldForOthers(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a node for pods that were nominated to it."""

    node: int
    usage: Mapping[str, Usage]
    """By uuid."""
    pools: tuple[tuple[str, str, int], ...] = ()
    """(pool, place, devices) of its SR-IOV pools."""


class NodesJudged(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """A decision: which of the candidates a pod fits, and how good each of them is."""

    pod: PodKey
    request: int
    candidates: int
    fits: int
    """How many of them."""
    digest: int
    """Of which these are and of their scores' bits, see `purser.core.decisions.digest`."""
    best: int = -1
    """The node with the highest score, of equals the first; -1: none fits."""
    score: float = 0.0
    """Its score."""
    refusals: tuple[tuple[str, int], ...] = ()
    """Where none fits: how many candidates were refused for each reason, sorted; a node can have several."""
    quota: QuotaLimits = UNLIMITED
    """What the quota of the pod's namespace left."""
    held: tuple[HeldForOthers, ...] = ()
    clock: int = 0
    """Of `purser.core.fleet.arrays.FleetArrays`, for policies that choose at random."""
    verb: str = "filter"
    """What was asked: ``filter``; ``prioritize`` where kube-scheduler had narrowed the nodes down since; ``nominate``
    for a pod that waits in its queue."""


class PodPlaced(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """A decision: which GPUs a pod gets on a node. It holds them where a `GrantTaken` follows: the ledger may refuse
    what was found, and then the pod gets nothing."""

    pod: PodKey
    request: int
    node: int
    containers: tuple[ContainerGrant, ...] = ()
    """What it gets, how it is enforced aside. Empty: it does not fit."""
    refusal: tuple[tuple[str, int], ...] = ()
    """Why it does not fit: how many GPUs have each reason, sorted."""
    quota: QuotaLimits = UNLIMITED
    held: tuple[HeldForOthers, ...] = ()
    clock: int = 0
    is_early: bool = False
    """It was placed before kube-scheduler asked; a pod that is not bound in time loses that again."""
    pools: tuple[PoolShare, ...] = ()
    """What it gets of the node's SR-IOV pools."""


class PodBound(msgspec.Struct, frozen=True, array_like=True, tag=28, gc=False):
    """The API server has the Binding of a pod to the node where it holds GPUs: it answered so, or was asked since, or
    its watch shows the pod there. A grant of which `GrantTaken.state` says so needs none."""

    pod_uid: str


class PodGone(msgspec.Struct, frozen=True, array_like=True, tag=30, gc=False):
    """A pod that waited does so no more, and Purser did not bind it: it was deleted, has ended, or others bound it."""

    pod_uid: str


SchedulingRecord = (
    Moment
    | ModelsKnown
    | NodeSeen
    | InventoryTaken
    | NodeGone
    | FreeResourcesTaken
    | DisputesTaken
    | KubeletTaken
    | KubeletPodsTaken
    | GrantTaken
    | GrantReleased
    | MixLearnt
    | PlanMade
    | NodeOrder
    | RequestSeen
    | CandidatesSeen
    | NodesJudged
    | PodPlaced
    | PodBound
    | PodGone
)
SimulationRecord = SimulatedNode | ShapeSeen | ShapeArrived | ShapePlaced | ShapeReleased
Record = SimulationStart | SchedulingStart | SimulationRecord | SchedulingRecord


class Outcome(msgspec.Struct, frozen=True):
    """What came of a decision."""

    node: str = ""
    """Empty: the pod fits nowhere."""
    gpus: tuple[int, ...] = ()
    """Places among the node's GPUs, in the order in which the pod sees them."""
    score: float | None = None
    """Of the node, by the policy that decided. None: it gave none."""


class DecisionDifference(msgspec.Struct, frozen=True):
    """A decision that is another one when it is made again."""

    decision: int
    """The first of a log is 1."""
    pod: str
    """Its name, or what it asks for where the log has no names."""
    logged: Outcome
    now: Outcome
    why: str
    """What speaks for the one over the other."""
