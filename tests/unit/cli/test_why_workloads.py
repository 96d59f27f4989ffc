"""`purser why deployment/NAME`: its pods, and what it says itself where it has none."""

import json
from typing import Any

import pytest
from tests.unit.cli.typed import beside, here
from tests.unit.kube.servers import api_server
from tests.unit.scheduler.explained import Raw, dump, gpu, gpus, node, pod

from purser.kube.resources import EVENTS, PODS
from purser.kube.workloads import JOBS

NODE = node("n", gpus("n", 2, 8000))
REFUSED = 'pods "web-7d4-" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4'


def owned(name: str, at: str, kind: str, owner: str, *, memory: int = 9000, **facts: Any) -> Raw:
    made = pod(name, gpu(memory), **facts)
    reference = {"kind": kind, "name": owner, "uid": "o", "controller": True}
    made["metadata"] |= {"creationTimestamp": f"2026-01-01T00:00:{at}Z", "ownerReferences": [reference]}
    return made


def of_web(name: str, at: str, **facts: Any) -> Raw:
    return owned(name, at, "ReplicaSet", "web-7d4", labels={"pod-template-hash": "7d4"}, **facts)


def workload(kind: str, name: str, *conditions: Raw, **spec: Any) -> Raw:
    meta = {"name": name, "namespace": "default"}
    return {"kind": kind, "metadata": meta, "spec": spec, "status": {"conditions": list(conditions)}}


@pytest.fixture
def asked(tmp_path):
    def ask(*objects: Raw, words: str, output: str = "table") -> tuple[int, list[str], str]:
        file = tmp_path / "cluster.json"
        file.write_bytes(dump(NODE, *objects))
        code, out, err = here("why", words, "--from", file, "-o", output)
        return code, out.splitlines(), err

    return ask


def test_of_a_deployment_s_pods_the_one_that_waits_longest_is_explained(asked):
    pods = [
        of_web("web-7d4-b", "30"),
        of_web("web-7d4-c", "20"),
        of_web("web-7d4-a", "10", memory=8000, on="n", share={"n-0": 8000}),
        owned("web-7d4x-a", "01", "ReplicaSet", "web-7d4x", labels={"pod-template-hash": "other"}),
        owned("web-0", "01", "StatefulSet", "web"),
        pod("web", gpu(9000)),
    ]
    code, lines, err = asked(*pods, words="deploy/web")
    assert (code, err) == (0, "")
    assert lines[:3] == [
        "Deployment default/web has 2 waiting pods, 1 placed pod",
        "The waiting pod that was created first:",
        "default/web-7d4-c waits: it does not fit on the only node",
    ]
    for words in ("deployment/web", "deployment.apps/web", "Deployments/web"):
        assert asked(*pods, words=words)[1] == lines
    document = json.loads("".join(asked(*pods, words="deploy/web", output="json")[1]))
    assert (document["waiting"], document["placed"], document["pod"]["pod"]) == (2, 1, "web-7d4-c")
    assert asked(*pods, words="sts/web")[1][1] == "default/web-0 waits: it does not fit on the only node"
    assert asked(*pods, words="rs/web-7d4")[1][2] == lines[2]
    assert asked(*pods, words="pod/web")[1][0] == "default/web waits: it does not fit on the only node"


