"""The snapshot of a round, from what informers know."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from purser.kube import Raw
from purser.kube.policy_group import DisruptionBudget
from purser.operator.model import AppliedObject, Budget, NodeView, ObjectKey, OperandPod, Snapshot
from purser.operator.observing.objects import ObservedNode
from purser.operator.observing.views import budget_view, is_ours, keys_of
from purser.operator.owned import CONFIG_MAPS
from purser.operator.wording import natural

V = TypeVar("V")
Store = Mapping[str, V]
"""Objects, or views of them, by their keys."""


class ObservedState(msgspec.Struct, frozen=True, kw_only=True):
    """What informers know now."""

    defined: bool
    """The server has the definition of ClusterPolicy."""
    policies: Store[Any]
    nodes: Store[ObservedNode]
    node_views: Store[NodeView]
    pod_views: Store[OperandPod]
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
    names = sorted(known.node_views, key=natural)
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
        pods=tuple(_in_order(known.pod_views)),
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
