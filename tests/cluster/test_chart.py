"""The chart on a real cluster: Helm installs it, pods of the image do the work, and nothing is left of it."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from purser.core.names import HEALTH_CONDITION as UNHEALTHY
from purser.core.node.amounts import AMOUNTS
from purser.lab.driver.parts import ProcessLoad

from .chart_release import GPU, MEMORY, NAMESPACE, Release, Standing, gpu_pod
from .documented import INSTALL, PUBLISH, follow
from .former_release import TAG, former_release
from .helm import CHART, registry
from .kubernetes import RealCluster, busybox_pod
from .kubernetes.releases import CRI_V1
from .purser_processes import PURSER

PODS = "gpu-pods"
UPGRADE_FROM = os.environ.get("PURSER_UPGRADE_FROM", "")
"""A commit whose agents leave without a word; 00b6d53 is one of the last."""


@pytest.fixture(scope="module")
def release(
    real_cluster: RealCluster, purser_archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    if real_cluster.version < CRI_V1:
        pytest.skip("neither kube-proxy nor CDI beside this release")
    folder = tmp_path_factory.mktemp("release")
    with registry(real_cluster.binaries, folder) as address:
        release = Release(real_cluster, purser_archive, folder, address)
        real_cluster.create_namespace(PODS)
        follow(release, "Pod Security")
        follow(release, PUBLISH)
        try:
            yield release
        finally:
            real_cluster.delete("namespace", NAMESPACE, PODS)


@pytest.fixture(scope="module")
def before(release: Release) -> Standing:
    return release.standing()


@pytest.fixture(scope="module")
def installed(release: Release, before: Standing) -> Iterator[Release]:
    follow(release, INSTALL, *release.values, release.with_cdi, "--wait", "--timeout=3m")
    try:
        yield release
    finally:
        release.cluster.delete("pods", "--all", f"-n{PODS}")
        release.helm("uninstall", "purser", "--ignore-not-found", "--wait")


@pytest.mark.parametrize(
    ("name", "limits", "cards"), [("share", {GPU: 1, MEMORY: 4000}, 1), ("whole", {GPU: 2}, 2)], ids=["share", "whole"]
)
def test_a_pod_runs_with_its_environment_and_its_devices(
    installed: Release, name: str, limits: dict[str, int], cards: int
) -> None:
    cluster = installed.cluster
    cluster.create(gpu_pod(name, PODS, limits))
    pod = cluster.wait_pod(name, PODS)
    assert pod["spec"]["schedulerName"] == "purser-scheduler", "the API server did not reach the webhook's Service"
    granted = json.loads(pod["metadata"]["annotations"]["purser.dev/grant"])
    uuids = [each["uuid"] for part in granted["containers"] for each in part["shares"]]
    places = sorted(installed.driver.uuids.index(each) for each in uuids)
    listed = cluster.kubectl("exec", f"-n{PODS}", name, "--", "ls", "/dev").split()
    assert sorted(each for each in listed if each.startswith("nvidia")) == [
        *(f"nvidia{n}" for n in places),
        "nvidiactl",
    ]
    assert len(places) == cards
    environment = cluster.container_env(PODS, name)
    assert environment.get("CUDA_DEVICE_MEMORY_LIMIT_0") == ("4000m" if MEMORY in limits else None)
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"  # of the agent's CDI specification: nothing is added twice


def test_every_book_agrees(installed: Release) -> None:
    assert len(installed.books()) == len(installed.cluster.get("pods", namespace=PODS)["items"])


@pytest.fixture(scope="module")
def holder(installed: Release) -> str:
    """Name of a pod that shares a card."""
    installed.cluster.create(gpu_pod("holder", PODS, {GPU: 1, MEMORY: 4000}))
    installed.cluster.wait_pod("holder", PODS)
    return "holder"


def card_of(cluster: RealCluster, pod: str) -> str:
    """The only one that it was granted."""
    granted = json.loads(cluster.get("pod", pod, PODS)["metadata"]["annotations"]["purser.dev/grant"])
    [uuid] = {each["uuid"] for part in granted["containers"] for each in part["shares"]}
    return str(uuid)


def test_check_in_the_agents_pod_says_what_its_node_has(installed: Release) -> None:
    """This machine has neither the kernel's module nor device files nor the container toolkit: it says so, and no more
    than that. The library and kubelet's sockets are there."""
    found = installed.check_node("--host-root=/host", f"--driver-root=/host{installed.driver_root}")
    failed = {name for name, each in found.items() if each["state"] == "failed"}
    assert failed == {"kernel module", "device files", "container toolkit"}
    assert sum(name.startswith("GPU ") for name in found) == len(installed.driver.uuids)
    assert found["processes"]["found"] == "in the host's PID namespace"
    assert {found[name]["state"] for name in ("driver library", "kubelet", "PodResources")} == {"ok"}


