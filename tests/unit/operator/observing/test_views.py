"""Where in a Node or Pod the kernel's nouns stand. A snapshot is made of what informers know, in whatever order they
learned it."""

from typing import Any

import msgspec
import pytest

from purser.core.kubernetes.taints import Taint
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Enforcement, Grant
from purser.core.names import GRANT_ANNOTATION, INVENTORY_ANNOTATION
from purser.kube.objects import Node, ObjectMeta
from purser.kube.pod_details import DetailedPod
from purser.kube.policy_group import DisruptionBudget
from purser.operator.model import NodeView, ObjectKey, OperandPod
from purser.operator.names import (
    DRIVER_CONFIG_LABEL,
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    OPENED_BOOT_ANNOTATION,
    OPERAND_LABEL,
    TEMPLATE_LABEL,
)
from purser.operator.observing.views import ObservedState, budget_view, node_view, pod_view, snapshot_of, workload_view
from purser.operator.observing.workload_pods import WorkloadPod


def pod_of(**fields):
    return msgspec.convert({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, **fields}, DetailedPod)


def other_pod(**fields):
    return msgspec.convert({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, **fields}, WorkloadPod)


def status(*, waiting=None, terminated=None, last=None, restarts=0):
    return {
        "name": "driver",
        "restartCount": restarts,
        "state": {"waiting": waiting} if waiting else {"terminated": terminated} if terminated else {"running": {}},
        "lastState": {"terminated": last} if last else {},
    }


def trouble(*statuses, init=()):
    view = pod_view(pod_of(status={"containerStatuses": list(statuses), "initContainerStatuses": list(init)}))
    return view.trouble, view.message


def test_a_node_is_read_with_its_pool_and_its_runtime():
    raw = {
        "metadata": {
            "name": "a",
            "uid": "u",
            "labels": {"any": "label"},
            "annotations": {OPENED_BOOT_ANNOTATION: "b", INVENTORY_ANNOTATION: "{}", "foreign.io/x": "y"},
        },
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}],
        },
        "status": {
            "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "Unknown"}],
            "nodeInfo": {
                "osImage": "Ubuntu 22.04",
                "kernelVersion": "5.15.0",
                "containerRuntimeVersion": "cri-o://1.30",
                "bootID": "b",
                "kubeletVersion": "v1.30.1+k3s1",
            },
        },
    }
    view = node_view(msgspec.convert(raw, Node))
    assert (view.name, view.uid, view.labels, view.unschedulable) == ("a", "u", {"any": "label"}, True)
    assert (view.os_image, view.kernel, view.runtime) == ("Ubuntu 22.04", "5.15.0", "cri-o://1.30")
    assert (view.boot_id, view.kubelet_version, view.ready) == ("b", "v1.30.1+k3s1", False)
    assert view.annotations == {OPENED_BOOT_ANNOTATION: "b"}
    assert view.taints == (Taint("gpu", "only", "NoSchedule"), Taint("x", "", "NoExecute"))


def test_an_operands_pod_is_read_with_its_daemon_set_and_template():
    view = pod_view(
        pod_of(
            metadata={
                "name": "p",
                "namespace": "n",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:10Z",
                "deletionTimestamp": "2026-01-01T00:01:00Z",
                "labels": {OPERAND_LABEL: "driver", TEMPLATE_LABEL: "abc", DRIVER_CONFIG_LABEL: "c0ffee"},
                "ownerReferences": [
                    {"kind": "ClusterPolicy", "name": "x", "uid": "1"},
                    {"kind": "DaemonSet", "name": "ds", "uid": "2", "controller": True},
                ],
            },
            spec={"nodeName": "a"},
            status={
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"}],
                "containerStatuses": [status(restarts=2), status(restarts=4)],
            },
        )
    )
    assert (view.operand, view.daemon_set, view.template, view.node) == ("driver", "ds", "abc", "a")
    assert (view.ready, view.terminating, view.restarts, view.driver_config) == (True, True, 4, "c0ffee")
    assert view.ready_changed - view.created == 20


