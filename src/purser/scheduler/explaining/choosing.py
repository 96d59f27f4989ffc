"""What the choice of a node was worth: of a pod that is on one, against the nodes where it could be instead.

Asked of the cluster as it is now, without the pod: not as it was when the pod was placed.
"""

import math
from collections.abc import Iterator, Mapping

import msgspec

from purser.core.decoding import brief
from purser.core.fleet import Fleet
from purser.core.health.held import held_gpus_fault
from purser.core.ledger import pod_usage
from purser.core.model import Device, Grant
from purser.core.placement import Placement
from purser.core.placement.policies.purser import KEPT_NODE_SCORE
from purser.core.wording import natural_sort_key
from purser.kube.objects import Pod
from purser.scheduler.explaining.judging import words_of_node
from purser.scheduler.explaining.known import KnownCluster


class NodeScore(msgspec.Struct, frozen=True):
    """A node that takes the pod, and what the policy thinks of it."""

    node: str
    score: float | None
    """Higher is better, on the policy's own scale; None: the policy sees no room, of CPU as a rule."""
    is_kept: bool = False
    """Whether the policy keeps the node for other pods; the score is then far below 0."""


class ChosenNode(msgspec.Struct, frozen=True):
    """Where a pod is, and where it could be."""

    policy: str = ""
    """For nodes."""
    gpus: tuple[str, ...] = ()
    """Its GPUs, and what it holds of each, in words."""
    fault: str = ""
    """What is wrong with its GPUs now, and what helps; empty: nothing is known to be."""
    fits: int = 0
    """How many nodes take it, its own included."""
    own: NodeScore | None = None
    """None: its own would not take it any more."""
    own_reason: str = ""
    """Why its own would not; empty: it would, or the pod asks for no GPUs."""
    runner_up: NodeScore | None = None
    """The best of the others."""
    rank: int = 0
    """Of its own among all; 1: the best, or as good."""
    gpus_why: str = ""
    """What speaks for its GPUs among those of the node; empty: nothing is known."""


def choice_of(cluster: KnownCluster, pod: Pod) -> ChosenNode:
    """Of a pod that is on a node."""
    grant = cluster.grant(pod)
    held = () if grant is None else tuple(describe_held_gpus(cluster.fleet, grant))
    fault = "" if grant is None else _fault_of_held(cluster.fleet, grant)
    with cluster.without([pod]):
        waiting = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
        judged, scores = cluster.scored(waiting)
        if judged.request is None:
            return ChosenNode(gpus=held, fault=fault, fits=len(judged.fits))
        why = "" if grant is None else cluster.gpus_why(judged.request, _placement(grant))
        found = compare_nodes(cluster.policy.node_policy(judged.request), held, scores, pod.spec.node_name, why)
        own_reason = words_of_node(judged, pod.spec.node_name)
        return msgspec.structs.replace(found, fault=fault, own_reason=own_reason)


def compare_nodes(
    policy: str, held: tuple[str, ...], scores: Mapping[str, float], own: str, gpus_why: str = ""
) -> ChosenNode:
    """The pod's own node against the others that take it. ``scores``: minus infinity where the policy sees no room."""
    by_node = {name: score if math.isfinite(score) else None for name, score in scores.items()}
    ranked = sorted(by_node, key=lambda name: (-scores[name], natural_sort_key(name)))
    runner_up = next((name for name in ranked if name != own), "")
    return ChosenNode(
        policy=policy,
        gpus=held,
        fits=len(by_node),
        own=_node_score(own, by_node[own]) if own in by_node else None,
        runner_up=_node_score(runner_up, by_node[runner_up]) if runner_up else None,
        rank=1 + sum(scores[name] > scores[own] for name in by_node) if own in by_node else 0,
        gpus_why=gpus_why if own in by_node else "",
    )


def _node_score(node: str, score: float | None) -> NodeScore:
    return NodeScore(node, score, score is not None and score < KEPT_NODE_SCORE)


def _placement(grant: Grant) -> Placement:
    return Placement(grant.node, grant.containers)


def _fault_of_held(fleet: Fleet, grant: Grant) -> str:
    devices = _devices(fleet, grant.node)
    return held_gpus_fault({uuid: devices.get(uuid) for uuid in pod_usage(grant)}) or ""


def describe_held_gpus(fleet: Fleet, grant: Grant) -> Iterator[str]:
    """What a pod holds of each GPU: ``GPU 3: 8192 MiB, 30% of compute``."""
    devices = _devices(fleet, grant.node)
    for uuid, usage in pod_usage(grant).items():
        name = f"GPU {devices[uuid].index}" if uuid in devices else f"GPU {brief(uuid)} (not in the node's inventory)"
        cores = f", {usage.cores_percent}% of compute" if usage.cores_percent else ""
        yield f"{name}: {usage.memory_mib} MiB{cores}"


def _devices(fleet: Fleet, node: str) -> dict[str, Device]:
    state = fleet.node(node)
    return {} if state is None else {each.device.uuid: each.device for each in state.devices}
