"""Changes that were once not found, or not the smallest: each in a cluster that has little else."""

import json

import pytest
from tests.unit.scheduler.explained import cluster, gpu, gpus, node, pod, quota
from tests.unit.scheduler.explaining.listed import ANY, relisted
from tests.unit.scheduler.test_explained_reasons import aligned, machine

from purser.core.names import CORDONED_GPUS_ANNOTATION, KUBELET_ANNOTATION
from purser.scheduler.explaining import ChangeKind, Explainer

PORT = [{"name": "c", "image": "i", "ports": [{"hostPort": 80, "containerPort": 80}]}]


def changes(*objects):
    found = Explainer(cluster(*objects)).explain("default", "p")
    assert not found.fits
    return {(each.kind, each.change.resource): each for each in found.suggestions}


def ended(*objects):
    return changes(*objects)[ChangeKind.END, ""].change.pods


def owned(made, kind):
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "o", "uid": "o", "controller": True}]
    return made


def test_a_pod_ends_whose_host_port_is_in_the_way():
    there = [pod(name, {}, on="n", containers=PORT) for name in ("a", "b")]
    assert ended(node("n", gpus("n", 1)), there[0], pod("p", {}, containers=PORT)) == ("default/a",)
    assert ended(node("n", gpus("n", 1)), *there, pod("p", {}, containers=PORT)) == ("default/a", "default/b")


def test_of_equally_few_pods_those_of_the_lowest_priority_end():
    """Whatever their nodes are called."""
    holders = [("vip", "m", 1000), ("batch", "n", -10), ("web", "o", 0)]
    nodes = [node(name, gpus(name, 1)) for _, name, _ in holders]
    placed = [pod(name, gpu(), on=at, share={f"{at}-0": 8000}, priority=rank) for name, at, rank in holders]
    assert ended(*nodes, *placed, pod("p", gpu())) == ("default/batch",)
    two = [
        pod(f"{at}-{index}", gpu(), on=at, share={f"{at}-{index}": 8000}, priority=rank)
        for at, rank in (("m", 5), ("n", 0))
        for index in (0, 1)
    ]
    assert ended(*(node(name, gpus(name, 2)) for name in "mn"), *two, pod("p", gpu(count=2))) == (
        "default/n-0",
        "default/n-1",
    )


def preemption_notes(*objects):
    notes = Explainer(cluster(*objects)).explain("default", "p").notes
    return [each for each in notes if "preemption" in each]


@pytest.mark.parametrize(
    ("asked", "note"),
    [
        (
            pod("p", gpu(), priority=7),
            "kube-scheduler may evict pods of a lower priority than 7 for the pod (preemption): without them, the pod "
            "fits on 1 node (n)",
        ),
        (
            pod("p", gpu(count=2), priority=7),
            "the pod's priority (7) is higher than that of some running pods, but without them the pod would not fit "
            "on any node either: preemption does not help",
        ),
        (pod("p", gpu()), ""),
        (pod("p", gpu(), priority=7, preemptionPolicy="Never"), ""),
        (pod("p", gpu(), priority=7, schedulerName="volcano"), ""),
    ],
)
def test_a_pod_that_may_preempt_others_says_where_it_would_fit_then(asked, note):
    holds = {"share": {"n-0": 8000}}
    nodes = (node("n", gpus("n", 1)), pod("low", gpu(), on="n", **holds))
    high = (node("m", gpus("m", 1)), pod("high", gpu(), on="m", priority=9, share={"m-0": 8000}))
    assert preemption_notes(*nodes, *high, asked) == [note] * bool(note)


def test_where_preemption_helps_by_another_rule_it_is_only_named():
    """The node by node rule counts pods that are to go for what keeps pods apart."""
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    there = node("n", gpus("n", 1), labels={"kubernetes.io/hostname": "n"})
    web = pod("web", {}, on="n", labels={"app": "web"})
    [note] = preemption_notes(there, web, pod("p", gpu(), priority=7, affinity=apart))
    assert note.endswith(
        "higher than that of some running pods: kube-scheduler may evict them for the pod (preemption)"
    )


def test_pods_that_come_back_are_left_alone_in_a_quota_as_well():
    large = owned(pod("large", gpu(8000), on="m", share={"m-0": 8000}), "DaemonSet")
    small = pod("small", gpu(5000), on="m", share={"m-0": 5000})
    nodes = [node(name, gpus(name, 1)) for name in ("m", "n")]
    assert ended(*nodes, large, small, quota(gpumem="13000"), pod("p", gpu(4000))) == ("default/small",)
    alone = changes(*nodes, large, quota(gpumem="8000"), pod("p", gpu(4000)))
    assert (ChangeKind.END, "") not in alone


def test_pods_of_a_node_and_of_the_quota_elsewhere_end_together():
    full = [pod(f"full-{i}", gpu(100), on="n", share={"n-0": 100}) for i in range(2)]
    far = pod("far", gpu(9000), on="m", share={"m-0": 9000})
    nodes = [node("m", gpus("m", 1), labels={"zone": "z1"}), node("n", gpus("n", 1, slots=2), labels={"zone": "z2"})]
    waiting = pod("p", gpu(500), nodeSelector={"zone": "z2"})
    assert ended(*nodes, *full, far, quota(gpumem="9100"), waiting) == ("default/full-1", "default/far")


