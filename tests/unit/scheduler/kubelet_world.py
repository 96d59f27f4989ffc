"""A random node with its report, as Node and Pod objects of the API, for the tests beside this file."""

from random import Random

import msgspec
from tests.conformance.kubelet.prediction.hardware import NODE
from tests.conformance.kubelet.prediction.node import LiveNode

from purser.core.fleet import Fleet
from purser.core.kubelet.report import aligns, encode, report_of
from purser.core.names import KUBELET_ANNOTATION
from purser.kube.objects import Node, Pod
from purser.scheduler.cache.kubelets import Kubelets


def node_object(text: str | None, name: str = NODE) -> Node:
    annotations = {} if text is None else {KUBELET_ANNOTATION: text}
    return msgspec.convert({"metadata": {"name": name, "annotations": annotations}}, Node)


def pod_object(
    uid: str, limits: dict[str, str], node: str = NODE, annotations: dict[str, str] | None = None, name: str = "main"
) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": uid, "namespace": "default", "uid": uid, "annotations": annotations or {}},
            "spec": {"nodeName": node, "containers": [{"name": name, "resources": {"limits": limits}}]},
        },
        Pod,
    )


def aligning(seed: str) -> LiveNode:
    """A node whose kubelet may refuse pods."""
    rng = Random(seed)
    while True:
        live = LiveNode(rng)
        if aligns(live.node.config):
            return live


def report_text(live: LiveNode) -> str:
    return encode(report_of(live.node, live.truth))


def world(live: LiveNode) -> tuple[Fleet, Kubelets]:
    """A fleet that has the node's inventory, and nothing of its kubelet yet."""
    fleet = Fleet()
    fleet.set_inventory(live.inventory)
    return fleet, Kubelets(fleet)
