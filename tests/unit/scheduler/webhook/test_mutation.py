import json

import msgspec
import pytest
from tests.unit.scheduler.reviews import ask, container, patched, pod, review

from purser.adapters.pods import pod_spec
from purser.core.dialects import parse
from purser.core.fleet import Fleet
from purser.core.model import Device, NodeInventory
from purser.core.placement.offers import offers_of
from purser.kube.codec import codec_of
from purser.kube.resources import PODS
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.mutation import Mutation, UnknownFleet
from purser.scheduler.webhook.review import ReviewError, decode_review, encode_review
from purser.scheduler.webhook.validation import Validation

MIG = "nvidia.com/mig-1g.5gb"
GPU, MEM, VMEM, VNUM = "nvidia.com/gpu", "nvidia.com/gpumem", "volcano.sh/gpu-memory", "volcano.sh/gpu-number"


def read(obj):
    return parse(pod_spec(codec_of(PODS).object(json.dumps(obj).encode())))


class Nodes(UnknownFleet):
    """What is known of the nodes."""

    def __init__(self, *devices, offered=()):
        self._offered = offered
        fleet = Fleet()
        if devices:
            fleet.set_inventory(NodeInventory("n", devices))
        self._gpus = offers_of(fleet)

    def gpus(self):
        return self._gpus

    def offers(self, resource):
        return resource in self._offered


def gpus(count, memory_mib=40_960, **fields):
    return [Device(f"{fields}-{at}", at, "A100", memory_mib, **fields) for at in range(count or 0)]


def mutate(obj, **settings):
    return ask(Mutation(**settings), obj)


def refusal(response):
    assert not response["allowed"]
    assert "patch" not in response
    assert response["status"]["code"] == 403
    return response["status"]["message"]


@pytest.mark.parametrize("limits", [None, {}, {"cpu": "1"}, {GPU: 0}, {"amd.com/gpu": 1}], ids=str)
def test_a_pod_without_gpus_is_left_alone(limits):
    response = mutate(pod(container(limits=limits, privileged=True), nodeName="n1", schedulerName="default-scheduler"))
    assert response == {"uid": "r-1", "allowed": True}


@pytest.mark.parametrize("scheduler", [None, "default-scheduler"])
def test_a_gpu_pod_gets_pursers_scheduler(scheduler):
    obj = pod(container(limits={GPU: "1"}), **({"schedulerName": scheduler} if scheduler else {}))
    response = mutate(obj)
    assert response["allowed"]
    assert patched(obj, response)["spec"] == {**obj["spec"], "schedulerName": "purser-scheduler"}


def test_a_pod_that_has_everything_gets_no_patch():
    response = mutate(pod(container(limits={GPU: "1"}), schedulerName="purser-scheduler"))
    assert response == {"uid": "r-1", "allowed": True}


def test_missing_limits_are_added_where_they_belong():
    obj = pod(
        container("a", limits={MEM: "1024"}),
        container("b"),
        container("c", limits={VNUM: 2}, requests={"cpu": "1"}),
        container("d", requests={GPU: "1"}),
        container("e", limits={"cpu": "1"}),
        init=[container("i", limits={VMEM: 100, GPU: "1"}), container("j", limits={VMEM: 100}, restartPolicy="Always")],
        schedulerName="purser-scheduler",
    )
    result = patched(obj, mutate(obj))
    assert result["spec"]["containers"] == [
        container("a", limits={MEM: "1024", GPU: "1"}),
        container("b"),
        container("c", limits={VNUM: 2, GPU: "2"}, requests={"cpu": "1"}),
        container("d", limits={GPU: "1"}, requests={GPU: "1"}),
        container("e", limits={"cpu": "1"}),
    ]
    assert result["spec"]["initContainers"] == [
        container("i", limits={VMEM: 100, GPU: "1"}),
        container("j", limits={VMEM: 100, GPU: "1"}, restartPolicy="Always"),
    ]


