"""JobSet's controllers on the real cluster: the pods of its jobs get shares from Purser."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from purser.core.names import GRANT_ANNOTATION, SCHEDULER_NAME
from purser.lab.controlplane.process import Process
from tests.scenarios.actions import cards
from tests.scenarios.pods import share
from tests.tiers import TIER, Tier

from .kubernetes import RealCluster, busybox_pod
from .neighbours import ACCOUNTS, manifests, program, wait_established
from .purser_processes import PURSER, Purser
from .test_several_nodes import given

pytestmark = pytest.mark.skipif(TIER is not Tier.SOAK, reason="more time than the gate has: PURSER_TIER=soak")

JOBSET_NAMESPACE = "jobset-system"
NAMESPACE = "training"
MEMORY = {"driver": 2000, "workers": 5000}
"""MiB of a card by replicated job."""
REPLICAS = {"driver": 1, "workers": 2}
PODS_EACH = 2


@pytest.fixture(scope="module")
def jobset(real_cluster: RealCluster) -> Iterator[RealCluster]:
    """Its controllers with the account that its manifests give them, without its webhooks."""
    cluster = real_cluster
    path = program(cluster.binaries, "jobset")
    kinds = ("Namespace", "CustomResourceDefinition", *ACCOUNTS)
    installed = manifests(cluster, "jobset", "config/default", kinds)
    for each in installed:
        if each["kind"] == "CustomResourceDefinition":
            # It has one version: nothing asks the webhook to convert.
            each["spec"].pop("conversion", None)
    cluster.create(*installed)
    wait_established(cluster, "jobsets.jobset.x-k8s.io")
    cluster.create_namespace(NAMESPACE)
    account = cluster.service_account_kubeconfig(JOBSET_NAMESPACE, "jobset-controller-manager")
    process = Process("jobset", [path], cluster.logs, env={"KUBECONFIG": str(account)})
    process.start()
    yield cluster
    cluster.delete("jobsets", "--all", f"-n{NAMESPACE}")
    process.stop()
    cluster.delete("namespace", NAMESPACE)
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": installed})
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=everything)


def replicated_job(name: str) -> dict[str, Any]:
    """Jobs of two pods each; what JobSet's webhook would write into them is written here."""
    pod = busybox_pod(name, resources=share(MEMORY[name], 10))
    template = {"metadata": {"labels": {"part": name}}, "spec": pod["spec"]}
    job = {
        "completionMode": "Indexed",
        "parallelism": PODS_EACH,
        "completions": PODS_EACH,
        "backoffLimit": 0,
        "template": template,
    }
    return {"name": name, "replicas": REPLICAS[name], "template": {"spec": job}}


def check_books(purser: Purser, pods: list[Any]) -> None:
    """The scheduler's, the agent's and kubelet's: each container has the cards of its grant, nobody else has any."""
    granted = {pod["metadata"]["name"]: set(cards(pod)) for pod in pods}
    assert given(purser.cluster.node) == granted
    for name, found in granted.items():
        assert purser.cluster.container_env(NAMESPACE, name)["NVIDIA_VISIBLE_DEVICES"] == ",".join(found)
    argv = [str(PURSER), "get", "grants", "--check", f"--kubeconfig={purser.cluster.kubeconfig}"]
    checked = subprocess.run(argv, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_pods_of_a_job_set_get_shares_and_give_them_back(jobset: RealCluster, purser: Purser) -> None:
    jobset.create(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "train", "namespace": NAMESPACE},
            "spec": {
                "replicatedJobs": [replicated_job(name) for name in MEMORY],
                "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                "successPolicy": {"operator": "All"},
                "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            },
        }
    )
    expected = sum(REPLICAS.values()) * PODS_EACH

    def running() -> list[Any]:
        found = jobset.get("pods", namespace=NAMESPACE)["items"]
        return list(found) if [each["status"].get("phase") for each in found] == ["Running"] * expected else []

    pods = jobset.wait_until("all pods of the job set run", running, 120)
    for pod in pods:
        assert pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == "train"
        assert pod["spec"]["schedulerName"] == SCHEDULER_NAME
        assert GRANT_ANNOTATION in pod["metadata"]["annotations"]
        environment = jobset.container_env(NAMESPACE, pod["metadata"]["name"])
        limit = MEMORY[pod["metadata"]["labels"]["part"]]
        assert environment["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{limit}m"
    check_books(purser, pods)
    jobset.delete("jobset", "train", f"-n{NAMESPACE}")
    jobset.wait_until("its pods have left", lambda: not jobset.get("pods", namespace=NAMESPACE)["items"])
    jobset.wait_until("kubelet has their cards again", lambda: not given(purser.cluster.node))
