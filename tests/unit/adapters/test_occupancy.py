"""Who may be evicted, of objects as the API server has them."""

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from purser.adapters.occupancy import EvictionRules, occupancy_of
from purser.core.grant.signing import sign
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION
from purser.kube.objects import Node, Pod
from purser.kube.policy_group import DisruptionBudget

KEY = Ed25519PrivateKey.generate()


def node(name="n1", **spec):
    inventory = NodeInventory(name, (Device(f"{name}-0", 0, "T4", 1000, slots=4),))
    metadata = {"name": name, "annotations": {INVENTORY_ANNOTATION: msgspec.json.encode(inventory).decode()}}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"allocatable": {"cpu": "4"}}}, Node)


def pod(controller="ReplicaSet", metadata=None, **spec):
    grant = Grant("u", "ns", "p", "n1", (ContainerGrant("c", ContainerKind.APP, (DeviceShare("n1-0", 600, 0),)),))
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "600", "cpu": "1500m"}
    owners = [{"kind": controller, "name": "o", "uid": "o", "controller": True}] if controller else []
    about = {"name": "p", "namespace": "ns", "uid": "u", "ownerReferences": owners, "labels": {"app": "a"}}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": limits}}], **spec}
    annotations = {**sign(grant, KEY), **(metadata or {}).pop("annotations", {})}
    return msgspec.convert({"metadata": {**about, "annotations": annotations, **(metadata or {})}, "spec": spec}, Pod)


def budget(name, allowed, selector=None):
    about = {"metadata": {"name": name, "namespace": "ns"}, "status": {"disruptionsAllowed": allowed}}
    selector = {"matchLabels": {"app": "a"}} if selector is None else selector
    return msgspec.convert({**about, "spec": {"selector": selector}}, DisruptionBudget)


def only(found):
    [pod] = found.pods.values()
    return pod


AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
STAYS = {
    "of a ReplicaSet": (pod(), ""),
    "no controller recreates it": (pod(controller=""), "has no controller"),
    "of a DaemonSet": (pod(controller="DaemonSet"), "belongs to a DaemonSet"),
    "of higher priority": (pod(priority=1), "has priority 1"),
    "terminating": (pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "is terminating"),
    "static": (pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), "is a static pod"),
    "with affinity": (pod(affinity=AFFINITY), "has affinity"),
    "without a request that can be read": (
        pod(containers=[{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "x"}}}]),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("case", STAYS)
def test_who_stays_and_why(case):
    about, says = STAYS[case]
    found, problems = occupancy_of([node()], [about], [], EvictionRules())
    assert problems == ()
    stays = only(found).stay_reason
    assert stays.startswith(says) if says else stays == ""


def test_what_rules_allow():
    found, _ = occupancy_of([node()], [pod(controller="", priority=5)], [], EvictionRules(max_priority=5, force=True))
    assert (only(found).stay_reason, only(found).returns) == ("", False)


def test_budgets_count_by_namespace_and_selector_and_two_keep_a_pod():
    one, other = budget("b", 2), budget("other", 1, {"matchLabels": {"app": "z"}})
    found, _ = occupancy_of([node()], [pod()], [one, other], EvictionRules())
    assert (only(found).budget, found.allowed) == ("ns/b", {"ns/b": 2, "ns/other": 1})
    unreadable = budget("x", 0, {"matchExpressions": [{"key": "app", "operator": "Like"}]})
    found, _ = occupancy_of([node()], [pod()], [unreadable], EvictionRules())
    assert only(found).budget == "ns/x"
    found, _ = occupancy_of([node()], [pod()], [one, unreadable], EvictionRules())
    assert "2 PodDisruptionBudgets" in only(found).stay_reason


def test_what_is_free_beside_gpus_and_where_pods_may_go():
    tainted = node("n2", taints=[{"key": "k", "effect": "NoSchedule"}])
    cordoned = node("n3", unschedulable=True)
    found, _ = occupancy_of([node(), tainted, cordoned], [pod()], [], EvictionRules())
    assert found.fleet.free_resources("n1").cpu_free_milli == 2500
    assert (only(found).nodes, found.closed) == (frozenset(["n1"]), frozenset(["n3"]))
    assert only(occupancy_of([node()], [pod()], [], EvictionRules())[0]).nodes is None
