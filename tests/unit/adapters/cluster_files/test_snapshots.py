"""A cluster in a file: a decision on it is the same, and nothing is in it that nobody needs.

The clusters are drawn at random. In all their names is a word that is nowhere else, so that it can be looked for.
"""

import gzip
import json
import random
import re
from pathlib import Path

import msgspec
import pytest
from tests import tiers
from tests.unit.scheduler.explained import Raw, cluster, gpu, gpus, node, pod, quota
from tests.unit.scheduler.explaining.drawn import drawn

from purser.adapters.cluster_files import anonymize_objects, encode_objects, trim_objects
from purser.adapters.cluster_files.trimming import NAMESPACE_ANNOTATIONS, NODE_ANNOTATIONS, POD_ANNOTATIONS
from purser.adapters.objects import DumpError, objects_of_dump
from purser.core.decoding import UnreadableError
from purser.core.dialects.selectors import USE_GPUTYPE
from purser.core.names import CORDONED_GPUS_ANNOTATION
from purser.scheduler.explaining import Explainer
from purser.simulator.cluster import workload_of

CLUSTERS = (36, 400, 10_000)[tiers.TIER]
PARTS = 10 if tiers.IS_LONG else 3
REFERENCE = Path(__file__).parents[4] / "docs/annotations.md"
WORD, SECRET = "zebra", "s3cr3t"
_NAMES = (
    (r"\bn([0-2])\b", rf"{WORD}n\1"),
    (r"\b([zr])([1-3])\b", rf"{WORD}\1\2"),
    (r'"(zone|rack|red|blue|app)"', rf'"{WORD}-\1"'),
    (r'(\\?"namespace\\?": ?\\?")default', rf"\1{WORD}-team"),
    (r'("(?:name|uid|container)\\?": ?\\?")(p|uid-p|c|d|i|q|r|o)(\\?")', rf"\1{WORD}-\2\3"),
    (r'(\\"container\\": ?\\")(c)(\\")', rf"\1{WORD}-\2\3"),
)


def named(objects: list[Raw]) -> list[Raw]:
    """The same under names that can be looked for."""
    text = json.dumps(objects)
    for pattern, new in _NAMES:
        text = re.sub(pattern, new, text)
    found: list[Raw] = json.loads(text)
    return found


def littered(objects: list[Raw]) -> list[Raw]:
    """With what objects of a real cluster have besides."""
    for each in objects:
        meta = each["metadata"]
        meta.setdefault("annotations", {})["kubectl.kubernetes.io/last-applied-configuration"] = SECRET
        meta |= {"managedFields": [{"manager": SECRET}], "resourceVersion": "7"}
        if each["kind"] == "Pod":
            each["spec"]["serviceAccountName"] = SECRET
            for container in each["spec"]["containers"]:
                container |= {"image": SECRET, "args": [SECRET]}
                container["env"] = [{"name": "TOKEN", "value": SECRET}, {"name": "LD_PRELOAD", "value": SECRET}]
            each["status"]["containerStatuses"] = [{"imageID": SECRET}]
        if each["kind"] == "Node":
            each["status"] |= {
                "addresses": [{"type": "InternalIP", "address": SECRET}],
                "images": [{"names": [SECRET]}],
            }
            each["status"]["conditions"] = [{"type": "Ready", "status": "True", "message": SECRET}]
    return [*objects, {"kind": "Secret", "metadata": {"name": SECRET}, "data": {"a": SECRET}}]


def answers(objects) -> dict[str, Raw]:
    """What is said of every pod."""
    explainer = Explainer(objects)
    pods = sorted(objects.pods, key=lambda each: each.metadata.name)
    found = (explainer.explain(each.metadata.namespace, each.metadata.name) for each in pods)
    return {each.pod: json.loads(msgspec.json.encode(each)) for each in found}


def with_names_back(found, originals: dict[str, str]):
    """Pseudonyms by what they stand for."""
    longest = sorted(originals, key=lambda each: -len(each))
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w])")
    return json.loads(pattern.sub(lambda each: json.dumps(originals[each[0]])[1:-1], json.dumps(found)))