def test_amounts_of_init_containers_stay_where_they_are():
    obj = pod(
        container("main", limits={GPU: "1", MEM: "2048"}),
        init=[
            container("load", limits={GPU: "1", MEM: "1024", "cpu": "1"}),
            container("plain", limits={"cpu": "1"}),
            container("side", requests={MEM: "512"}, restartPolicy="Always"),
        ],
    )
    result = patched(obj, mutate(obj))
    assert result["spec"]["initContainers"] == [
        container("load", limits={GPU: "1", MEM: "1024", "cpu": "1"}),
        container("plain", limits={"cpu": "1"}),
        container("side", limits={GPU: "1", MEM: "512"}, requests={MEM: "512"}, restartPolicy="Always"),
    ]
    assert read(result).containers == read(obj).containers
    assert "patch" not in mutate(result)
    assert ask(Validation(), result)["allowed"]


def test_a_pod_whose_init_amounts_were_moved_before_nodes_listed_them_means_the_same():
    obj = pod(
        container("main", limits={GPU: "1", MEM: "2048"}),
        init=[container("load", limits={GPU: "1"})],
        annotations={"purser.dev/init-resources": '{"load": {"nvidia.com/gpumem": "1024"}}'},
        schedulerName="purser-scheduler",
    )
    assert "patch" not in mutate(obj)
    assert ask(Validation(), obj)["allowed"]
    assert [each.devices.memory_mib for each in read(obj).containers] == [1024, 2048]


@pytest.mark.parametrize(
    "value", ["", "[]", '{"main": {}}', '{"load": {"nvidia.com/gpumem": "16Gi"}}', '{"load": 1}', "x" * 20000], ids=len
)
def test_an_annotation_of_init_amounts_that_makes_no_sense_is_refused(value):
    obj = pod(
        container("main", limits={GPU: "1"}),
        init=[container("load", limits={GPU: "1"})],
        annotations={"purser.dev/init-resources": value},
    )
    message = refusal(mutate(obj))
    assert "purser.dev/init-resources" in message or "nvidia.com/gpumem" in message


def test_other_fields_of_resources_are_kept():
    claims = [{"name": "claim"}]
    obj = pod({**container("a"), "resources": {"claims": claims, "requests": {GPU: "1"}, "limits": None}})
    assert patched(obj, mutate(obj))["spec"]["containers"][0]["resources"] == {
        "claims": claims,
        "requests": {GPU: "1"},
        "limits": {GPU: "1"},
    }


@pytest.mark.parametrize("limits", [{MEM: "100"}, {VMEM: "100"}, {"aliyun.com/gpu-mem": "4"}, {}], ids=str)
@pytest.mark.parametrize("zeros", ["limits", "requests", "both"])
def test_the_gpu_replaces_a_zero_of_a_limit_range(limits, zeros):
    given = {**limits, **({GPU: "0"} if zeros != "requests" else {})}
    asked = {GPU: "0"} if zeros != "limits" else {}
    obj = pod(container(limits=given, requests=asked))
    response = mutate(obj)
    assert response["allowed"]
    resources = patched(obj, response)["spec"]["containers"][0]["resources"] if "patch" in response else {}
    assert resources.get("limits", {}).get(GPU) == ("1" if limits else None)
    assert not limits or resources.get("requests", {}).get(GPU, "1") == "1"


class NoResources(UnknownFleet):
    """Nodes that list nothing."""

    def offers(self, resource):
        return False


@pytest.mark.parametrize("word", ["nvidia.com/vgpu", "nvidia.com/gpus", "nividia.com/gpu"])
def test_no_gpu_is_added_beside_another_word_for_it(word):
    obj = pod(container("a", limits={word: "1", MEM: "3000"}), container("b", limits={MEM: "100"}))
    response = ask(Mutation(fleet=NoResources()), obj)
    assert [each["resources"]["limits"] for each in patched(obj, response)["spec"]["containers"]] == [
        {word: "1", MEM: "3000"},
        {MEM: "100", GPU: "1"},
    ]
    assert any(
        f"no node offers {word}, so the pod stays pending: did you mean {GPU}?" in each for each in response["warnings"]
    )


def test_who_asks_for_several_mig_devices_is_told_what_cuda_shows():
    response = mutate(pod(container(limits={"nvidia.com/mig-1g.5gb": 2})))
    assert response["allowed"]
    assert any("asks for 2 MIG devices" in each for each in response["warnings"])