@pytest.mark.parametrize(
    ("statuses", "wanted"),
    [
        pytest.param([status()], ("", ""), id="a running container is no trouble"),
        pytest.param([status(waiting={"reason": "ContainerCreating"})], ("", ""), id="nor is one on its way"),
        pytest.param(
            [status(waiting={"reason": "ErrImagePull", "message": "no such host"})],
            ("ErrImagePull", "container driver: no such host"),
            id="an image that cannot be pulled",
        ),
        pytest.param(
            [
                status(
                    waiting={"reason": "CrashLoopBackOff", "message": "back-off 5m0s"},
                    last={"exitCode": 3, "message": "no\nkernel headers"},
                )
            ],
            ("CrashLoopBackOff", "container driver: exit code 3: no kernel headers"),
            id="a crash loop says how the container ended",
        ),
        pytest.param(
            [status(), status(terminated={"exitCode": 137, "reason": "OOMKilled"})],
            ("OOMKilled", "container driver: exit code 137"),
            id="a container that just ended badly",
        ),
        pytest.param([status(terminated={"exitCode": 0, "reason": "Completed"})], ("", ""), id="one that ended well"),
    ],
)
def test_a_pods_failure_has_a_reason_and_a_message(statuses, wanted):
    assert trouble(*statuses) == wanted


def test_an_init_container_in_trouble_comes_first():
    init = status(waiting={"reason": "ImagePullBackOff", "message": "m"})
    assert trouble(status(waiting={"reason": "PodInitializing"}), init=[init])[0] == "ImagePullBackOff"


def test_a_pod_that_finds_no_room_says_so():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    view = pod_view(pod_of(status={"phase": "Pending", "conditions": [condition]}))
    assert (view.trouble, view.message) == ("Unschedulable", "0/1 nodes")


