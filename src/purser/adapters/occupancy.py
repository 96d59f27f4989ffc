"""Who holds GPUs of a cluster and who may be evicted, as the API server shows it at one moment: for plans."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from purser.adapters.eligibility import has_only_simple_constraints, why_not_schedulable
from purser.adapters.nodes import allocatable
from purser.adapters.pods import pod_spec
from purser.adapters.snapshot import fleet_of
from purser.core.dialects import DialectError, parse
from purser.core.fleet import Fleet
from purser.core.kubernetes.quantities import QuantityError
from purser.core.kubernetes.selectors import Selector, SelectorError, of_object
from purser.core.kubernetes.taints import REPELLING_EFFECTS
from purser.core.model import PodRequest
from purser.core.planning import GpuPod, Occupancy
from purser.core.pod.requests import EffectiveRequests, pod_resources
from purser.core.vendors.catalogue import FAMILY_NAMES
from purser.kube.client import Client
from purser.kube.objects import MIRROR_POD_ANNOTATION, Node, Pod
from purser.kube.pods import controller_of, is_terminal
from purser.kube.policy_group import DisruptionBudget, budgets_resource, policy_version
from purser.kube.resources import NODES, PODS, key_of

_NODE_CONDITION_TAINTS = "node.kubernetes.io/"
"""What Kubernetes itself taints nodes with that are not ready, or cordoned."""


class EvictionRules(msgspec.Struct, frozen=True):
    """Which pods may be asked to leave."""

    max_priority: int = 0
    """Of higher priority none."""
    force: bool = False
    """Also pods that nothing recreates."""
    max_priority_word: str = "--max-priority"
    """What who asks calls it: sentences on pods that stay say how the rule is changed."""
    force_word: str = "--force"
    """The same of the other rule."""


async def read_occupancy(client: Client, rules: EvictionRules) -> tuple[Occupancy, tuple[str, ...]]:
    """The cluster's fleet with its pods, and a sentence on each object that could not be read. Raises `KubeError`."""
    nodes, pods = (await client.list(NODES)).items, (await client.list(PODS)).items
    budgets = (await client.list(budgets_resource(await policy_version(client)))).items
    return occupancy_of(nodes, pods, budgets, rules)


def occupancy_of(
    nodes: Sequence[Node], pods: Sequence[Pod], budgets: Iterable[DisruptionBudget], rules: EvictionRules
) -> tuple[Occupancy, tuple[str, ...]]:
    """The same of what was listed."""
    listed = list(budgets)
    fleet, problems = fleet_of(nodes, pods)
    _set_free_resources(fleet, nodes, pods)
    known = [(key_of(budget), budget.metadata.namespace, _pod_matcher(budget)) for budget in listed]
    allowed = {key_of(budget): budget.status.disruptions_allowed for budget in listed}
    eligible = _Eligible(nodes)
    found = {}
    for pod in pods:
        if fleet.ledger.grant(pod.metadata.uid) is not None:
            found[pod.metadata.uid] = _gpu_pod(pod, known, eligible, rules)
    return Occupancy(fleet, found, allowed, unavailable_nodes(nodes)), problems


def unavailable_nodes(nodes: Iterable[Node]) -> frozenset[str]:
    """Those that take no new pods: cordoned, or not ready."""
    return frozenset(node.metadata.name for node in nodes if _is_unavailable(node))


def _is_unavailable(node: Node) -> bool:
    taints = (each for each in node.spec.taints if each.key.startswith(_NODE_CONDITION_TAINTS))
    return node.spec.unschedulable or any(each.effect in REPELLING_EFFECTS for each in taints)


def _set_free_resources(fleet: Fleet, nodes: Iterable[Node], pods: Iterable[Pod]) -> None:
    """As kube-scheduler counts; what cannot be read counts for nothing, as in the scheduler."""
    taken: defaultdict[str, EffectiveRequests] = defaultdict(EffectiveRequests)
    number: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        if pod.spec.node_name and not is_terminal(pod):
            taken[pod.spec.node_name] += _resources(pod)
            number[pod.spec.node_name] += 1
    for node in nodes:
        name = node.metadata.name
        try:
            fleet.set_free_resources(name, allocatable(node).less(taken[name], number[name]))
        except QuantityError:
            continue


def _resources(pod: Pod) -> EffectiveRequests:
    try:
        return pod_resources(pod_spec(pod))
    except QuantityError:
        return EffectiveRequests()


def _pod_matcher(budget: DisruptionBudget) -> Callable[[Pod], bool]:
    """One with an invalid selector protects every pod of its namespace: what it means is not known here."""
    try:
        selector = Selector() if budget.spec.selector is None else of_object(budget.spec.selector)
    except SelectorError:
        return lambda pod: True
    is_empty = budget.spec.selector is None
    return lambda pod: not is_empty and selector.matches(pod.metadata.labels)


class _Eligible:
    """The nodes that take a pod by their taints and its selector; asked once for pods that say the same of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._known: dict[object, frozenset[str] | None] = {}

    def nodes(self, pod: Pod) -> frozenset[str] | None:
        """Their names; None: all."""
        key = (pod.spec.tolerations, tuple(sorted(pod.spec.node_selector.items())))
        if key not in self._known:
            found = frozenset(node.metadata.name for node in self._nodes if not why_not_schedulable(pod, node))
            self._known[key] = None if len(found) == len(self._nodes) else found
        return self._known[key]


def _gpu_pod(
    pod: Pod, budgets: Sequence[tuple[str, str, Callable[[Pod], bool]]], eligible: _Eligible, rules: EvictionRules
) -> GpuPod:
    meta, controller = pod.metadata, controller_of(pod)
    request, unreadable = _request(pod)
    budget_keys = [key for key, namespace, matches in budgets if namespace == meta.namespace and matches(pod)]
    stay_reason = unreadable or _stay_reason(pod, rules, budget_keys)
    return GpuPod(
        request,
        returns=controller is not None,
        stay_reason=stay_reason,
        nodes=None if stay_reason else eligible.nodes(pod),
        budget=budget_keys[0] if len(budget_keys) == 1 else "",
    )


def _request(pod: Pod) -> tuple[PodRequest, str]:
    meta = pod.metadata
    unknown = PodRequest(meta.uid, meta.namespace, meta.name, ())
    try:
        found = parse(msgspec.structs.replace(pod_spec(pod), families=frozenset(FAMILY_NAMES)))
    except DialectError as error:
        return unknown, f"cannot be read: {' '.join(str(error).split())}"
    return (found, "") if found is not None else (unknown, "holds GPUs that it did not request")


def _stay_reason(pod: Pod, rules: EvictionRules, budgets: Sequence[str]) -> str:
    """Why a pod is not asked to leave, to follow its name."""
    controller = controller_of(pod)
    if MIRROR_POD_ANNOTATION in pod.metadata.annotations:
        return "is a static pod"
    if pod.metadata.deletion_timestamp:
        return "is terminating"
    if controller is None and not rules.force:
        return f"has no controller and would be lost (to allow this, use {rules.force_word})"
    if controller is not None and controller.kind == "DaemonSet":
        return "belongs to a DaemonSet, which would recreate it on the same node"
    if pod.spec.priority > rules.max_priority:
        return f"has priority {pod.spec.priority}, above {rules.max_priority_word} {rules.max_priority}"
    if len(budgets) > 1:
        return f"has {len(budgets)} PodDisruptionBudgets, which eviction does not support"
    if not has_only_simple_constraints(pod):
        return "has affinity or topology spread constraints, which plans cannot check"
    return ""
