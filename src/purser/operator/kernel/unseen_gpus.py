"""GPUs that nobody sees any more: they do not count as gone while a pod uses one. Whoever looks may be wrong, and the
stack would leave under that pod."""

from collections.abc import Iterator

from purser.operator.kernel.active_policy import Chosen
from purser.operator.kernel.facts import has_gpu
from purser.operator.model import NodeView, NodeWorkload, Presence, Snapshot
from purser.operator.names import GPU_PRESENT_LABEL
from purser.operator.nodework.evicting import gpu_pods


def presence_of(node: NodeView, snapshot: Snapshot, gone_after: float) -> Presence:
    """Whether a node has GPUs, by who uses them, too. Until its pods are known, they may."""
    found = has_gpu(node, snapshot.now, gone_after)
    if not _is_leaving(node, found):
        return found
    workloads = snapshot.workloads.get(node.name)
    if workloads is None:
        return Presence("missing")
    users = tuple(sorted(_path(pod) for pod in gpu_pods(workloads) if not pod.going))
    return Presence("missing", users=users) if users else found


def nodes_about_to_lose_gpus(snapshot: Snapshot, chosen: Chosen) -> Iterator[str]:
    """Nodes whose GPUs count as gone from now on, unless a pod uses one."""
    if chosen.policy is None:
        return
    gone_after = chosen.policy.spec.discovery.gone_after_seconds
    for node in snapshot.nodes:
        if _is_leaving(node, has_gpu(node, snapshot.now, gone_after)):
            yield node.name


def _is_leaving(node: NodeView, found: Presence) -> bool:
    return found.state == "gone" and node.labels.get(GPU_PRESENT_LABEL) == "true"


def _path(pod: NodeWorkload) -> str:
    return f"{pod.namespace}/{pod.name}"
