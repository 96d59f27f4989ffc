"""`purser why` of pods with ResourceClaims: what keeps them is what the real kube-scheduler says."""

import json
import re
import time
from typing import Any

import pytest

from .kubernetes import RealCluster, busybox_pod
from .test_why_on_a_node import answer_for

NAMESPACE = "claims"
API = {"apiVersion": "resource.k8s.io/v1"}
ON_NO_NODE = {"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}


def _claim(name: str, device_class: str) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": device_class}}
    meta = {"name": name, "namespace": NAMESPACE}
    return {**API, "kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {"requests": [request]}}}


def _pod(claim: str) -> Any:
    return busybox_pod(claim, namespace=NAMESPACE, resourceClaims=[{"name": "c", "resourceClaimName": claim}])


CASES = {
    "absent": ("^$", "waits: ResourceClaim absent does not exist"),
    "classless": (
        "device class nobody does not exist",
        "waits: DeviceClass nobody of ResourceClaim classless does not exist",
    ),
    "elsewhere": ("resourceclaim not available on the node", "waits: it does not fit on the only node"),
    "open": ("cannot allocate all claims", "waits, and fits on 1 of 1 node now .*"),
}
"""By the claim of the pod: kube-scheduler's words, and ours. It says nothing of a pod that it does not try."""


@pytest.mark.timeout(200)
def test_a_pod_that_waits_for_its_claims_is_explained_as_kube_scheduler_does(real_cluster: RealCluster) -> None:
    cluster = real_cluster
    if cluster.version < (1, 34):
        pytest.skip("resource.k8s.io/v1 is served from Kubernetes 1.34 on")
    cluster.create_namespace(NAMESPACE)
    device_class = {**API, "kind": "DeviceClass", "metadata": {"name": "nics"}, "spec": {}}
    try:
        cluster.create(device_class)
        cluster.create(_claim("classless", "nobody"))
        cluster.create(_claim("elsewhere", "nics"))
        cluster.create(_claim("open", "nics"))
        cluster.create(_pod("open"))
        holder = {"resource": "pods", "name": "open", "uid": cluster.get("pod", "open", NAMESPACE)["metadata"]["uid"]}
        result = {"request": "r", "driver": "example.com", "pool": "p", "device": "d"}
        allocation = {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [ON_NO_NODE]}]},
        }
        # Without a pod that it is reserved for, kube-scheduler would take the devices back.
        patch = json.dumps({"status": {"allocation": allocation, "reservedFor": [holder]}})
        where = ("elsewhere", "-n", NAMESPACE, "--subresource=status")
        cluster.kubectl("patch", "resourceclaim", *where, "--type=merge", "-p", patch)
        for name in CASES.keys() - {"open"}:
            cluster.create(_pod(name))
        deadline = time.monotonic() + 60
        while missing := {name: both for name in CASES if not _agree(name, both := _both(cluster, name))}:
            assert time.monotonic() < deadline, missing
    finally:
        cluster.delete("namespace", NAMESPACE)
        cluster.delete("deviceclass", "nics")


def _both(cluster: RealCluster, name: str) -> tuple[str, str]:
    pod = cluster.get("pod", name, NAMESPACE)
    scheduled = [each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
    return "".join(each.get("message", "") for each in scheduled), answer_for(cluster, NAMESPACE, name)


def _agree(name: str, both: tuple[str, str]) -> bool:
    theirs, ours = CASES[name]
    return re.search(theirs, both[0]) is not None and re.search(ours, both[1]) is not None