@pytest.mark.parametrize("part", range(PARTS))
def test_a_snapshot_gives_the_answers_that_the_cluster_gives(part):
    chance = random.Random(f"snapshots {part}")
    for _ in range(CLUSTERS // PARTS):
        objects = littered(named(drawn(chance)))
        whole = cluster(*objects)
        expected = answers(whole)
        text = encode_objects(trim_objects(whole))
        assert SECRET.encode() not in text and WORD.encode() in text
        assert answers(objects_of_dump(text)) == expected
        hidden, given = anonymize_objects(trim_objects(whole))
        file = encode_objects(hidden)
        assert WORD.encode() not in file, re.findall(rf".{{80}}{WORD}.{{80}}", file.decode())[:3]
        found = answers(objects_of_dump(file))
        assert with_names_back(found, given.originals()) == expected


def test_every_annotation_that_the_scheduler_reads_is_kept():
    """The reference names them: what is new there is to be allowed here, or to be left out for a reason."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| [^|]+ \| ([^|]+) \| (.*) \|$", REFERENCE.read_text(), re.MULTILINE)
    of = {"Pod": set(), "Node": set(), "Namespace": set()}
    for name, on, readers, what in rows:
        for kind in of.keys() & set(on.split(", ")):
            if "scheduler" in readers.split(", ") and not what.startswith("Label"):
                of[kind].add(name)
    assert of["Pod"] - POD_ANNOTATIONS == {"purser.dev/grant-signature"}
    assert of["Namespace"] - NAMESPACE_ANNOTATIONS == set()
    locks = {"gpu", "hamivgpu"}
    assert {name for name in of["Node"] if "/" not in name or "purser.dev" in name} - NODE_ANNOTATIONS == locks
    assert CORDONED_GPUS_ANNOTATION in of["Node"]


def test_a_snapshot_is_simulated_as_the_cluster_is():
    objects = littered(named([node("n", gpus("n", 2)), pod("a", gpu(9), on="n", share={"n-0": 9}), pod("p", gpu(9))]))
    whole = cluster(*objects)
    expected = workload_of(whole.nodes, whole.pods)
    read = objects_of_dump(encode_objects(trim_objects(whole)))
    assert workload_of(read.nodes, read.pods) == expected
    hidden, given = anonymize_objects(trim_objects(whole))
    found = json.loads(msgspec.json.encode(workload_of(hidden.nodes, hidden.pods).pods))
    assert with_names_back(found, given.originals()) == json.loads(msgspec.json.encode(expected.pods))


def test_known_words_stay_and_the_file_is_the_same_each_time():
    made = node("n", gpus("n", 1), labels={"nvidia.com/gpu.product": "Tesla-T4", "kubernetes.io/hostname": "n"})
    objects = cluster(made, pod("p", gpu(9), nodeSelector={"kubernetes.io/hostname": "n"}))
    hidden = encode_objects(anonymize_objects(trim_objects(objects))[0])
    assert hidden == encode_objects(anonymize_objects(trim_objects(objects))[0])
    for word in ("nvidia.com/gpumem", '"nvidia.com/gpu.product":"Tesla-T4"', '"kubernetes.io/hostname":"node-1"'):
        assert word in hidden.decode(), word
    small = encode_objects(trim_objects(objects), compressed=True)
    assert gzip.decompress(small) == encode_objects(trim_objects(objects))
    assert objects_of_dump(small) == objects_of_dump(gzip.decompress(small)) == trim_objects(objects)
    for damaged in (small[:-9], small[:20] + b"xx" + small[22:], b"\x1f\x8b"):
        with pytest.raises((DumpError, UnreadableError)):
            objects_of_dump(damaged)


def test_the_number_of_gpus_in_a_pods_label_stays():
    """gpushare's memory is divided among as many GPUs as the label says."""
    asked = {"aliyun.com/gpu-mem": "16"}
    objects = cluster(node("n", gpus("n", 2, 9000)), pod("p", asked, labels={"aliyun.com/gpu-count": "2"}))
    assert Explainer(objects).explain("default", "p").fits == ("n",)
    hidden = objects_of_dump(encode_objects(anonymize_objects(trim_objects(objects))[0]))
    found = Explainer(hidden).explain(hidden.pods[0].metadata.namespace, hidden.pods[0].metadata.name)
    assert found.fits == ("node-1",)


def test_names_that_people_give_where_a_word_is_expected_are_not_in_an_anonymized_file():
    made = pod(
        "p",
        gpu(9),
        labels={f"volcano.sh/{each}": WORD for each in ("job-name", "job-namespace", "queue-name")},
        annotations={
            "hami.io/vgpu-node": f"{WORD}-gone",
            "hami.io/vgpu-devices-allocated": f"GPU-{WORD},NVIDIA,9,0:;",
            "volcano.sh/vgpu-node": f"{WORD}-gone-too",
        },
    )
    made["metadata"]["ownerReferences"] = [{"kind": f"{WORD}Job", "name": "o", "uid": "u", "controller": True}]
    made["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": f"GPU-{WORD}"}]
    of_quota = quota(gpumem="9")
    of_quota["spec"]["hard"] |= {
        f"count/jobs.{WORD}.io": "1",
        f"{WORD}.storageclass.storage.k8s.io/requests.storage": "1Gi",
    }
    where = node("n", gpus("n", 1), labels={f"node-role.kubernetes.io/{WORD}": ""})
    where["spec"]["taints"] = [
        {"key": f"node-role.kubernetes.io/{WORD}", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "value": WORD, "effect": "NoSchedule"},
    ]
    made["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "value": WORD}]
    text = encode_objects(anonymize_objects(trim_objects(cluster(where, made, of_quota)))[0]).decode()
    assert not re.findall(rf".{{40}}{WORD}", text)
    assert "limits.nvidia.com/gpumem" in text


def test_a_node_that_is_named_as_a_model_does_not_rename_the_model():
    objects = cluster(node("A100", gpus("A100", 1, model="A100")), pod("p", gpu(9), annotations={USE_GPUTYPE: "A100"}))
    hidden = objects_of_dump(encode_objects(anonymize_objects(trim_objects(objects))[0]))
    found = Explainer(hidden).explain(hidden.pods[0].metadata.namespace, hidden.pods[0].metadata.name)
    assert found.fits == ("node-1",)


def test_what_only_annotations_name_is_hidden_too():
    """GPUs that no node has, a namespace and a pod that no longer exists, a kubelet's holders."""
    annotations = {CORDONED_GPUS_ANNOTATION: f"GPU-{WORD}", "nvidia.com/use-gpuuuid": f"GPU-{WORD},GPU-{WORD}2"}
    made = node("n", gpus("n", 1), annotations=annotations)
    held = pod("q", gpu(9), on="n", share={f"GPU-{WORD}9": 9})
    grant = "purser.dev/grant"
    held["metadata"]["annotations"][grant] = held["metadata"]["annotations"][grant].replace('"q"', f'"{WORD}"')
    waiting = pod("p", gpu(9), annotations=annotations)
    text = encode_objects(anonymize_objects(trim_objects(cluster(made, held, waiting)))[0]).decode()
    assert WORD not in text
    assert "GPU-00000001-0000-0000-0000-000000000000,GPU-00000002" in text


def test_that_there_are_no_claims_is_said():
    there = cluster(node("n"), pod("p", {}))
    assert objects_of_dump(encode_objects(trim_objects(there))).claims is None
    read = msgspec.structs.replace(there, claims=())
    assert objects_of_dump(encode_objects(trim_objects(read))).claims == ()


def test_a_deployment_s_pods_stay_its_own():
    def workload(kind, name, **meta):
        return {"kind": kind, "metadata": {"name": name, "namespace": "default", **meta}, "spec": {"replicas": 0}}

    owner = {"kind": "ReplicaSet", "name": f"{WORD}-7d4", "uid": "o", "controller": True}
    made = pod("p", gpu(9), labels={"pod-template-hash": "7d4"})
    made["metadata"]["ownerReferences"] = [owner]
    replica_set = workload("ReplicaSet", f"{WORD}-7d4", labels={"pod-template-hash": "7d4"})
    objects = cluster(node("n", gpus("n", 1)), made, replica_set, workload("Deployment", WORD), quota(gpumem="5"))
    hidden, given = anonymize_objects(trim_objects(objects))
    read = objects_of_dump(encode_objects(hidden))
    deployment = read.workloads["Deployment"][0].metadata
    assert given.originals()[deployment.name] == WORD
    found = Explainer(read).explain_workload("Deployment", deployment.namespace, deployment.name)
    assert (found.waiting, found.wanted) == (1, 0)
    assert WORD not in encode_objects(hidden).decode()
