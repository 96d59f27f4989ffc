"""The chart on a real cluster: Helm installs it, pods of the image do the work, and nothing is left of it."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from purser.core.node.amounts import AMOUNTS

from .chart_release import CHART, GPU, MEMORY, NAMESPACE, Release, Standing, gpu_pod
from .documented import REGISTRY, follow
from .former_release import TAG, former_release
from .kubernetes import RealCluster
from .kubernetes.releases import CRI_V1

PODS = "gpu-pods"
UPGRADE_FROM = os.environ.get("PURSER_UPGRADE_FROM", "")
"""A commit whose agents leave without a word; 00b6d53 is one of the last."""


@pytest.fixture(scope="module")
def release(
    real_cluster: RealCluster, purser_archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    if real_cluster.version < CRI_V1:
        pytest.skip("neither kube-proxy nor CDI beside this release")
    release = Release(real_cluster, purser_archive, tmp_path_factory.mktemp("release"))
    real_cluster.create_namespace(PODS)
    follow(release, "Pod Security")
    try:
        yield release
    finally:
        real_cluster.delete("namespace", NAMESPACE, PODS)


@pytest.fixture(scope="module")
def before(release: Release) -> Standing:
    return release.standing()


@pytest.fixture(scope="module")
def installed(release: Release, before: Standing) -> Iterator[Release]:
    follow(release, "Install", *release.values, release.with_cdi, "--wait", "--timeout=3m")
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


@pytest.mark.timeout(900)  # twice ninety pods come and go within
def test_gpu_pods_outlive_upgrade_and_rollback_under_load(installed: Release) -> None:
    cluster = installed.cluster
    installed.tag(f"{REGISTRY}/purser:next")
    cluster.delete("pods", "--all", f"-n{PODS}")
    before = thirty_running(installed)
    upgrade = ("upgrade", "purser", str(CHART), "--reset-then-reuse-values", "--set=image.tag=next")
    for command in (upgrade, ("rollback", "purser", "1")):
        books, old = installed.books(), names(installed)
        with meanwhile(arrivals(cluster, 60)):
            installed.helm(*command, "--wait", "--timeout=3m")
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


def test_scheduler_and_operator_run_where_pods_are_restricted(release: Release, before: Standing) -> None:
    release.enforce("restricted")
    options = ("--set=operator.enabled=true", "--set=clusterPolicy.create=false", "--wait", "--timeout=3m")
    release.helm("install", "purser", str(CHART), *options)
    assert (len(release.pods("scheduler")), len(release.pods("operator"))) == (2, 1)
    release.helm("uninstall", "purser", "--wait")


@pytest.fixture
def former(release: Release, purser_archive: Path, tmp_path: Path) -> Iterator[Release]:
    """The release as it was at that commit."""
    chart, image = former_release(UPGRADE_FROM, purser_archive, tmp_path)
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
        follow(former, "From agents that leave without a word")
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