def test_a_mutated_pod_is_not_patched_again():
    obj = pod(container("a", limits={MEM: "1024"}), container("b", limits={VNUM: 2}))
    result = patched(obj, mutate(obj))
    assert "patch" not in mutate(result)
    assert ask(Validation(), result)["allowed"]


def test_a_pod_for_another_scheduler_is_left_alone_with_a_warning():
    response = mutate(pod(container(limits={MEM: "16Gi"}), schedulerName="volcano"))
    assert response["allowed"]
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert 'schedulerName is "volcano"' in warning
    assert len(warning) <= 256  # the API server cuts longer ones
    (warning,) = mutate(pod(container(limits={MEM: "16Gi"}), schedulerName="a\n\x1b[31mb"))["warnings"]
    assert warning.isprintable(), "the API server drops others"


@pytest.mark.parametrize(
    ("obj", "says"),
    [
        (pod(container(limits={MEM: "16Gi"})), "16384"),
        (pod(container("a", limits={GPU: 1, MEM: -1}), container("b", limits={GPU: -1})), "; "),
        (
            pod(container(limits={MEM: 100}, privileged=True)),
            'container "train" is privileged but requests a GPU share',
        ),
        (pod(container(limits={GPU: 1}), nodeName="n1"), 'sets spec.nodeName "n1"'),
        (
            pod(container(), annotations={"purser.dev/grant": "{}"}),
            "only Purser's scheduler may write annotations purser.dev/grant: was the manifest copied from a running"
            " pod? Remove these annotations",
        ),
        (
            pod(container(), annotations={"hami.io/vgpu-node": "n", "purser.dev/grant": "{}"}, nodeName="n"),
            "annotations purser.dev/grant, hami.io/vgpu-node: was the manifest copied from a running pod? Remove "
            "these annotations and spec.nodeName",
        ),
        (pod(container(), annotations={"purser.dev/grant-signature": ""}), "purser.dev/grant-signature"),
        (pod(container(limits={GPU: 1}), annotations={"hami.io/vgpu-devices-allocated": ";"}), "hami.io/vgpu-devices"),
        (pod(container(limits={VMEM: 1}), annotations={"volcano.sh/gpu-index": "0"}), "volcano.sh/gpu-index"),
        (
            pod(container("a", limits={GPU: 1}), init=[container("i", limits={GPU: 2})]),
            'init container "i" asks for 2',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "pod",
)
def test_a_pod_that_could_never_run_is_refused_by_both_webhooks(obj, says):
    assert says in refusal(mutate(obj))
    obj["spec"]["schedulerName"] = "purser-scheduler"
    assert says in refusal(ask(Validation(), obj))


def test_a_privileged_container_may_have_whole_gpus():
    obj = pod(container("a", limits={GPU: 2}, privileged=True), container("b", limits={MEM: 100}))
    assert mutate(obj)["allowed"]


def test_other_systems_records_on_pods_without_gpus_are_not_our_business():
    assert mutate(pod(container(), annotations={"volcano.sh/gpu-index": "0"}))["allowed"]


@pytest.mark.parametrize("webhook", [Mutation(), Validation()], ids=lambda webhook: type(webhook).__name__)
def test_a_mirror_pod_is_left_alone_where_a_node_made_it(webhook):
    obj = pod(container(limits={MEM: "16Gi"}), annotations={"kubernetes.io/config.mirror": "x"}, nodeName="n1")
    nodes = ("system:nodes", "system:authenticated")
    assert ask(webhook, obj, user="system:node:n1", groups=nodes) == {"uid": "r-1", "allowed": True}
    for user, groups in [("alice", nodes), ("system:node:n1", ("system:authenticated",)), ("alice", ("team",))]:
        assert "16384" in refusal(ask(webhook, obj, user=user, groups=groups))


def test_what_is_no_pod_is_let_through():
    assert ask(Mutation(), {"metadata": {}}, resource="services") == {"uid": "r-1", "allowed": True}
    assert ask(Mutation(), {"x": 1}, subresource="status")["allowed"]
    assert ask(Mutation(), None, operation="DELETE")["allowed"]


@pytest.mark.parametrize(
    "obj",
    [
        {"spec": []},
        {"spec": {"containers": [{"name": 5}]}},
        {"metadata": {"annotations": {"a": 1}}},
        {"spec": {"containers": [{"name": "a", "resources": {"limits": {GPU: [1]}}}]}},
        [],
    ],
    ids=str,
)
def test_a_pod_that_cannot_be_read_is_a_bad_request(obj):
    request = decode_review(json.dumps(review(obj)).encode())
    for webhook in (Mutation(), Validation()):
        with pytest.raises(ReviewError):
            webhook.review(request)


def test_containers_without_a_name_or_null_do_not_break_the_patch():
    obj = pod(None, {"resources": {"limits": {MEM: 5}}}, {"name": "b"})
    assert patched(obj, mutate(obj))["spec"]["containers"][1]["resources"]["limits"] == {MEM: 5, GPU: "1"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"\xff"}}',
    ],
    ids=lambda body: body[-60:].decode(errors="replace"),
)
def test_a_body_that_is_no_review_is_refused(body):
    with pytest.raises(ReviewError):
        decode_review(body)


