"""From the API's objects to the kernel's nouns. Here and nowhere else is known where in a Node or Pod they stand."""

from datetime import datetime

from purser.core.dialects import RESOURCES
from purser.core.names import INVENTORY_ANNOTATION, KUBELET_ANNOTATION
from purser.operator.model import Budget, NodeView, PodView, Workload
from purser.operator.names import OPERAND_LABEL, TEMPLATE_LABEL
from purser.operator.observing.objects import (
    Condition,
    ContainerStatus,
    DisruptionBudget,
    Node,
    Pod,
    Terminated,
)

_READ_ANNOTATIONS = ("purser.dev/", "nvidia.com/")
_BULKY_ANNOTATIONS = (INVENTORY_ANNOTATION, KUBELET_ANNOTATION)  # the agent's: long, often new, never asked for here
_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_NVIDIA_PREFIXES = ("nvidia.com/gpu", "nvidia.com/mig-")
_ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing")
MAX_MESSAGE = 500
"""Of what a container left behind when it ended: more does not fit into a status."""


def node_view(node: Node) -> NodeView:
    """What the kernel reads of a node."""
    info = node.status.node_info
    annotations = node.metadata.annotations
    return NodeView(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=node.metadata.labels,
        annotations={key: annotations[key] for key in annotations if _is_read(key)},
        unschedulable=node.spec.unschedulable,
        ready=_holds("Ready", node.status.conditions),
        os_image=info.os_image,
        kernel=info.kernel_version,
        runtime=info.container_runtime_version,
        boot_id=info.boot_id,
        kubelet_version=info.kubelet_version,
    )


def pod_view(pod: Pod) -> PodView:
    """What the kernel reads of an operand's pod."""
    metadata = pod.metadata
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    trouble, message = _trouble(pod)
    return PodView(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        node=pod.spec.node_name,
        operand=metadata.labels.get(OPERAND_LABEL, ""),
        daemon_set=_controller(pod, "DaemonSet"),
        template=metadata.labels.get(TEMPLATE_LABEL, ""),
        ready=_holds("Ready", pod.status.conditions),
        going=bool(metadata.deletion_timestamp),
        restarts=max((each.restart_count for each in statuses), default=0),
        trouble=trouble,
        message=message,
        created=seconds(metadata.creation_timestamp),
        ready_changed=_changed("Ready", pod.status.conditions),
    )


def workload_view(pod: Pod) -> Workload:
    """What the kernel reads of somebody else's pod."""
    metadata = pod.metadata
    return Workload(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        node=pod.spec.node_name,
        labels=metadata.labels,
        phase=pod.status.phase,
        uses_gpu=any(_is_gpu(resource) for resource in _asked(pod)),
        controller=next((owner.kind for owner in metadata.owner_references if owner.controller), ""),
        empty_dir=any(volume.empty_dir is not None for volume in pod.spec.volumes),
        mirror=_MIRROR_ANNOTATION in metadata.annotations,
        going=bool(metadata.deletion_timestamp),
    )


def budget_view(budget: DisruptionBudget, version: str) -> Budget | None:
    """A budget; None where it selects no pod: without a selector, and before policy/v1 with an empty one."""
    selector = budget.spec.selector
    if selector is None or (version != "v1" and not selector):
        return None
    metadata = budget.metadata
    return Budget(
        namespace=metadata.namespace,
        name=metadata.name,
        selector=selector,
        allowed=budget.status.disruptions_allowed,
    )


def seconds(timestamp: str) -> float:
    """Seconds since the epoch of an API timestamp; 0 for one that cannot be read."""
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0


def _is_read(annotation: str) -> bool:
    return annotation.startswith(_READ_ANNOTATIONS) and annotation not in _BULKY_ANNOTATIONS


def _is_gpu(resource: str) -> bool:
    """``nvidia.com/gpu.shared`` and the like are what NVIDIA's device plugin calls GPUs that it shares."""
    return resource in RESOURCES or resource.startswith(_NVIDIA_PREFIXES)


def _asked(pod: Pod) -> set[str]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return {name for each in containers for name in (*each.resources.limits, *each.resources.requests)}


def _holds(condition: str, conditions: tuple[Condition, ...]) -> bool:
    return any(each.type == condition and each.status == "True" for each in conditions)


def _changed(condition: str, conditions: tuple[Condition, ...]) -> float:
    return next((seconds(each.last_transition_time) for each in conditions if each.type == condition), 0.0)


def _controller(pod: Pod, kind: str) -> str:
    owners = pod.metadata.owner_references
    return next((owner.name for owner in owners if owner.controller and owner.kind == kind), "")


def _trouble(pod: Pod) -> tuple[str, str]:
    """In one word and in a sentence, why a pod does not come to run; empty where nothing is wrong."""
    if pod.status.phase == "Failed":
        return pod.status.reason or "Failed", pod.status.message
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        reason, message = _container_trouble(status)
        if reason:
            return reason, f"container {status.name}: {message}" if message else f"container {status.name}"
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    return "", ""


def _container_trouble(status: ContainerStatus) -> tuple[str, str]:
    ended, waiting = status.state.terminated, status.state.waiting
    if ended is not None and ended.exit_code:
        return ended.reason or "Error", _ending(ended)
    if waiting is None or waiting.reason in _ON_ITS_WAY:
        return "", ""
    last = status.last_state.terminated
    return waiting.reason, _ending(last) if last is not None else waiting.message


def _ending(ended: Terminated) -> str:
    said = " ".join(ended.message.split())[:MAX_MESSAGE]
    return f"exit code {ended.exit_code}{f': {said}' if said else ''}"