def pinned(*terms):
    """As the DaemonSet controller makes a pod for a node, which the scheduler then binds."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def name_is(*names):
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        pytest.param(pinned(name_is("a")), "a", id="made for a node"),
        pytest.param({**pinned(name_is("a")), "nodeName": "a"}, "a", id="bound to it"),
        pytest.param(pinned(name_is("a"), name_is("a")), "a", id="other terms beside it"),
        pytest.param(pinned(name_is("a", "b")), "", id="made for no one node"),
        pytest.param(pinned({"matchExpressions": [{"key": "x", "operator": "Exists"}]}), "", id="without fields"),
        pytest.param({"affinity": {"podAffinity": {}}}, "", id="without an affinity to nodes"),
        pytest.param({}, "", id="without anything"),
    ],
)
def test_a_pod_that_is_not_scheduled_yet_belongs_to_the_node_that_it_was_made_for(spec, node):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "taint"}
    view = pod_view(pod_of(spec=spec, status={"phase": "Pending", "conditions": [condition]}))
    assert (view.node, view.trouble, view.message) == (node, "Unschedulable", "taint")


def test_an_evicted_pod_says_so():
    view = pod_view(pod_of(status={"phase": "Failed", "reason": "Evicted", "message": "low on disk"}))
    assert (view.trouble, view.message) == ("Evicted", "low on disk")


@pytest.mark.parametrize(
    ("resources", "uses_gpu"),
    [
        ({"limits": {"nvidia.com/gpu": 1}}, True),
        ({"limits": {"nvidia.com/mig-1g.5gb": "1"}}, True),
        ({"limits": {"nvidia.com/gpu.shared": "1"}}, True),
        ({"limits": {"volcano.sh/gpu-memory": "1024"}}, True),
        ({"limits": {"volcano.sh/vgpu-number": "1"}}, True),
        ({"limits": {"aliyun.com/gpu-mem": "3"}}, True),
        ({"limits": {"nvidia.com/gpumem-percentage": "30"}}, True),
        ({"requests": {"nvidia.com/gpumem": "1024"}}, True),
        ({"limits": {"cpu": "1", "amd.com/gpu": "1"}}, False),
    ],
    ids=str,
)
def test_a_workload_uses_a_gpu_in_whichever_words(resources, uses_gpu):
    in_init = other_pod(spec={"nodeName": "a", "initContainers": [{"resources": resources}], "containers": [{}]})
    assert workload_view(in_init).uses_gpu is uses_gpu
    in_main = other_pod(spec={"nodeName": "a", "containers": [{}, {"resources": resources}]})
    assert workload_view(in_main).uses_gpu is uses_gpu


def test_a_workload_with_a_claim_may_hold_a_gpu_by_it():
    claim = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    assert workload_view(other_pod(spec={"resourceClaims": [claim], "containers": [{}]})).uses_gpu


def test_a_workload_is_read_with_what_decides_whether_it_may_go():
    view = workload_view(
        other_pod(
            metadata={
                "name": "p",
                "namespace": "n",
                "annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [{"kind": "Job", "name": "j", "controller": True}],
            },
            spec={"volumes": [{"name": "x", "emptyDir": {}}]},
            status={"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]},
        )
    )
    assert (view.mirror, view.controller, view.empty_dir, view.phase) == (True, "Job", True, "Succeeded")
    assert not view.ready
    plain = workload_view(other_pod(status={"conditions": [{"type": "Ready", "status": "True"}]}))
    assert (plain.mirror, plain.ready, plain.terminating, plain.uses_gpu) == (False, True, False, False)


@pytest.mark.parametrize(
    ("enforcements", "known"),
    [((), False), (("whole-device",), True), (("mig", "hami-core"), True), (("mig", "mps"), False)],
)
def test_a_workload_says_which_devices_it_holds_if_it_outlives_the_agent_with_them(enforcements, known):
    parts = tuple(
        ContainerGrant(f"c{at}", ContainerKind.APP, (DeviceShare(f"GPU-{at}", 1, 1),), Enforcement(word))
        for at, word in enumerate(enforcements)
    )
    grant = msgspec.json.encode(Grant("u", "n", "p", "node", parts)).decode()
    annotations = {GRANT_ANNOTATION: grant} if parts else {}
    view = workload_view(other_pod(metadata={"name": "p", "namespace": "n", "annotations": annotations}))
    assert view.devices == (frozenset(f"GPU-{at}" for at in range(len(parts))) if known else None)
    claims = {"resourceClaims": [{"name": "x"}]}
    assert workload_view(other_pod(metadata={"annotations": annotations}, spec=claims)).devices is None
    assert workload_view(other_pod(metadata={"annotations": {GRANT_ANNOTATION: "{"}})).devices is None


@pytest.mark.parametrize(
    ("selector", "version", "selects"),
    [(None, "v1", False), ({}, "v1", True), ({}, "v1beta1", False), ({"matchLabels": {"a": "b"}}, "v1beta1", True)],
    ids=str,
)
def test_a_budget_that_selects_nothing_is_none(selector, version, selects):
    raw = {
        "metadata": {"name": "b", "namespace": "n"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 2},
    }
    view = budget_view(msgspec.convert(raw, DisruptionBudget), version)
    assert (view is not None) is selects
    assert view is None or (view.namespace, view.name, view.allowed) == ("n", "b", 2)


@pytest.mark.parametrize(("policy", "may_go"), [("AlwaysAllow", True), ("IfHealthyBudget", False), (None, False)])
def test_a_budget_says_how_many_are_healthy_and_whether_the_others_count(policy, may_go):
    raw = {
        "metadata": {"name": "b", "namespace": "n"},
        "spec": {"selector": {}, "unhealthyPodEvictionPolicy": policy} if policy else {"selector": {}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 2},
    }
    view = budget_view(msgspec.convert(raw, DisruptionBudget), "v1")
    assert (view.current_healthy, view.desired_healthy, view.unhealthy_may_go) == (3, 2, may_go)


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
        operand_pods={f"n/{name}": pod(name) for name in names},
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


def test_objects_of_others_are_distinguished_from_those_that_the_operator_made() -> None:
    made = runtime_class("nvidia", **{MANAGED_BY_LABEL: FIELD_MANAGER})
    theirs = [runtime_class("nvidia-cdi"), runtime_class("gvisor", **{MANAGED_BY_LABEL: "somebody"})]
    seen = snapshot(known([], owned=({each["metadata"]["name"]: each for each in (made, *theirs)},)))
    assert seen.objects == {ObjectKey.of(made): made}
    assert seen.foreign == {ObjectKey.of(each) for each in theirs}