def test_the_answer_carries_what_the_api_server_reads():
    request = decode_review(msgspec.json.encode(review(pod(container(limits={GPU: 1})))))
    answer = json.loads(encode_review(request, Mutation().review(request)))
    assert answer["kind"] == "AdmissionReview"
    assert set(answer["response"]) == {"uid", "allowed", "patchType", "patch"}


@pytest.mark.parametrize(
    ("resource", "warned"),
    [
        (MIG, "requests 5 nvidia.com/mig-1g.5gb, but the largest node has 4"),
        ("nvidia.com/gpu.fast", "no node offers nvidia.com/gpu.fast"),
    ],
)
def test_asking_for_more_of_a_resource_than_any_node_has_is_admitted_with_a_warning(resource, warned):
    response = mutate(pod(container(limits={resource: 5})), fleet=Nodes(*gpus(4, resource=MIG), offered=(MIG,)))
    assert response["allowed"]
    assert [warned in each for each in response["warnings"]].count(True) == 1


def test_a_word_that_nobody_serves_is_warned_of_whether_or_not_the_pod_asks_for_gpus_of_pursers():
    for limits in ({"gpu.intel.com/i915": 1}, {GPU: 1, "gpu.intel.com/i915": 1}):
        (warning,) = [
            each for each in mutate(pod(container(limits=limits)), fleet=Nodes())["warnings"] if "i915" in each
        ]
        assert "no node offers gpu.intel.com/i915" in warning
        offered = Nodes(offered=("gpu.intel.com/i915",))
        assert "i915" not in str(mutate(pod(container(limits=limits)), fleet=offered).get("warnings"))


def test_pods_of_a_scheduler_that_is_served_keep_its_name_and_wait_for_a_grant():
    units = DeviceRules(memory_units=[("volcano.sh/gpu-memory", 10)])
    served, says = {"devices": units, "served": ["volcano"]}, "purser.dev/awaits-grant"
    obj = pod(container(limits={VMEM: 100}), schedulerName="volcano", annotations={says: "false"})
    result = patched(obj, response := mutate(obj, **served))
    assert "warnings" not in response
    assert result["spec"]["schedulerName"] == "volcano"
    assert result["spec"]["containers"][0]["resources"]["limits"] == {VMEM: 100, GPU: "1"}
    assert result["metadata"]["annotations"] == {says: "true", "purser.dev/memory-units": "volcano.sh/gpu-memory=10"}
    assert "patch" not in mutate(result, **served)
    assert ask(Validation(**served), result)["allowed"]
    assert f"lacks the annotation {says}: true" in refusal(ask(Validation(**served), obj))
    assert says not in str(patched(obj, mutate(obj, adopted=["volcano"], served=["volcano"])))
    fractional = {"containers": [container(limits={VMEM: "1Gi"})]}
    for bad, told in (({"nodeName": "n1"}, "sets spec.nodeName"), (fractional, "is not an integer: must be a")):
        assert told in refusal(mutate({**obj, "spec": {**obj["spec"], **bad}}, **served))


