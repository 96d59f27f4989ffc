"""`purser why` of pods that a real kubelet holds up or has failed: the reason is the one that kubelet gives."""

import re
import subprocess
import time
from typing import Any

import pytest

from .kubernetes import RealCluster, busybox_pod
from .purser_processes import PURSER

NAMESPACE = "held-up"


def _pods(node: str) -> dict[str, tuple[dict[str, Any], str]]:
    """By name: what differs from a pod that runs, and what is said of it."""
    sees = {"name": "main", "image": "nobody/has-this:1", "imagePullPolicy": "Never"}
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "missing", "key": "a"}}}]
    volume = {"name": "v", "secret": {"secretName": "missing"}}
    starts = {"name": "first", "image": "nobody/has-this:1", "imagePullPolicy": "Never"}
    on = f"is on node {node}, but does not run"
    failed = f"failed on node {node}"
    return {
        "image": ({"containers": [sees]}, rf'{on}: ErrImageNeverPull \(container main\): .*"nobody/has-this:1".*'),
        "init": ({"initContainers": [starts]}, rf"{on}: ErrImageNeverPull \(container first\): .*"),
        "config": (
            {"env": env},
            rf'{on}: CreateContainerConfigError \(container main\): configmap "missing" not found',
        ),
        "mount": (
            {"volumes": [volume]},
            rf'{on}: FailedMount \(kubelet\): MountVolume.SetUp failed .*"missing" not found',
        ),
        "crash": (
            {"command": ["sh", "-c", "exit 3"], "restartPolicy": "Always"},
            rf"{on}: (CrashLoopBackOff|Error) \(container main\): .*exit code 3\n",
        ),
        "exit": ({"command": ["sh", "-c", "exit 3"]}, rf"{failed}: Error \(container main\): exit code 3\n"),
        "deadline": ({"activeDeadlineSeconds": 1}, rf"{failed}: DeadlineExceeded \(kubelet\): .*deadline"),
        "cpus": ({"resources": {"cpu": "1k"}}, rf"{failed}: OutOfcpu \(kubelet\): .*"),
        "selector": ({"nodeSelector": {"no": "node"}}, rf"{failed}: NodeAffinity \(kubelet\): .*"),
    }


def answer_for(cluster: RealCluster, namespace: str, name: str) -> str:
    """What `purser why` prints of a pod."""
    command = [str(PURSER), "why", name, "-n", namespace, "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout or done.stderr


@pytest.mark.timeout(300)
def test_a_pod_that_kubelet_holds_up_or_has_failed_is_explained_in_its_words(real_cluster: RealCluster) -> None:
    cluster, node = real_cluster, real_cluster.node_name
    cluster.create_namespace(NAMESPACE)
    cases = _pods(node)
    try:
        for name, (facts, _) in cases.items():
            pod = busybox_pod(name, namespace=NAMESPACE, nodeName=node, **_of_pod(facts))
            pod["spec"]["containers"][0] |= _of_container(facts)
            cluster.create(pod)
        deadline = time.monotonic() + 120
        while missing := {
            name: said
            for name in cases
            if not _matches(name, cases[name][1], said := answer_for(cluster, NAMESPACE, name))
        }:
            assert time.monotonic() < deadline, missing
    finally:
        cluster.delete("namespace", NAMESPACE)


def _matches(name: str, wanted: str, said: str) -> bool:
    return re.match(rf"{NAMESPACE}/{name} {wanted}", said) is not None


_CONTAINER = ("env", "command", "resources")


def _of_pod(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key not in _CONTAINER}


def _of_container(facts: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in facts.items() if key in _CONTAINER}
    if "resources" in found:
        found["resources"] = {"limits": found["resources"]}
    if "volumes" in facts:
        found["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return found
