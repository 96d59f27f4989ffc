"""The chart on a real cluster: Helm installs it, pods of the image do the work, and nothing is left of it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from purser.core.node_amounts import AMOUNTS

from .chart_release import CHART, GPU, MEMORY, NAMESPACE, Release, Standing, gpu_pod
from .documented import REGISTRY, follow
from .kubernetes import RealCluster
from .kubernetes.releases import CRI_V1

PODS = "gpu-pods"


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
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"  # of CDI's specification: nothing is added twice


def test_every_book_agrees(installed: Release) -> None:
    assert len(installed.books()) == len(installed.cluster.get("pods", namespace=PODS)["items"])


def test_gpu_pods_outlive_upgrade_and_rollback_under_load(installed: Release) -> None:
    cluster = installed.cluster
    installed.tag(f"{REGISTRY}/purser:next")
    cluster.delete("pods", "--all", f"-n{PODS}")
    before = thirty_running(installed)
    upgrade = ("upgrade", "purser", str(CHART), "--reset-then-reuse-values", "--set=image.tag=next")
    for command in (upgrade, ("rollback", "purser", "1")):
        books, old = installed.books(), names(installed)
        with arriving(cluster, 60):
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


def started(pods: list[Any]) -> dict[str, tuple[Any, ...]]:
    """Of each pod what changes when it is made or started again."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], status["containerID"], status["restartCount"])
        for pod in pods
        for status in pod["status"]["containerStatuses"]
    }


@contextmanager
def arriving(cluster: RealCluster, count: int, at_once: int = 3) -> Iterator[None]:
    """Pods come in while the block runs, the rest of them at its end."""
    stop = threading.Event()

    def create() -> None:
        for first in range(0, count, at_once):
            stop.wait(1)
            cluster.create(*(arrival(number) for number in range(first, first + at_once)))

    thread = threading.Thread(target=create)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def arrival(number: int) -> dict[str, Any]:
    pod = gpu_pod(f"arriving-{number}", PODS, {GPU: 1, MEMORY: 1000})
    pod["metadata"]["labels"] = {"app": "arriving"}
    return pod