def test_memory_of_a_process_in_another_pod_counts_for_that_pod(installed: Release, holder: str) -> None:
    """The agent knows it by its pid on the host, and by the cgroup that kubelet and containerd put it in."""
    cluster = installed.cluster
    uuid, pid = card_of(cluster, holder), cluster.container_pid(PODS, holder)
    installed.driver.add_process(uuid, pid, ProcessLoad(memory_mib=700))
    try:
        told = cluster.wait_until(
            "its memory is measured",
            lambda: [
                each for each in installed.agent_metrics("purser_container_memory_used_bytes") if each["pod"] == holder
            ],
        )
    finally:
        installed.driver.remove_process(uuid, pid)
    [sample] = told
    found = {key: sample[key] for key in ("namespace", "container", "uuid", "value")}
    assert found == {"namespace": PODS, "container": "main", "uuid": uuid, "value": 700 * 2**20}


def test_new_pods_keep_off_cordoned_gpus(installed: Release, holder: str) -> None:
    """By the account of an operator of the cluster, who may read and patch nodes and nothing else."""
    cluster = installed.cluster
    taken = card_of(cluster, holder)
    others = [uuid for uuid in installed.driver.uuids if uuid != taken]

    def lands_on(name: str) -> str:
        cluster.create(gpu_pod(name, PODS, {GPU: 1, MEMORY: 1000}))
        cluster.wait_pod(name, PODS)
        return card_of(cluster, name)

    def purser(*words: str) -> None:
        subprocess.run([str(PURSER), *words], env={**os.environ, "KUBECONFIG": str(account)}, check=True)

    cluster.kubectl("create", "serviceaccount", "hands", f"-n{PODS}")
    cluster.kubectl("create", "clusterrole", "hands", "--verb=get,patch", "--resource=nodes")
    cluster.kubectl("create", "clusterrolebinding", "hands", "--clusterrole=hands", f"--serviceaccount={PODS}:hands")
    account = cluster.service_account_kubeconfig(PODS, "hands")
    try:
        purser("cordon", "gpu", cluster.node_name, *others)
        assert lands_on("where-it-is-open") == taken
        purser("uncordon", "gpu", cluster.node_name, *others)
        purser("cordon", "gpu", cluster.node_name, taken)
        assert lands_on("elsewhere") != taken
    finally:
        purser("uncordon", "gpu", cluster.node_name, *installed.driver.uuids)
        cluster.delete("clusterrole,clusterrolebinding", "hands")
        cluster.delete("serviceaccount", "hands", f"-n{PODS}")


def test_an_agents_token_evicts_pods_of_its_own_node_alone(installed: Release) -> None:
    """With a right to evict that it has only with `agent.evictOverUsers`; asked as dry run: nothing is evicted."""
    cluster = installed.cluster
    cluster.kubectl("create", "clusterrole", "evicting", "--verb=create", "--resource=pods/eviction")
    account = f"--serviceaccount={NAMESPACE}:purser-agent"
    cluster.kubectl("create", "clusterrolebinding", "evicting", "--clusterrole=evicting", account)
    try:
        [agent] = installed.pods("agent")
        token = cluster.service_account_kubeconfig(NAMESPACE, "purser-agent", pod=agent["metadata"]["name"])
        # The second one is known last: once its eviction is allowed, the webhook knows both.
        for name, node in (("there", "elsewhere"), ("here", cluster.node_name)):
            cluster.create(busybox_pod(name, namespace=PODS, nodeName=node))

        def evict(name: str, uid: str = "") -> str:
            pod = cluster.get("pod", name, PODS)["metadata"]
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": PODS},
                "deleteOptions": {"dryRun": ["All"], "preconditions": {"uid": uid or pod["uid"]}},
            }
            path = f"/api/v1/namespaces/{PODS}/pods/{name}/eviction"
            try:
                cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body), kubeconfig=token)
            except RuntimeError as error:
                return str(error)
            return ""

        assert cluster.wait_until("it may", lambda: not evict("here"))
        for refused in (evict("there"), evict("here", "of-another-pod")):
            assert "may evict only pods on its own node, by name and UID" in refused
    finally:
        cluster.delete("clusterrole,clusterrolebinding", "evicting")
        cluster.delete("pods", "here", "there", "--force", "--grace-period=0", f"-n{PODS}")


