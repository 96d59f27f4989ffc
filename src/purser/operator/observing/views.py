"""From the API's objects to the operator's nouns, and the snapshot of a round made of them. Here and nowhere else is
known where in a Node or Pod they stand."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from purser.core.dialects import is_gpu_word
from purser.core.grant.signing import GrantError, read
from purser.core.kubernetes.times import parsed
from purser.core.model import Enforcement
from purser.core.names import GRANT_ANNOTATION, INVENTORY_ANNOTATION, KUBELET_ANNOTATION
from purser.core.wording import natural_sort_key
from purser.kube import Raw, key_of
from purser.kube.objects import Node, NodeCondition
from purser.kube.pod_details import ContainerStateTerminated, ContainerStatus, DetailedPod, PodCondition, PodSummary
from purser.kube.policy_group import DisruptionBudget
from purser.operator.manifests import CONFIG_MAPS
from purser.operator.model import AppliedObject, Budget, NodeView, NodeWorkload, ObjectKey, OperandPod, Snapshot
from purser.operator.names import DRIVER_CONFIG_LABEL, FIELD_MANAGER, MANAGED_BY_LABEL, OPERAND_LABEL, TEMPLATE_LABEL
from purser.operator.observing.workload_pods import WorkloadPod

T = TypeVar("T")
V = TypeVar("V")

_READ_ANNOTATIONS = ("purser.dev/", "nvidia.com/")
_BULKY_ANNOTATIONS = (INVENTORY_ANNOTATION, KUBELET_ANNOTATION)  # the agent's: long, often new, never asked for here
_GPU_PREFIXES = (
    "nvidia.com/gpu",  # nvidia.com/gpu.shared, too: what NVIDIA's device plugin calls GPUs that it shares
    "nvidia.com/mig-",
    "volcano.sh/gpu-",
    "volcano.sh/vgpu-",
    "aliyun.com/gpu-",
)
"""Of the component that gives NVIDIA's GPUs to pods: where the policy rolls out no device plugin, another one may do
so."""
_STARTING_REASONS = ("", "ContainerCreating", "PodInitializing")
MAX_CONDITION_MESSAGE = 500
"""Of what a container left behind when it ended: more does not fit into a status."""


class ViewCache(Generic[T, V]):
    """The operator's nouns by the objects' keys: made when an object changes, not in each round."""

    def __init__(self, views: dict[str, V], make: Callable[[T], V]):
        self._views = views
        self._make = make

    def put(self, obj: T) -> bool:
        """Whether a round can see a difference: kubelet's heartbeats, for one, make none."""
        key, view = key_of(obj), self._make(obj)
        known = self._views.get(key)
        self._views[key] = view
        return view != known

    def drop(self, obj: T) -> None:
        """It is gone."""
        self._views.pop(key_of(obj), None)


def config_view(obj: Raw) -> object:
    """What a round can see of a ConfigMap: of the operator's own all, of others the keys. Some are written every few
    seconds."""
    if is_ours(obj):
        return obj
    return keys_of(obj)


def is_ours(obj: Raw) -> bool:
    """Whether the operator made it."""
    return (obj["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == FIELD_MANAGER


def keys_of(config_map: Raw) -> tuple[str, ...]:
    """Of a ConfigMap, in order."""
    return tuple(sorted({**(config_map.get("data") or {}), **(config_map.get("binaryData") or {})}))


def node_view(node: Node) -> NodeView:
    """What the operator reads of a node."""
    info = node.status.node_info
    annotations = node.metadata.annotations
    return NodeView(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=node.metadata.labels,
        annotations={key: annotations[key] for key in annotations if _is_read(key)},
        unschedulable=node.spec.unschedulable,
        taints=node.spec.taints,
        ready=_holds("Ready", node.status.conditions),
        os_image=info.os_image,
        kernel=info.kernel_version,
        runtime=info.container_runtime_version,
        boot_id=info.boot_id,
        kubelet_version=info.kubelet_version,
    )


def pod_view(pod: DetailedPod) -> OperandPod:
    """What the operator reads of an operand's pod. One that is not on a node yet counts for the node that it is for."""
    metadata = pod.metadata
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    trouble, message = _pod_problem(pod)
    return OperandPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        node=pod.spec.node_name or _pinned_node(pod),
        operand=metadata.labels.get(OPERAND_LABEL, ""),
        daemon_set=_controller(pod, "DaemonSet"),
        template=metadata.labels.get(TEMPLATE_LABEL, ""),
        driver_config=metadata.labels.get(DRIVER_CONFIG_LABEL, ""),
        ready=_holds("Ready", pod.status.conditions),
        terminating=bool(metadata.deletion_timestamp),
        restarts=max((each.restart_count for each in statuses), default=0),
        trouble=trouble,
        message=message,
        created=parsed(metadata.creation_timestamp) or 0.0,
        ready_changed=_changed("Ready", pod.status.conditions),
    )


def workload_view(pod: WorkloadPod) -> NodeWorkload:
    """What the operator reads of pods that are not operands.

    A pod with claims of dynamic resource allocation counts as one that uses a GPU, whatever they are for: what a claim
    was given stands in the claim and its devices' slices, and to take a NIC's user for a GPU's costs that pod a
    restart; the other way round a driver would be unloaded under its user.
    """
    metadata = pod.metadata
    return NodeWorkload(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        node=pod.spec.node_name,
        labels=metadata.labels,
        phase=pod.status.phase,
        ready=_holds("Ready", pod.status.conditions),
        uses_gpu=bool(pod.spec.resource_claims) or any(_is_gpu(resource) for resource in _asked(pod)),
        devices=None if pod.spec.resource_claims else _devices_held(metadata.annotations.grant),
        controller=next((owner.kind for owner in metadata.owner_references if owner.controller), ""),
        empty_dir=any(volume.empty_dir is not None for volume in pod.spec.volumes),
        mirror=metadata.annotations.config is not None,
        terminating=bool(metadata.deletion_timestamp),
    )


_MPS_ENFORCEMENTS = (Enforcement.MPS, Enforcement.MPS_ADVISORY)


def _devices_held(grant: str | None) -> frozenset[str] | None:
    """See `NodeWorkload.devices`. Clients of MPS end with their daemons, which the agent runs."""
    try:
        found = None if grant is None else read({GRANT_ANNOTATION: grant})
    except GrantError:
        return None
    if found is None or any(part.enforcement in _MPS_ENFORCEMENTS for part in found.containers):
        return None
    return found.uuids


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
        current_healthy=budget.status.current_healthy,
        desired_healthy=budget.status.desired_healthy,
        unhealthy_may_go=budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
    )