def test_an_annotation_that_volcano_alone_reads_is_warned_of_where_purser_places_the_pod():
    said = {"volcano.sh/vgpu-podgroup-policy": "spread"}
    obj = pod(container(limits={"volcano.sh/vgpu-memory": 100}), schedulerName="volcano", annotations=said)
    (warning,) = mutate(obj, adopted=["volcano"])["warnings"]
    assert "ignores annotation volcano.sh/vgpu-podgroup-policy" in warning
    assert "warnings" not in mutate(obj, served=["volcano"])


def test_pods_of_a_scheduler_that_the_administrator_lists_are_pursers():
    obj = pod(container(limits={GPU: 1}), schedulerName="volcano")
    assert "schedulerName" not in str(mutate(obj).get("patch"))
    response = mutate(obj, adopted=["volcano"])
    assert patched(obj, response)["spec"]["schedulerName"] == "purser-scheduler"
    assert "lacks schedulerName" in refusal(ask(Validation(adopted=["volcano"]), obj))


HERE = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ANY_TAINT = {"operator": "Exists", "effect": "NoSchedule"}
ELSEWHERE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
RANKED = [{"weight": 1, "preference": ELSEWHERE}]
PREFERRED, REQUIRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("preferred", "required"))


@pytest.mark.parametrize(
    ("affinity", "terms"),
    [
        (None, [{"matchFields": [HERE]}]),
        ({"nodeAffinity": {PREFERRED: RANKED}, "podAffinity": {}}, [{"matchFields": [HERE]}]),
        (
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ELSEWHERE, {}, {"matchFields": [HERE]}]}}},
            [{**ELSEWHERE, "matchFields": [HERE]}, {}, {"matchFields": [HERE, HERE]}],
        ),
    ],
    ids=["none", "others kept", "terms"],
)
def test_a_pod_of_a_trusted_namespace_that_names_its_node_is_scheduled_there(affinity, terms):
    """NVIDIA's validator makes such a pod: to kubelet alone it would come without a grant."""
    devices = DeviceRules(trusted=["gpu-operator"])
    known = {"key": "nvidia.com/gpu", "operator": "Exists"}
    spec = {"nodeName": "n1", "tolerations": [known], **({"affinity": affinity} if affinity else {})}
    obj = pod(container("c"), init=[container("check", limits={GPU: 1})], **spec)
    made = patched(obj, ask(Mutation(devices=devices), obj, namespace="gpu-operator"))
    assert "nodeName" not in made["spec"]
    assert made["spec"]["tolerations"] == [known, ANY_TAINT]
    assert made["spec"]["affinity"]["nodeAffinity"][REQUIRED] == {"nodeSelectorTerms": terms}
    for kept in ("podAffinity", PREFERRED):
        assert (kept in str(affinity)) == (kept in str(made["spec"]["affinity"]))
    assert ask(Validation(devices=devices), made, namespace="gpu-operator")["allowed"]
    assert "nodeName" in refusal(ask(Mutation(devices=devices), obj, namespace="team"))


@pytest.mark.parametrize("nonsense", [1, "x", [], {"nodeAffinity": [1]}, {"nodeAffinity": {REQUIRED: "x"}}], ids=str)
def test_affinities_that_no_api_server_lets_pass_are_no_fault(nonsense):
    obj = pod(container(limits={GPU: 1}), nodeName="n1", affinity=nonsense)
    response = ask(Mutation(devices=DeviceRules(trusted=["team"])), obj)
    assert "nodeName" not in patched(obj, response)["spec"]