def test_one_gpu_is_uncordoned_where_one_suffices_on_a_later_node():
    two = node("m", gpus("m", 2, 500), annotations={CORDONED_GPUS_ANNOTATION: "m-0,m-1"})
    waiting = pod("p", gpu(500, 2))
    one = node("n", gpus("n", 2, 500), annotations={CORDONED_GPUS_ANNOTATION: "n-1"})
    assert changes(two, one, waiting)[ChangeKind.UNCORDON_GPU, ""].change.gpus == ("n-1",)
    three = node("m", gpus("m", 3, 500), annotations={CORDONED_GPUS_ANNOTATION: "m-0,m-1,m-2"})
    assert changes(three, waiting)[ChangeKind.UNCORDON_GPU, ""].change.gpus == ("m-0", "m-1")


@pytest.mark.parametrize(
    ("mark", "labels", "text"),
    [
        ({}, {}, "node n is uncordoned"),
        (
            {"purser.dev/cordoned-by": "driver-upgrade"},
            {},
            "node n is uncordoned, which the operator does after the driver upgrade",
        ),
        (
            {"purser.dev/cordoned-by": "driver-upgrade"},
            {"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"},
            "node n is uncordoned, which the operator does not do because the driver upgrade failed",
        ),
        (
            {"purser.dev/cordoned-by": "mig-change"},
            {"nvidia.com/mig.config.state": "failed"},
            "node n is uncordoned, which the operator does not do because the MIG change failed",
        ),
    ],
)
def test_who_uncordons_a_node_is_said_where_it_is_known(mark, labels, text):
    closed = node("n", gpus("n", 1), labels=labels, annotations=mark)
    closed["spec"]["unschedulable"] = True
    assert changes(closed, pod("p", gpu(500)))[ChangeKind.UNCORDON_NODE, ""].text == text


def test_a_cordoned_gpu_is_found_whose_agent_lists_nothing_of_it():
    cordoned = node("n", gpus("n", 1), annotations={CORDONED_GPUS_ANNOTATION: "n-0"})
    cordoned["status"]["allocatable"][ANY] = "0"
    objects = relisted([cordoned, pod("p", gpu(500))])
    (reason,) = Explainer(cluster(*objects)).explain("default", "p").reasons
    assert reason.reason == "NodeResourcesFit"
    assert changes(*objects)[ChangeKind.UNCORDON_GPU, ""].change.gpus == ("n-0",)


def test_what_an_agent_that_was_killed_leaves_is_said_and_its_return_is_offered():
    """As kubelet, and the amounts that the agent wrote, leave the node."""
    killed = node("n", gpus("n", 1))
    killed["status"]["allocatable"] |= {"nvidia.com/gpu": "0", ANY: "100"}
    objects = [killed, node("cpu"), pod("p", {"nvidia.com/gpu": "1"})]
    texts = [each.text for each in Explainer(cluster(*objects)).explain("default", "p").reasons]
    assert texts == [
        "1 node has no nvidia.com/gpu at all",
        "1 node lists 0 nvidia.com/gpu (its device plugin is not running there, or offers no healthy device)",
    ]
    assert changes(*objects)[ChangeKind.AGENT, ""].text == "Purser's agent runs on node n again"


def test_whole_gpus_by_compute_may_be_shares_too():
    there = pod("there", gpu(10000), on="n", share={"n-0": 10000})
    waiting = pod("p", {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "50"})
    found = changes(node("n", gpus("n", 1)), there, waiting)
    assert found[ChangeKind.AMOUNT, "nvidia.com/gpumem"].change.amount == "6384"


@pytest.mark.parametrize(("policy", "amount"), [("single-numa-node", "4"), ("none", "7")])
def test_whole_cpus_are_tried_one_by_one_where_a_kubelet_aligns_them(policy, amount):
    made = aligned()
    report = machine()
    report["config"]["topology_policy"] = "single-numa-node"
    made["metadata"]["annotations"][KUBELET_ANNOTATION] = json.dumps(report)
    there = [] if policy != "none" else [node("plain", gpus("plain", 1, slots=1), cpu="7")]
    asked = {"nvidia.com/gpu": "1", "cpu": "8", "memory": "1Gi"}
    found = changes(made, *there, pod("p", asked))
    assert found[ChangeKind.AMOUNT, "cpu"].change.amount == amount


def test_where_a_pod_moves_that_ends_is_a_field():
    nodes = [node("m", gpus("m", 1, 9000)), node("n", gpus("n", 1, 16000))]
    there = pod("there", gpu(8000), on="n", share={"n-0": 8000})
    found = changes(*nodes, there, pod("p", gpu(12000)))[ChangeKind.END, ""]
    assert (found.change.pods, found.change.moves) == (("default/there",), {"default/there": "m"})
    assert found.text == "pod default/there is deleted (its replacement fits on m)"
    beside = pod("there", gpu(3000), on="n", share={"n-0": 3000})
    again = changes(nodes[1], beside, pod("p", {"nvidia.com/gpu": "1"}))[ChangeKind.END, ""]
    assert again.change.moves == {}
    two = node("n", gpus("n", 2, 16000))
    spread = [pod(f"t{i}", gpu(3000), on="n", share={f"n-{i}": 3000}) for i in range(2)]
    other = changes(two, *spread, pod("p", {"nvidia.com/gpu": "1"}))[ChangeKind.END, ""]
    assert (other.change.pods, other.change.moves) == (("default/t0",), {"default/t0": "n"})
    assert other.text == "pod default/t0 is deleted (its replacement fits elsewhere on the node)"


def test_a_gpu_is_uncordoned_of_a_node_whose_kubelet_would_reject_the_pod_with_the_others():
    made = aligned()
    made["metadata"]["annotations"][CORDONED_GPUS_ANNOTATION] = "n-1"  # beside n-0 a CPU is reserved
    waiting = pod("p", {"nvidia.com/gpu": "1", "cpu": "4", "memory": "1Gi"})
    assert changes(made, waiting)[ChangeKind.UNCORDON_GPU, ""].change.gpus == ("n-1",)
