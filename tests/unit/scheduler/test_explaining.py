"""Why a pod waits: the reason of every node, kube-scheduler's first, counted."""

import json

import msgspec
import pytest
from tests.unit.scheduler.explained import cluster, dump, gpu, gpus, node, pod, quota

from purser.adapters.objects import DumpError, objects_of_dump
from purser.core.explaining.reasons import FilterReason
from purser.core.kubelet.config import KubeletConfig, TopologyPolicy
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.report import encode, report_of
from purser.core.kubelet.state import KubeletNode, KubeletState
from purser.core.model import PcieLevel
from purser.core.names import KUBELET_ANNOTATION
from purser.core.placement import Reason
from purser.core.state import ADVICE, StateAsk, StateQuota
from purser.scheduler.explaining import Explainer, Overview, UnknownPodError

T4 = ("a", "b")
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}]
        }
    },
    "podAffinity": None,
}


def explained(waiting, *others):
    return Explainer(cluster(waiting, *others)).explain("default", waiting["metadata"]["name"])


def told(waiting, *others):
    return [(each.reason, each.nodes, each.gpus) for each in explained(waiting, *others).reasons]


def test_a_node_counts_for_the_first_filter_and_a_gpu_for_the_first_reason_of_purser():
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    nodes = (
        *(node(name, gpus(name, 8, 8192)) for name in ("n0", "n1", "n2")),
        *(node(name, gpus(name, 4), taints=[taint]) for name in T4),
        node("other", gpus("other", 4, 40960, "NVIDIA A100")),
        node("plain"),
    )
    waiting = pod("p", gpu(10240), annotations={"nvidia.com/use-gputype": "T4"})
    found = explained(waiting, *nodes)
    assert (found.state, found.nodes, found.fits) == ("Waiting", 7, ())
    assert [(each.by, each.reason, each.nodes, each.gpus) for each in found.reasons] == [
        ("Purser", Reason.INSUFFICIENT_MEMORY, 3, 24),
        ("kube-scheduler", FilterReason.TAINT, 2, 0),
        ("kube-scheduler", FilterReason.RESOURCES, 1, 0),
        ("Purser", Reason.TYPE_MISMATCH, 1, 4),
    ]
    assert [each.text for each in found.reasons] == [
        "24 GPUs on 3 nodes are too small for 10240 MiB (largest: 8192 MiB)",
        "2 nodes have taint team=a:NoSchedule, which the pod does not tolerate",
        "1 node has no nvidia.com/gpu at all",
        "4 GPUs on 1 node do not match the pod's request: a model with T4 (available: NVIDIA A100)",
    ]
    assert found.reasons[1].examples == ("a", "b")
    assert found.by_node.keys() == {"n0", "n1", "n2", "a", "b", "other", "plain"}
    assert found.by_node["n0"] == "8/8 CardInsufficientMemory"
    assert found.by_node["a"] == "TaintToleration: 1 node has taint team=a:NoSchedule, which the pod does not tolerate"


