"""A snapshot is made of what informers know, whatever the order in which they learned it."""

from typing import Any

from purser.kube.objects import Node, ObjectMeta
from purser.operator.model import NodeView, ObjectKey, OperandPod
from purser.operator.names import FIELD_MANAGER, MANAGED_BY_LABEL
from purser.operator.observing.views import ObservedState, snapshot_of


def runtime_class(name: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata}


def pod(name: str) -> OperandPod:
    return OperandPod(namespace="n", name=name, uid=name, node="a", operand="driver", daemon_set="d")


def known(names: list[str], **others: Any) -> ObservedState:
    return ObservedState(
        defined=True,
        policies={name: {"metadata": {"name": name}} for name in names},
        nodes={name: Node(metadata=ObjectMeta(name=name, resource_version=f"1{name}")) for name in names},
        node_views={name: NodeView(name=name) for name in names},
        pod_views={f"n/{name}": pod(name) for name in names},
        rivals=dict.fromkeys(names),
        budgets={},
        policy_version="v1",
        service_monitors=True,
        **{"owned": (), **others},
    )


def snapshot(known: ObservedState) -> Any:
    return snapshot_of(known, now=1.0, namespace="n", purser_image="i", settled={})


def test_the_order_is_that_of_names() -> None:
    seen = snapshot(known(["b", "a"]))
    assert seen == snapshot(known(["a", "b"]))
    assert [each.name for each in seen.nodes] == ["a", "b"]
    assert [each.name for each in seen.pods] == ["a", "b"]
    assert seen.rivals == ("a", "b")
    assert seen.versions == {"a": "1a", "b": "1b"}


def test_objects_of_others_are_told_apart_from_those_that_the_operator_made() -> None:
    made = runtime_class("nvidia", **{MANAGED_BY_LABEL: FIELD_MANAGER})
    theirs = [runtime_class("nvidia-cdi"), runtime_class("gvisor", **{MANAGED_BY_LABEL: "somebody"})]
    seen = snapshot(known([], owned=({each["metadata"]["name"]: each for each in (made, *theirs)},)))
    assert seen.objects == {ObjectKey.of(made): made}
    assert seen.foreign == {ObjectKey.of(each) for each in theirs}