def _is_read(annotation: str) -> bool:
    return annotation.startswith(_READ_ANNOTATIONS) and annotation not in _BULKY_ANNOTATIONS


def _is_gpu(resource: str) -> bool:
    return is_gpu_word(resource) or resource.startswith(_GPU_PREFIXES)


def _asked(pod: PodSummary) -> set[str]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return {name for each in containers for name in (*each.resources.limits, *each.resources.requests)}


def _pinned_node(pod: DetailedPod) -> str:
    """The node that the DaemonSet controller made the pod for: it may run nowhere else."""
    terms = pod.spec.affinity.node_affinity.required.node_selector_terms
    fields = (each for term in terms for each in term.match_fields)
    names = {name for each in fields if (each.key, each.operator) == ("metadata.name", "In") for name in each.values}
    return names.pop() if len(names) == 1 else ""


def _holds(condition: str, conditions: Iterable[PodCondition | NodeCondition]) -> bool:
    return any(each.type == condition and each.status == "True" for each in conditions)


def _changed(condition: str, conditions: Iterable[PodCondition | NodeCondition]) -> float:
    return next((parsed(each.last_transition_time) or 0.0 for each in conditions if each.type == condition), 0.0)


def _controller(pod: DetailedPod, kind: str) -> str:
    owners = pod.metadata.owner_references
    return next((owner.name for owner in owners if owner.controller and owner.kind == kind), "")


def _pod_problem(pod: DetailedPod) -> tuple[str, str]:
    """In one word and in a sentence, why a pod does not come to run; empty where nothing is wrong."""
    if pod.status.phase == "Failed":
        return pod.status.reason or "Failed", pod.status.message
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        reason, message = _container_problem(status)
        if reason:
            return reason, f"container {status.name}: {message}" if message else f"container {status.name}"
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    return "", ""


def _container_problem(status: ContainerStatus) -> tuple[str, str]:
    ended, waiting = status.state.terminated, status.state.waiting
    if ended is not None and ended.exit_code:
        return ended.reason or "Error", _ended_message(ended)
    if waiting is None or waiting.reason in _STARTING_REASONS:
        return "", ""
    last = status.last_state.terminated
    return waiting.reason, _ended_message(last) if last is not None else waiting.message


def _ended_message(ended: ContainerStateTerminated) -> str:
    message = " ".join(ended.message.split())[:MAX_CONDITION_MESSAGE]
    return f"exit code {ended.exit_code}{f': {message}' if message else ''}"


# --- the snapshot


Store = Mapping[str, V]
"""Objects, or views of them, by their keys."""


class ObservedState(msgspec.Struct, frozen=True, kw_only=True):
    """What informers know now."""

    defined: bool
    """The server has the definition of ClusterPolicy."""
    policies: Store[Any]
    nodes: Store[Node]
    node_views: Store[NodeView]
    operand_pods: Store[OperandPod]
    owned: tuple[Store[Raw], ...]
    """Of each kind that the operator makes and that is served. Others' objects are among RuntimeClasses and ConfigMaps
    only."""
    rivals: Store[Any]
    budgets: Store[DisruptionBudget]
    policy_version: str
    """Which version of the group ``policy`` budgets are of."""
    service_monitors: bool
    node_features: bool = False


def snapshot_of(
    known: ObservedState, *, now: float, namespace: str, purser_image: str, settled: Mapping[ObjectKey, AppliedObject]
) -> Snapshot:
    """All of one instant, in the order of names and not in that in which it came."""
    names = sorted(known.node_views, key=natural_sort_key)
    owned = [obj for store in known.owned for obj in _in_order(store)]
    return Snapshot(
        now=now,
        namespace=namespace,
        purser_image=purser_image,
        defined=known.defined,
        policies=tuple(_in_order(known.policies)),
        nodes=tuple(known.node_views[name] for name in names),
        versions={name: known.nodes[name].metadata.resource_version for name in names},
        objects={ObjectKey.of(obj): obj for obj in owned if is_ours(obj)},
        foreign=frozenset(ObjectKey.of(obj) for obj in owned if not is_ours(obj) and obj["kind"] != CONFIG_MAPS.kind),
        rivals=tuple(sorted(known.rivals)),
        settled=dict(settled),
        pods=tuple(_in_order(known.operand_pods)),
        budgets=tuple(_budgets(known)),
        service_monitors=known.service_monitors,
        node_features=known.node_features,
        config_keys={obj["metadata"]["name"]: keys_of(obj) for obj in owned if obj["kind"] == CONFIG_MAPS.kind},
    )


def _in_order(store: Store[V]) -> Iterator[V]:
    return (store[key] for key in sorted(store))


def _budgets(known: ObservedState) -> Iterator[Budget]:
    for budget in _in_order(known.budgets):
        view = budget_view(budget, known.policy_version)
        if view is not None:
            yield view