def apart(key, app="web", kind="podAntiAffinity"):
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
CLAIM = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {"volumeName": "pv-1"},
}
VOLUME = {
    "kind": "PersistentVolume",
    "metadata": {"name": "pv-1"},
    "spec": {"nodeAffinity": {"required": AFFINITY["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]}},
}
UNBOUND = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
DEVICES = {
    "kind": "ResourceClaim",
    "metadata": {"name": "nic", "namespace": "default"},
    "status": {"allocation": {"nodeSelector": VOLUME["spec"]["nodeAffinity"]["required"]}},
}
USES_DEVICES = {"resourceClaims": [{"name": "n", "resourceClaimName": "nic"}]}
USES_CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
PORT = [{"name": "c", "image": "i", "ports": [{"hostPort": 80, "containerPort": 80}]}]
EXAMPLES = [
    (FilterReason.UNSCHEDULABLE, gpu(), {}, {"unschedulable": True}, ()),
    (FilterReason.TAINT, gpu(), {}, {"taints": [{"key": "a", "effect": "NoExecute"}]}, ()),
    (FilterReason.SELECTOR, gpu(), {"nodeSelector": {"zone": "z1"}}, {}, ()),
    (FilterReason.AFFINITY, gpu(), {"affinity": AFFINITY}, {}, ()),
    (FilterReason.PORTS, {}, {"containers": PORT}, {}, (pod("o", {}, on="n", containers=PORT),)),
    (FilterReason.RESOURCES, gpu(cpu="65"), {}, {}, ()),
    (FilterReason.RESOURCES, gpu(example__net="2"), {}, {"example__net": "1"}, ()),
    (FilterReason.RESOURCES, gpu(cpu="1"), {"overhead": {"memory": "300Gi"}}, {}, ()),
    (FilterReason.PODS, gpu(), {}, {"pods": "0"}, ()),
    (FilterReason.VOLUME, gpu(), USES_CLAIM, {}, (CLAIM, VOLUME)),
    (FilterReason.RESOURCE_CLAIM, gpu(), USES_DEVICES, {}, (DEVICES,)),
    (FilterReason.SPREAD, gpu(), {"topologySpreadConstraints": [{**SPREAD, "topologyKey": "rack"}]}, {}, ()),
    (FilterReason.POD_AFFINITY, gpu(), {"affinity": apart("zone", kind="podAffinity")}, {}, ()),
    (
        FilterReason.POD_ANTI_AFFINITY,
        gpu(),
        {"affinity": apart("zone")},
        {},
        (pod("o", {}, on="n", labels={"app": "web"}),),
    ),
    (
        FilterReason.POD_ANTI_AFFINITY,
        gpu(),
        {"labels": {"app": "web"}},
        {},
        (pod("o", {}, on="n", affinity=apart("zone")),),
    ),
]


@pytest.mark.parametrize(("reason", "limits", "spec", "facts", "others"), EXAMPLES, ids=lambda each: str(each)[:24])
def test_each_filter_of_kube_scheduler_is_a_reason(reason, limits, spec, facts, others):
    assert told(pod("p", limits, **spec), node("n", gpus("n", 1), labels={"zone": "z2"}, **facts), *others) == [
        (reason, 1, 0)
    ]


def test_every_filter_has_an_example():
    of_logs = {FilterReason.NOT_ASKED}  # tests/unit/scheduler/explaining/logged/test_last_decision.py
    assert {example[0] for example in EXAMPLES} | of_logs == set(FilterReason)


def test_pods_are_spread_by_what_is_there_and_the_first_of_a_group_may_be_anywhere():
    nodes = [node(f"n{i}", gpus(f"n{i}", 1), labels={"zone": f"z{i % 2}"}) for i in range(3)]
    web = {"app": "web"}
    there = [pod(f"o{i}", {}, on=name, labels=web) for i, name in enumerate(("n0", "n2"))]
    spread = pod("p", gpu(), labels=web, topologySpreadConstraints=[SPREAD])
    assert explained(spread, *nodes, *there).fits == ("n1",)
    assert explained(spread, *nodes[:1], *there[:1]).fits == ("n0",)
    loose = {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}
    assert len(explained(pod("p", gpu(), labels=web, topologySpreadConstraints=[loose]), *nodes, *there).fits) == 3
    together = pod("p", gpu(), labels=web, affinity=apart("zone", kind="podAffinity"))
    assert explained(together, *nodes, there[0]).fits == ("n0", "n2")
    assert len(explained(together, *nodes).fits) == 3
    away = pod("p", gpu(), affinity=apart("zone"))
    assert explained(away, *nodes, there[0]).fits == ("n1",)
    elsewhere = [{**there[0], "metadata": {**there[0]["metadata"], "namespace": "other"}}]
    assert len(explained(away, *nodes, *elsewhere).fits) == 3


def test_a_claim_that_is_not_there_keeps_a_pod_everywhere():
    other = {**CLAIM, "metadata": {"name": "other", "namespace": "default"}}
    assert explained(pod("p", gpu(), **USES_CLAIM), node("n", gpus("n", 1)), other).objection == (
        "PersistentVolumeClaim data does not exist"
    )


def test_no_claim_at_all_is_not_the_same_as_claims_that_were_not_read():
    read = cluster(pod("p", gpu(), **USES_CLAIM), node("n", gpus("n", 1)))
    assert read.claims is None, "of a file without claims nobody knows whether they were asked for"
    assert Explainer(read).explain("default", "p").fits == ("n",)
    none = msgspec.structs.replace(read, claims=())
    assert Explainer(none).explain("default", "p").objection == "PersistentVolumeClaim data does not exist"
    (waiting,) = Overview(none).complete().waiting
    assert waiting.message == "PersistentVolumeClaim data does not exist"


@pytest.mark.parametrize(
    ("message", "volume", "objection"),
    [
        (UNBOUND, "", "PersistentVolumeClaim data is not bound, and kube-scheduler does not place the pod before that"),
        (UNBOUND, "pv-1", ""),
        ("0/1 nodes are available: 1 Insufficient cpu.", "", ""),
        ("", "", ""),
    ],
)
def test_a_claim_that_kube_scheduler_waits_for_keeps_a_pod_everywhere_until_it_is_bound(message, volume, objection):
    """Whether its StorageClass waits for the pod is not read: kube-scheduler's own word says that it does not."""
    waits = pod("p", gpu(), **USES_CLAIM)
    waits["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}
    found = explained(waits, node("n", gpus("n", 1)), {**CLAIM, "spec": {"volumeName": volume}})
    assert (found.objection, found.fits) == (objection, () if objection else ("n",))
    assert found.last_message == message


def test_the_first_reason_is_of_nodes_that_the_pod_is_meant_for():
    """Most nodes lack the label, and it is not why the pod waits."""
    full = node("n", gpus("n", 1, 4000), labels={"disk": "ssd"})
    others = (node(name, gpus(name, 1, 8000)) for name in "abc")
    wants = pod("p", gpu(6000), nodeSelector={"disk": "ssd"})
    (found,) = Overview(cluster(wants, full, *others)).complete().waiting
    assert (found.reason, [each.nodes for each in found.reasons]) == ("CardInsufficientMemory", [3, 1])
    nowhere = pod("p", gpu(6000), nodeSelector={"disk": "tape"})
    (found,) = Overview(cluster(nowhere, node("a", gpus("a", 1, 8000)))).complete().waiting
    assert found.reason == "NodeSelector"


def test_the_document_says_since_when_pods_hold_gpus_and_what_others_ask_for():
    there, waits = pod("there", gpu(), on="n", share={"n-0": 100}), pod("w", gpu(count=2))
    there["metadata"]["creationTimestamp"] = "2025-12-31T23:00:00Z"
    state = Overview(cluster(there, waits, node("n", gpus("n", 1)))).state()
    assert [(each.created, each.started) for each in state.grants] == [("2025-12-31T23:00:00Z", "2026-01-01T00:00:00Z")]
    assert [(each.gpus, each.asks) for each in state.waiting] == [(2, StateAsk("nvidia.com/gpu", True))]


@pytest.mark.parametrize("others", [{}, {"priority": 7}], ids=["alike", "each by itself"])
def test_of_a_pod_that_fits_its_own_schedulers_last_message_is_told(others):
    def refused(name, message, **spec):
        made = pod(name, gpu(), **spec)
        made["status"]["conditions"] = [
            {"type": "Ready", "status": "False", "message": "not this"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
        ]
        return made

    pods = [refused("p", "0/1 nodes are available: x"), refused("q", "2\x1b", **others), pod("r", gpu())]
    objects = cluster(*pods, node("n", gpus("n", 1)))
    found = Explainer(objects).explain("default", "p")
    assert (found.fits, found.last_message) == (("n",), "0/1 nodes are available: x")
    assert [each.message for each in Overview(objects).complete().waiting] == [
        "fits on 1 node now (n); last message from purser-scheduler: 0/1 nodes are available: x",
        "fits on 1 node now (n); last message from purser-scheduler: 2\N{REPLACEMENT CHARACTER}",
        "fits on 1 node now (n); purser-scheduler has said nothing about the pod yet",
    ]


LESS = "container c requests nvidia.com/gpumem: 8000 instead of 9000, or if the pod does not have annotation a/b"


@pytest.mark.parametrize(
    "message",
    [
        f"a GPU is too small{ADVICE}{LESS}",
        f"0/9 nodes are available: 9 node(s) had no suitable GPU: too small{ADVICE}{LESS}.",
        f"0/9 nodes are available: 4 too small{ADVICE}{LESS}. preemption: 0/9 nodes are available: 9 No victims found.",
        f"0/9 nodes are available: 4 too small{ADVICE}{LESS}, 5 node(s) had untolerated taint(s).",
        f"0/9 nodes are available: 4 too small{ADVICE}{LESS}, 5 Insufficient cpu. preemption: not helpful",
    ],
)
def test_a_suggestion_is_read_from_the_condition_as_kube_scheduler_ends_it(message):
    waits = pod("p", gpu(9000))
    waits["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    (found,) = Overview(cluster(waits, node("n", gpus("n", 1, 8000)))).complete().waiting
    assert (found.reason, found.suggestion) == (Reason.INSUFFICIENT_MEMORY, LESS)
    (found,) = Overview(cluster(waits, node("n", gpus("n", 1)))).complete().waiting
    assert found.suggestion == "", "it fits by now"


def test_a_condition_of_a_megabyte_of_blanks_takes_no_time():
    waits = pod("p", gpu(9000))
    message = f"{ADVICE}{LESS}{' ' * 1_000_000}x"
    waits["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    assert Overview(cluster(waits)).complete().waiting[0].suggestion == LESS


def test_without_a_suggestion_in_the_condition_there_is_none():
    waits = pod("p", gpu(9000))
    waits["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "there is room if"}]
    assert [each.suggestion for each in Overview(cluster(waits, pod("q", gpu()))).complete().waiting] == ["", ""]
    waits["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": f"{ADVICE}x"}]
    assert Overview(cluster(waits)).complete().waiting[0].suggestion == ""


def test_what_pods_take_counts_until_they_end():
    there = pod("there", {"cpu": "40"}, on="n")
    waiting = pod("p", gpu(cpu="30"))
    (found,) = explained(waiting, node("n", gpus("n", 1)), there).reasons
    assert found.text == "1 node has fewer than 30 CPUs free (most: 24)"
    there["status"]["phase"] = "Succeeded"
    assert explained(waiting, node("n", gpus("n", 1)), there).fits == ("n",)


def test_grants_count_without_their_keys_and_the_sum_of_a_quota_is_said():
    there = pod("there", gpu(9000), on="n", share={"n-0": 9000})
    assert told(pod("p", gpu(8000)), node("n", gpus("n", 1)), there) == [(Reason.INSUFFICIENT_MEMORY, 1, 1)]
    (found,) = explained(pod("p", gpu(4000)), node("n", gpus("n", 1)), there, quota(gpumem="10000")).reasons
    assert found.reason == Reason.QUOTA_NOT_FIT
    assert "exceeded quota: q, requested: limits.nvidia.com/gpumem=4000" in found.text


def test_the_state_has_what_is_held_of_each_quota():
    there = pod("there", gpu(9000), on="n", share={"n-0": (9000, 30)})
    limits = quota(gpumem="10000", gpucores="20")
    (cores, memory) = Overview(cluster(node("n", gpus("n", 1)), there, limits)).complete().quotas
    assert (cores.resource, cores.held, cores.limit) == ("limits.nvidia.com/gpucores", 30, 20)
    assert memory == StateQuota("default", "q", "limits.nvidia.com/gpumem", "", 9000, 10_000)
    assert Overview(cluster(node("n", gpus("n", 1)), there, quota())).complete().quotas == ()


def test_pods_of_other_schedulers_on_clusters_without_an_inventory_are_kube_schedulers_alone():
    nodes = [node(f"n{i}", nvidia_com__gpu="8") for i in range(2)]
    for each in nodes:
        each["status"]["allocatable"]["nvidia.com/gpu"] = "8"
    holds = [pod(f"h{i}", gpu(count=5), on=f"n{i}", schedulerName="kai") for i in range(2)]
    waiting = pod("p", gpu(count=4), schedulerName="kai")
    (found,) = explained(waiting, *nodes, *holds).reasons
    assert (found.by, found.text) == ("kube-scheduler", "2 nodes have fewer than 4 nvidia.com/gpu free (most: 3)")
    assert explained(pod("p", gpu(count=3), schedulerName="kai"), *nodes, *holds).fits == ("n0", "n1")


def test_gpus_that_an_agent_reports_and_kubelet_does_not_list_yet_take_no_pods():
    early = node("early", gpus("early", 1))
    del early["status"]["allocatable"]["nvidia.com/gpu"]
    found = explained(pod("p", gpu(8192)), early)
    assert not found.fits and [each.reason for each in found.reasons] == [FilterReason.RESOURCES]


@pytest.mark.parametrize("resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"])
def test_a_name_that_no_device_plugin_lists_is_kube_schedulers_to_count(resource):
    found = explained(pod("p", {resource: "1"}), node("n", gpus("n", 1)))
    (reason,) = found.reasons
    assert (reason.by, reason.text) == (
        "kube-scheduler",
        f"1 node has no {resource} at all, but has nvidia.com/gpu",
    )


def test_what_is_in_the_way_wherever_the_pod_goes_is_one_sentence():
    gated = explained(pod("p", gpu(), schedulingGates=[{"name": "example.org/q"}]), node("n", gpus("n", 1)))
    assert gated.objection == "its scheduling gates have not been removed: example.org/q"
    wrong = explained(pod("p", gpu(nvidia_com__x="1") | {"nvidia.com/gpumem": "16Gi"}), node("n", gpus("n", 1)))
    assert "nvidia.com/gpumem" in wrong.objection
    placed = explained(pod("p", gpu(1), on="n", share={"n-0": 1}), node("n", gpus("n", 1)))
    assert (placed.state, placed.node) == ("Placed", "n")
    with pytest.raises(UnknownPodError, match="namespace default has no pod q"):
        Explainer(cluster()).explain("default", "q")


def test_an_object_that_cannot_be_read_costs_itself_and_is_named():
    odd = node("odd")
    odd["metadata"]["labels"] = 7
    crooked = pod("crooked", {"cpu": "lots"}, on="n")
    deep = pod("p", gpu(), affinity={"nodeAffinity": [1]})
    text = dump(odd, crooked, deep, pod("q", gpu()), node("n", gpus("n", 1)), {"kind": "Secret"}, 5)
    explainer = Explainer(objects_of_dump(text))
    found = explainer.explain("default", "q")
    assert found.fits == ("n",)
    assert "Node -/odd" in found.notes[0]
    assert "object 7 of the file" in found.notes[1]
    assert any("Pod default/crooked" in note and "lots" in note for note in found.notes)
    assert "affinity cannot be read" in explainer.explain("default", "p").objection


@pytest.mark.parametrize("text", [b"", b"[]", b'{"items": 3}', b"\xff", b"items: []"], ids=repr)
def test_a_file_that_is_no_list_is_refused(text):
    with pytest.raises(DumpError, match="kubectl get nodes,pods -A -o json"):
        objects_of_dump(text)


def test_answers_are_plain_values():
    found = explained(pod("p", gpu(99999)), node("n", gpus("n", 1)))
    assert json.loads(json.dumps(msgspec.to_builtins(found)))["reasons"][0]["nodes"] == 1


def test_a_pod_on_a_node_is_compared_with_the_best_of_the_other_nodes():
    nodes = [node(name, gpus(name, 2, 10000)) for name in ("full", "half", "empty")]
    others = [
        pod("f", gpu(9000), on="full", share={"full-0": 9000, "full-1": 9000}),
        pod("h", gpu(5000), on="half", share={"half-0": 5000}),
    ]
    policy = {"purser.dev/node-policy": "binpack"}
    mine = pod("p", gpu(4000), on="empty", share={"empty-1": (4000, 30)}, annotations=policy)
    found = explained(mine, *nodes, *others)
    choice = found.choice
    assert (found.state, choice.policy, choice.fits, choice.rank) == ("Placed", "binpack", 2, 2)
    assert choice.gpus == ("GPU 1: 4000 MiB, 30% of compute",)
    assert (choice.own.node, choice.runner_up.node) == ("empty", "half")
    assert choice.runner_up.score > choice.own.score
    policy["purser.dev/node-policy"] = "spread"
    best = pod("p", gpu(4000), on="empty", share={"empty-1": 4000}, annotations=policy)
    assert explained(best, *nodes, *others).choice.rank == 1
    assert explained(pod("p", {"cpu": "1"}, on="full"), *nodes).choice.policy == ""
    gone = pod("p", gpu(4000), on="full", share={"full-7": 4000})
    choice = explained(gone, *nodes, *others).choice
    assert (choice.own, choice.own_reason) == (None, "2/2 CardInsufficientMemory")
    closed = node("full", gpus("full", 1), unschedulable=True)
    choice = explained(gone, closed).choice
    assert (choice.fits, choice.own_reason) == (0, "NodeUnschedulable: 1 node is cordoned")
    assert explained(gone, *nodes, *others).choice.gpus == ("GPU full-7 (not in the node's inventory): 4000 MiB",)


def test_a_node_that_the_policy_keeps_for_other_pods_has_no_score_that_means_anything():
    nodes = [node(name, gpus(name, count)) for name, count in (("small", 4), ("large", 8), ("larger", 8))]
    choice = explained(pod("p", gpu(4000), on="small", share={"small-0": 4000}), *nodes).choice
    assert (choice.own.node, choice.own.is_kept) == ("small", False)
    assert choice.runner_up.is_kept


def test_operators_read_which_pod_a_dispute_is_about():
    stranger = pod("stranger", gpu(), on="n")
    found = explained(pod("p", gpu()), node("n", gpus("n", 1)), stranger)
    (reason,) = found.reasons
    assert reason.reason == Reason.DISPUTED
    assert "pod default/stranger runs without a valid grant" in reason.text
    assert "pod default/stranger runs without a valid grant" in found.by_node["n"]


def test_the_details_of_a_node_are_read_from_its_annotations():
    aligned = KubeletNode(KubeletConfig("v1.34.1", TopologyPolicy.RESTRICTED), Machine())
    report = encode(report_of(aligned, KubeletState()))
    of_nodes = Overview(cluster(node("n", gpus("n", 2, numa_nodes=(0,)), annotations={KUBELET_ANNOTATION: report})))
    found = of_nodes.node_details("n")
    assert [each.uuid for each in found.gpus] == ["n-0", "n-1"]
    assert found.gpus[0].links[0].level is PcieLevel.SAME_CPU
    assert found.kubelet.topology_policy == "restricted"
    assert of_nodes.node_details("other") is None
