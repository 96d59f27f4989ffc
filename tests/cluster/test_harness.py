"""The cluster itself: what the other tests of this folder take for granted."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from purser.lab.controlplane.commands import SERVICE_ADDRESS

from .kubernetes import RealCluster, TokenUser, busybox_pod
from .kubernetes.releases import CRI_V1


@pytest.fixture
def pod(cluster: RealCluster) -> Iterator[str]:
    cluster.create(busybox_pod("harness"))
    cluster.wait_pod("harness")
    yield "harness"
    cluster.delete("pod", "harness")


def test_the_node_is_ready(cluster: RealCluster) -> None:
    node = cluster.get("node", cluster.node_name)
    assert {each["type"]: each["status"] for each in node["status"]["conditions"]}["Ready"] == "True"


def test_kubelet_serves_plugins_and_pod_resources(cluster: RealCluster) -> None:
    assert cluster.kubelet_socket.is_socket()
    assert cluster.pod_resources_socket.is_socket()


def test_the_environment_of_a_running_pod_can_be_read(cluster: RealCluster) -> None:
    manifest = busybox_pod("env", annotations={"purser.dev/test": "yes"})
    manifest["spec"]["containers"][0]["env"] = [{"name": "ANSWER", "value": "4=2"}]
    cluster.create(manifest)
    cluster.wait_pod("env")
    assert cluster.container_env("default", "env")["ANSWER"] == "4=2"
    assert "ANSWER=4=2" in cluster.kubectl("exec", "env", "--", "env").splitlines()
    cluster.delete("pod", "env")


def test_a_pod_in_the_host_network_runs(cluster: RealCluster) -> None:
    cluster.create(busybox_pod("host", hostNetwork=True))
    assert cluster.wait_pod("host")["status"]["podIP"] == cluster.get("pod", "host")["status"]["hostIP"]
    cluster.delete("pod", "host")


def test_a_service_is_reached_from_pods_and_from_this_machine(cluster: RealCluster) -> None:
    if cluster.version < CRI_V1:
        pytest.skip("no kube-proxy is built of this release")
    cluster.start_services()
    command = ("sh", "-c", "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null")
    cluster.create(busybox_pod("client", command=command))
    cluster.wait_pod("client", phase="Succeeded")
    with socket.create_connection((SERVICE_ADDRESS, 443), timeout=10):
        pass
    cluster.delete("pod", "client")


def test_a_pod_that_ends_succeeds(cluster: RealCluster) -> None:
    cluster.create(busybox_pod("short", command=("true",)))
    cluster.wait_pod("short", phase="Succeeded")
    cluster.delete("pod", "short")


def test_waiting_for_a_pod_that_failed_ends_at_once_and_says_why(cluster: RealCluster) -> None:
    cluster.create(busybox_pod("broken", command=("false",)))
    # It may be seen running before it fails; it never succeeds.
    with pytest.raises(TimeoutError, match="is Failed, not Succeeded"):
        cluster.wait_pod("broken", phase="Succeeded")
    cluster.delete("pod", "broken")


def test_a_kubelet_restart_leaves_a_running_pod_untouched(cluster: RealCluster, pod: str) -> None:
    before = cluster.container_pid("default", pod)
    cluster.restart_kubelet()
    assert cluster.container_pid("default", pod) == before
    assert cluster.get("pod", pod)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_killed_kubelet_comes_back_and_starts_pods(cluster: RealCluster, pod: str) -> None:
    before = cluster.container_pid("default", pod)
    cluster.kill_kubelet()
    cluster.start_kubelet()
    cluster.create(busybox_pod("after"))
    cluster.wait_pod("after")
    assert cluster.container_pid("default", pod) == before
    cluster.delete("pod", "after")


def test_the_scheduler_can_be_given_a_second_profile(cluster: RealCluster) -> None:
    profiles = [{"schedulerName": "default-scheduler"}, {"schedulerName": "second"}]
    cluster.restart_scheduler({"profiles": profiles, "percentageOfNodesToScore": 100})
    try:
        cluster.create(busybox_pod("second", schedulerName="second"))
        cluster.wait_pod("second")
    finally:
        cluster.delete("pod", "second")
        cluster.restart_scheduler({})


def test_static_cpus_can_be_asked_of_kubelet(cluster: RealCluster) -> None:
    cluster.restart_kubelet({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
    try:
        cluster.create(busybox_pod("pinned", resources={"cpu": "1", "memory": "32Mi"}))
        cluster.wait_pod("pinned")
        status = Path(f"/proc/{cluster.container_pid('default', 'pinned')}/status").read_text()
        assert "Cpus_allowed_list:\t1\n" in status
    finally:
        cluster.delete("pod", "pinned")
        cluster.restart_kubelet({})


def test_a_service_account_may_do_only_what_rbac_grants(cluster: RealCluster) -> None:
    cluster.create_namespace("rbac")
    kubeconfig = cluster.service_account_kubeconfig("rbac", "default")
    with pytest.raises(RuntimeError, match="Forbidden"):
        cluster.kubectl("get", "nodes", kubeconfig=kubeconfig)
    cluster.kubectl("create", "clusterrole", "look", "--verb=list", "--resource=nodes")
    cluster.kubectl("create", "clusterrolebinding", "look", "--clusterrole=look", "--serviceaccount=rbac:default")
    cluster.wait_until("the role is in force", lambda: _may_list_nodes(cluster, kubeconfig))
    cluster.delete("clusterrolebinding/look", "clusterrole/look", "namespace/rbac")


def _may_list_nodes(cluster: RealCluster, kubeconfig: Path) -> bool:
    try:
        return cluster.node_name in cluster.kubectl("get", "nodes", kubeconfig=kubeconfig)
    except RuntimeError:
        return False


def test_an_unknown_token_is_refused(cluster: RealCluster) -> None:
    kubeconfig = cluster.kubeconfig_for(TokenUser("nobody-knows-me", "stranger"))
    with pytest.raises(RuntimeError, match=r"Unauthorized|logged in"):
        cluster.kubectl("get", "nodes", kubeconfig=kubeconfig)


def test_a_node_that_exists_in_the_api_only_becomes_and_stays_schedulable(cluster: RealCluster) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "hollow"}})
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Test","message":"Test"}]}}'
    cluster.kubectl("patch", "node", "hollow", "--subresource=status", "--type=merge", f"--patch={ready}")
    cluster.wait_until("it has no taint", lambda: not cluster.get("node", "hollow")["spec"].get("taints"))
    cluster.delete("node", "hollow")


def test_the_control_plane_survives_a_restart_of_each_process(cluster: RealCluster, pod: str) -> None:
    before = cluster.container_pid("default", pod)
    # containerd first: kubelet needs some seconds to notice that it is back, which pass meanwhile.
    for name in ("containerd", "etcd", "kube-apiserver", "kube-controller-manager"):
        cluster.restart(name)
    cluster.create(busybox_pod("restarted"))
    cluster.wait_pod("restarted")
    assert cluster.container_pid("default", pod) == before
    cluster.delete("pod", "restarted")
