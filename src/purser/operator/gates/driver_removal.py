"""Removal of drivers from nodes: because the policy is deleted, no longer has a driver, users removed all operands from
a node, or its GPUs are for virtual machines now.

A driver is removed last, once no operand that needs it and no pod with a GPU is there. No pod is evicted for it: status
names the pod that it waits for. The driver's own label, set by users, takes effect at once.

A node may be NotReady only briefly while its pods still run: they hold the driver until they are evicted, which
Kubernetes does after some minutes. A NotReady node without such pods blocks nothing: its operands cannot end before it
is back. Nor does a deleted node.
"""

from collections.abc import Iterable, Iterator

from purser.core.wording import natural_sort_key, some
from purser.operator.gates.facts import is_excluded, presence_of
from purser.operator.maintenance import gpu_pods
from purser.operator.model import DriverRemoval, NodeView, NodeWorkload, OperandPod, Snapshot
from purser.operator.names import LABEL_TRUE
from purser.operator.order import Operand, dependents
from purser.operator.policy.decoding import ChosenPolicies, choose

_DRIVER_DEPENDENTS = frozenset(dependents(Operand.DRIVER))


def driver_removals(snapshot: Snapshot, chosen: ChosenPolicies) -> dict[str, DriverRemoval]:
    """By node: the drivers of the operator's that are to leave."""
    nodes = {node.name: node for node in _nodes_without_driver(snapshot, chosen)}
    if not nodes:
        return {}
    pods: dict[str, list[OperandPod]] = {}
    for pod in snapshot.pods:
        if pod.node in nodes:
            pods.setdefault(pod.node, []).append(pod)
    found = {
        name: _driver_removal(nodes[name], there, snapshot.workloads.get(name))
        for name, there in pods.items()
        if any(pod.operand == Operand.DRIVER for pod in there)
    }
    return {name: each for name, each in found.items() if nodes[name].ready or each.stays}


def blocked_removals(snapshot: Snapshot) -> tuple[str, ...]:
    """Where no policy is active: which pods of which nodes the removal of drivers waits for, or which node is left out,
    a sentence per node."""
    chosen = choose(snapshot.policies)
    if chosen.raw is not None:
        return ()
    reasons_by_node = {
        name: removal_blocker(each) for name, each in driver_removals(snapshot, chosen).items() if each.stays
    }
    reasons_by_node |= {each.node.name: each.why for each in snapshot.isolated}
    return tuple(f"node {name}: {reasons_by_node[name]}" for name in sorted(reasons_by_node, key=natural_sort_key))


def removal_blocker(driver_removal: DriverRemoval) -> str:
    """What still needs a driver, in one sentence; empty: nothing."""
    if driver_removal.users is None:
        return "the node's pods have not been listed yet"
    if driver_removal.users:
        return some([f"pod {user} still uses a GPU" for user in driver_removal.users], "pod", named=1)
    needing = ", ".join(driver_removal.operands)
    return f"operands still using the driver: {needing}" if needing else ""


def _nodes_without_driver(snapshot: Snapshot, chosen: ChosenPolicies) -> Iterable[NodeView]:
    """Nodes that are to have none. Whose GPUs are gone is another matter: nothing there can be in use."""
    if chosen.raw is None:
        return snapshot.nodes
    return _excluded_by_policy(snapshot, chosen)


def _excluded_by_policy(snapshot: Snapshot, chosen: ChosenPolicies) -> Iterator[NodeView]:
    if chosen.policy is None:
        return
    spec = chosen.policy.spec
    for node in snapshot.nodes:
        if not spec.driver.enabled or is_excluded(node, spec):
            presence = presence_of(node, snapshot, spec.discovery.gone_after_seconds)
            if presence.state in ("present", "missing"):
                yield node


def _driver_removal(
    node: NodeView, pods: Iterable[OperandPod], workloads: Iterable[NodeWorkload] | None
) -> DriverRemoval:
    stands = any(pod.operand == Operand.DRIVER and not pod.terminating for pod in pods)
    return DriverRemoval(
        terminating=not stands or node.labels.get(Operand.DRIVER.deploy_label) != LABEL_TRUE,
        operands=tuple(sorted({pod.operand for pod in pods} & _DRIVER_DEPENDENTS)) if node.ready else (),
        users=None if workloads is None else _users(node, workloads),
    )


def _users(node: NodeView, workloads: Iterable[NodeWorkload]) -> tuple[str, ...]:
    """A terminating pod uses its GPU until kubelet says that it has ended, which it never does on a NotReady node."""
    using = (pod for pod in gpu_pods(workloads) if node.ready or not pod.terminating)
    return tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in using))