def test_the_schedulers_account_changes_locks_of_nodes_and_nothing_else_there(installed: Release) -> None:
    cluster, name = installed.cluster, installed.cluster.node_name
    account = cluster.service_account_kubeconfig(NAMESPACE, "purser-scheduler")

    def patched(patch: dict[str, Any]) -> str:
        try:
            options = ("--type=merge", f"--patch={json.dumps(patch)}")
            cluster.kubectl("patch", "node", name, *options, kubeconfig=account)
        except RuntimeError as error:
            return str(error)
        return ""

    lock = "hami.io/mutex.lock"
    assert not patched({"metadata": {"annotations": {lock: "x"}}})
    assert not patched({"metadata": {"annotations": {lock: None}}})
    assert "only its own annotations" in patched({"metadata": {"annotations": {"purser.dev/inventory": "x"}}})
    assert "only its own labels" in patched({"metadata": {"labels": {"a": "b"}}})
    assert "the node's spec" in patched({"spec": {"unschedulable": True}})


def test_a_gpu_that_falls_off_the_bus_is_a_condition_of_its_node(installed: Release) -> None:
    cluster = installed.cluster
    lost = len(installed.driver.uuids) - 1

    def told() -> str:
        conditions = cluster.get("node", cluster.node_name)["status"]["conditions"]
        found = [each["message"] for each in conditions if each["type"] == UNHEALTHY and each["status"] == "True"]
        return "".join(found)

    installed.driver.lose_gpu(lost, xid=79)
    try:
        said = cluster.wait_until("the node says so", told)
        assert installed.driver.uuids[lost] in said
        healthy = {each["uuid"]: each["value"] for each in installed.agent_metrics("purser_device_healthy")}
        assert [uuid for uuid, value in healthy.items() if not value] == [installed.driver.uuids[lost]]
    finally:
        installed.driver.recover_gpu(lost)


@pytest.mark.timeout(900)  # twice ninety pods come and go within
def test_gpu_pods_outlive_upgrade_and_rollback_under_load(installed: Release) -> None:
    cluster = installed.cluster
    installed.tag(f"{installed.registry}/purser:next")
    cluster.delete("pods", "--all", f"-n{PODS}")
    before = thirty_running(installed)
    patience = ("--wait", "--timeout=3m")
    upgrade = partial(follow, installed, "Upgrade", "--set=image.tag=next", *patience)
    for step in (upgrade, partial(installed.helm, "rollback", "purser", "1", *patience)):
        books, old = installed.books(), names(installed)
        with meanwhile(arrivals(cluster, 60)):
            step()
        check_nothing_was_lost(installed, before, books)
        assert not old & names(installed)
        cluster.delete("pods", "-lapp=arriving", f"-n{PODS}")


def thirty_running(release: Release) -> dict[str, tuple[Any, ...]]:
    release.cluster.create(*(gpu_pod(f"running-{n}", PODS, {GPU: 1, MEMORY: 3000}) for n in range(30)))
    return started(release.wait_running(PODS, 30))


def check_nothing_was_lost(release: Release, before: dict[str, tuple[Any, ...]], books: set[tuple[str, ...]]) -> None:
    """Those that ran still do, with what they held, and so do the 60 that came."""
    after = started(release.wait_running(PODS, 90))
    assert {name: after[name] for name in before} == before
    assert {restarts for _, _, restarts in after.values()} == {0}
    assert books < release.books()


def names(release: Release) -> set[str]:
    """Of Purser's own pods."""
    return {each["metadata"]["name"] for part in ("agent", "scheduler") for each in release.pods(part)}


def test_nothing_is_left_after_uninstall(installed: Release, before: Standing) -> None:
    installed.cluster.delete("pods", "--all", f"-n{PODS}")
    follow(installed, "Uninstall")
    # Kubernetes collects what the release's objects owned by and by.
    with suppress(TimeoutError):
        installed.cluster.wait_until("nothing is left", lambda: installed.standing().objects == before.objects, 30)
    after = installed.standing()
    assert after.objects == before.objects
    assert after.on_nodes - before.on_nodes <= {("capacity", GPU)}, "kubelet's own, which it lists as 0 by and by"
    assert not after.on_nodes & {("capacity", each) for each in AMOUNTS}, "be it of others that ran here before"


def test_all_but_the_agent_runs_where_pods_are_restricted(release: Release, before: Standing) -> None:
    release.enforce("restricted")
    enabled = ("operator.enabled=true", "clusterPolicy.create=false", "readAPI.enabled=true", "web.enabled=true")
    options = (*(f"--set={each}" for each in enabled), "--wait", "--timeout=3m")
    release.helm("install", "purser", str(CHART), *options)
    assert (len(release.pods("scheduler")), len(release.pods("operator"))) == (2, 1)
    name_the_read_api(release.cluster)
    [web] = release.pods("web")
    asyncio.run(log_in(release.cluster, f"http://{web['status']['podIP']}:8480"))
    release.helm("uninstall", "purser", "--wait")