def test_of_a_deployment_whose_pods_are_on_nodes_one_that_does_not_run_is_explained(asked):
    running, stuck = (of_web(f"web-7d4-{at}", at, memory=8, on="n", share={f"n-{at[0]}": 8}) for at in ("00", "10"))
    stuck["status"] = {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}
    code, lines, _ = asked(running, stuck, words="deploy/web")
    assert code == 0
    assert lines[:2] == ["Deployment default/web has 2 placed pods", "On n"]
    assert lines[2].startswith("default/web-7d4-10 is on node n, but does not run: ContainerCreating (kubelet): ")
    failed = owned("train-x", "10", "Job", "train", memory=8, on="n")
    failed["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    lines = asked(failed, words="job/train")[1]
    assert lines[:2] == [
        "Job default/train has 1 finished pod",
        "default/train-x failed on node n: Evicted (kubelet): The node was low on resource: memory.",
    ]


def test_a_daemon_set_s_pod_is_for_its_own_node_whatever_others_have(asked):
    """No change by which it would go to another."""
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}
    waits = owned("exporter-a", "10", "DaemonSet", "exporter", memory=9000, affinity={"nodeAffinity": required})
    large = node("large", gpus("large", 1, 16000))
    daemon_set = workload("DaemonSet", "exporter") | {"status": {"desiredNumberScheduled": 2}}
    code, lines, _ = asked(daemon_set, waits, large, words="ds/exporter")
    assert code == 0
    assert lines[:2] == [
        "DaemonSet default/exporter has 1 waiting pod; status.desiredNumberScheduled is 2",
        "default/exporter-a waits: it fits on none of 2 nodes",
    ]
    assert [line for line in lines if line.startswith("- ")] == [
        "- container c requests nvidia.com/gpumem: 8000 instead of 9000: the pod then fits on n"
    ]
    waits["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    lines = asked(waits, large, words="exporter-a")[1]
    assert "- the pod has no required nodeAffinity: the pod then fits on large" in lines


def test_a_deployment_whose_pods_are_refused_says_by_whom(asked):
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": REFUSED}
    healthy = {"type": "Available", "status": "True", "message": "Deployment has minimum availability."}
    code, lines, _ = asked(workload("Deployment", "web", healthy, failure, replicas=2), words="deploy/web")
    assert code == 0
    assert lines == [
        "Deployment default/web has no pods; spec.replicas is 2",
        f"Its condition ReplicaFailure reports: {REFUSED}",
    ]
    running = of_web("web-7d4-a", "10", memory=8, on="n", share={"n-0": 8})
    lines = asked(workload("Deployment", "web", failure, replicas=2), running, words="deploy/web")[1]
    assert lines[0] == "Deployment default/web has 1 placed pod; spec.replicas is 2"
    assert lines[1:] == [f"Its condition ReplicaFailure reports: {REFUSED}", "On n"]


@pytest.mark.parametrize(
    ("kind", "spec", "says"),
    [
        ("Deployment", {"replicas": 0}, "The workload needs no pods: spec.replicas is 0"),
        ("Deployment", {"paused": True}, "The workload is paused: spec.paused is true"),
        ("DaemonSet", {}, "The workload needs no pods: status.desiredNumberScheduled is 0"),
        ("Job", {"suspend": True}, "The workload is suspended: spec.suspend is true"),
        ("StatefulSet", {}, "The object does not report a reason. See kubectl describe statefulset web -n default"),
    ],
)
def test_a_workload_without_pods_says_why_or_that_it_does_not(asked, kind, spec, says):
    code, lines, _ = asked(workload(kind, "web", **spec), words=f"{kind}/web")
    assert (code, lines[1:]) == (0, [says])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("job/web", 1, "purser: namespace default has no Job web and no pods owned by it\n"),
        (
            "service/web",
            2,
            "purser: cannot explain service/web: must be a pod name, or KIND/NAME with KIND one of pod, d",
        ),
        ("deploy/", 2, "purser: cannot explain deploy/"),
        ("deploy/a/b", 2, "purser: cannot explain deploy/a/b"),
    ],
)
def test_what_is_not_there_or_has_no_pods_is_refused(asked, words, code, says):
    found, lines, err = asked(words=words)
    assert (found, lines, err[: len(says)]) == (code, [], says)


async def test_of_a_cluster_s_job_without_pods_its_last_event_says_who_refused_them(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    async with api_server(kubeconfig, tls=False) as (_, client):
        container = {"name": "c", "image": "i"}
        spec = {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
        await client.create(JOBS, {"metadata": {"name": "train", "namespace": "default"}, "spec": spec})
        for name, at, message in (("b", "10", "older"), ("a", "20", REFUSED)):
            about = {"kind": "Job", "name": "train", "namespace": "default"}
            event = {"reason": "FailedCreate", "message": message, "lastTimestamp": f"2026-01-01T00:00:{at}Z"}
            meta = {"name": name, "namespace": "default"}
            await client.create(EVENTS, {"metadata": meta, "involvedObject": about, "type": "Warning", **event})
        container["resources"] = {"limits": gpu(9)}
        await client.create(PODS, pod("p", gpu(9)) | {"metadata": {"name": "p", "namespace": "default"}})
        code, out, err = await beside("why", "job/train", f"--kubeconfig={kubeconfig}")
        assert (code, err) == (0, "")
        assert out.splitlines() == [
            "Job default/train has no pods",
            f"Its last FailedCreate event reports: {REFUSED}",
        ]
        code, _, err = await beside("why", "job/other", f"--kubeconfig={kubeconfig}")
        assert (code, err) == (1, "purser: namespace default has no Job other and no pods owned by it\n")