@pytest.mark.parametrize("written", [None, {}, {"team": "a"}, {"purser.dev/memory-units": "aliyun.com/gpu-mem=1024"}])
def test_the_cluster_says_what_a_pod_counts_in_and_not_its_author(written):
    devices = DeviceRules(memory_units=[("aliyun.com/gpu-mem", 1), ("volcano.sh/gpu-memory", 10)])
    obj = pod(container(limits={"aliyun.com/gpu-mem": "30"}), annotations=written)
    unpatched = ask(Validation(devices=devices), obj)
    assert not unpatched["allowed"]
    done = patched(obj, ask(Mutation(devices=devices), obj))
    assert done["metadata"]["annotations"] == {**(written or {}), "purser.dev/memory-units": "aliyun.com/gpu-mem=1"}
    assert read(done).containers[0].devices.memory_mib == 30
    assert ask(Validation(devices=devices), done)["allowed"]
    usual = patched(done, ask(Mutation(), {**done, "spec": {**done["spec"], "schedulerName": ""}}))
    assert "purser.dev/memory-units" not in usual["metadata"]["annotations"]


def kais(name="kai-scheduler", *, annotations=None, env=(), **fields):
    annotations = {"gpu-fraction": "0.5"} if annotations is None else annotations
    return pod(container("proxy"), container("main", env=list(env)), annotations=annotations, schedulerName=name)


@pytest.mark.parametrize("name", ["purser-scheduler", "of-team-a"])
def test_a_share_by_kais_annotations_becomes_limits_that_nobody_changes_any_more(name):
    obj = kais(annotations={"gpu-memory": "2000", "gpu-fraction-container-name": "main"})
    result = patched(obj, mutate(obj, scheduler_name=name, adopted=("kai-scheduler",)))
    assert result["spec"]["schedulerName"] == name
    proxy, main = result["spec"]["containers"]
    assert "resources" not in proxy
    assert main["resources"] == {"limits": {GPU: "1", MEM: "2000"}}
    assert ask(Validation(name), result)["allowed"]
    assert mutate(result, scheduler_name=name) == {"uid": "r-1", "allowed": True}
    assert (read(result).containers, read(result).systems) == (read(obj).containers, ("KAI",))


def test_kais_pods_are_pursers_only_where_an_administrator_says_so():
    response = mutate(kais())
    assert (response["allowed"], "patch" in response) == (True, False)
    assert "ask an administrator to add that name to scheduler.adoptSchedulerNames" in response["warnings"][0]
    assert GPU in str(patched(kais("purser-scheduler"), mutate(kais("purser-scheduler"))))
    assert "Purser ignores annotation gpu-fraction" in mutate(kais("default-scheduler"))["warnings"][0]


def test_validation_asks_for_what_the_webhook_would_have_written():
    said = refusal(ask(Validation(), kais("purser-scheduler")))
    assert 'lacks nvidia.com/gpu, nvidia.com/gpumem-percentage in the limits of "proxy"' in said


def test_kais_scheduler_places_whole_gpus_on_pursers_nodes_and_no_shares():
    settings = {"served": ("kai-scheduler",)}
    assert "not in serveSchedulerNames" in refusal(mutate(kais(), **settings))
    whole = pod(container(limits={GPU: "1"}), schedulerName="kai-scheduler")
    assert patched(whole, mutate(whole, **settings))["spec"]["schedulerName"] == "kai-scheduler"


@pytest.mark.parametrize("variable", ["NVIDIA_VISIBLE_DEVICES", "GPU_PORTION"])
@pytest.mark.parametrize("adopted", [(), ("kai-scheduler",)])
def test_what_kais_webhook_has_changed_is_refused_with_what_to_switch_off(adopted, variable):
    source = {"valueFrom": {"configMapKeyRef": {"name": "job-x-shared-gpu-0", "key": variable}}}
    annotations = {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "job-x-shared-gpu"}
    response = mutate(kais(annotations=annotations, env=[{"name": variable, **source}]), adopted=adopted)
    if adopted or variable == "NVIDIA_VISIBLE_DEVICES":
        assert "disable that webhook (docs/migrating/kai.md)" in refusal(response)
    else:
        assert response["allowed"]  # KAI's own


def test_the_binders_record_is_no_users_to_write():
    annotations = {"gpu-fraction": "0.5", "received-resource-type": "Fraction"}
    said = refusal(mutate(kais(annotations=annotations), adopted=("kai-scheduler",)))
    assert "only Purser's scheduler may write annotations received-resource-type" in said