def name_the_read_api(cluster: RealCluster) -> None:
    """The cluster has no DNS: the pod finds the Service by its hosts file."""
    service = cluster.get("service", "purser-read-api", NAMESPACE)
    alias = {"ip": service["spec"]["clusterIP"], "hostnames": [f"purser-read-api.{NAMESPACE}.svc"]}
    patch = json.dumps({"spec": {"template": {"spec": {"hostAliases": [alias]}}}})
    cluster.kubectl("patch", "deployment", "purser-web", f"-n{NAMESPACE}", "--patch", patch)
    cluster.kubectl("rollout", "status", "deployment", "purser-web", f"-n{NAMESPACE}", "--timeout=120s")


async def log_in(cluster: RealCluster, url: str) -> None:
    """People log in to the web pages with tokens for the read API, and see what these may read."""
    role = ("chief", "--clusterrole=purser-view", f"--serviceaccount={PODS}:chief")
    cluster.kubectl("create", "clusterrolebinding", *role)
    try:
        status, text = await nodes_page(cluster, url, "chief")
        assert status == 200 and "No node lists a GPU." in text, text
        status, text = await nodes_page(cluster, url, "stranger")
        assert status == 403 and "not allowed to see the cluster" in text, text
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "chief")


async def nodes_page(cluster: RealCluster, url: str, account: str) -> tuple[int, str]:
    """The status of a login that leads to the page of nodes, and what that page says."""
    cluster.kubectl("create", "serviceaccount", account, f"-n{PODS}")
    token = cluster.kubectl("create", "token", account, f"-n{PODS}", "--audience=purser-read-api").strip()
    jar = aiohttp.CookieJar(unsafe=True, treat_as_secure_origin=URL(url))
    async with (
        aiohttp.ClientSession(url, cookie_jar=jar) as client,
        client.post("/login", data={"token": token, "next": "/nodes"}) as response,
    ):
        return response.status, await response.text()


@pytest.fixture
def former(release: Release, tmp_path: Path) -> Iterator[Release]:
    """The release as it was at that commit."""
    chart, image = former_release(UPGRADE_FROM, tmp_path)
    release.enforce("privileged")
    release.cluster.containerd.import_image(image)
    release.helm("install", "purser", str(chart), *release.values, f"--set=image.tag={TAG}", "--wait", "--timeout=3m")
    try:
        yield release
    finally:
        release.cluster.delete("replicasets,pods", "--all", f"-n{PODS}")
        release.helm("uninstall", "purser", "--ignore-not-found", "--wait")


@pytest.mark.timeout(900)  # ninety pods come and go within
@pytest.mark.skipif(not UPGRADE_FROM, reason="PURSER_UPGRADE_FROM names no commit")
def test_gpu_pods_outlive_the_upgrade_from_agents_that_leave_without_a_word(former: Release) -> None:
    before, books, old = thirty_running(former), former.books(), names(former)
    with meanwhile(growth(former.cluster, sets=3, to=20), seconds=3):
        follow(former, "From agents that stop at once")
    check_nothing_was_lost(former, before, books)
    assert not old & names(former)


def started(pods: list[Any]) -> dict[str, tuple[Any, ...]]:
    """Of each pod what changes when it is made or started again."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], status["containerID"], status["restartCount"])
        for pod in pods
        for status in pod["status"]["containerStatuses"]
    }


@contextmanager
def meanwhile(steps: Sequence[Callable[[], object]], seconds: float = 1) -> Iterator[None]:
    """Steps are taken while the block runs, so many seconds after each other, the rest of them at its end."""
    ended = threading.Event()

    def take() -> None:
        for step in steps:
            ended.wait(seconds)
            step()

    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(take)
        try:
            yield
        finally:
            ended.set()
        taken.result()


def arrivals(cluster: RealCluster, count: int, at_once: int = 3) -> list[Callable[[], object]]:
    """Steps in which pods come in."""
    pods = [arrival(number) for number in range(count)]
    return [partial(cluster.create, *pods[first : first + at_once]) for first in range(0, count, at_once)]


def arrival(number: int) -> dict[str, Any]:
    pod = gpu_pod(f"arriving-{number}", PODS, {GPU: 1, MEMORY: 1000})
    pod["metadata"]["labels"] = {"app": "arriving"}
    return pod


def growth(cluster: RealCluster, sets: int, to: int) -> list[Callable[[], object]]:
    """Steps in which ReplicaSets, made empty here, get one pod more each."""
    cluster.create(*(replica_set(f"growing-{number}") for number in range(sets)))
    scale = ("scale", "replicasets", "--all", f"-n{PODS}")
    return [partial(cluster.kubectl, *scale, f"--replicas={count}") for count in range(1, to + 1)]


def replica_set(name: str) -> dict[str, Any]:
    labels = {"app": name}
    pod = gpu_pod(name, PODS, {GPU: 1, MEMORY: 1000})
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": PODS},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    }
