"""An older snapshot of etcd is restored while pods come and go: no GPU is overcommitted at any moment.

What counts is what runs: the limits in the environment of every process that a container of the test was started with.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from purser.kube.resources import PODS
from tests.cluster.purser_processes import Purser
from tests.cluster.real_scenarios import RealScenarioCluster, scenario_cluster
from tests.scenarios.actions import create, eventually, is_running, pods, running
from tests.scenarios.pods import OWNERS, Raw, owner, pod, share
from tests.tiers import TIER, Tier

GPU_MIB, HALF_MIB = 40960, 20480
LOOK_S, AFTERWARDS_S = 0.25, 60

pytestmark = [
    pytest.mark.skipif(TIER is not Tier.SOAK, reason="it changes the whole cluster: PURSER_TIER=soak"),
    pytest.mark.timeout(420),
]


@pytest.fixture
async def cluster(purser: Purser) -> AsyncIterator[RealScenarioCluster]:
    async with scenario_cluster(purser) as cluster:
        yield cluster


def _named(body: Raw, of: Raw) -> Raw:
    """With its uid in the container's environment."""
    uid = {"name": "TEST_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    of["containers"][0]["env"] = [uid]
    return body


def halves(cluster: RealScenarioCluster, *names: str) -> list[Raw]:
    found = [pod(cluster, name, share(HALF_MIB, 40)) for name in names]
    return [_named(each, each["spec"]) for each in found]


class Watched:
    """What each GPU is used for, as its containers' processes have it."""

    def __init__(self) -> None:
        self.looks, self.most = 0, Counter[str]()
        self.overcommitted: list[str] = []

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        held: dict[str, dict[str, int]] = {}
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                text = environ.read_bytes()
            except OSError:  # it has ended
                continue
            if b"TEST_POD_UID=" in text:
                env = dict(each.split("=", 1) for each in text.decode().split("\0") if "=" in each)
                limit = int(env["CUDA_DEVICE_MEMORY_LIMIT_0"].removesuffix("m"))
                held.setdefault(env["NVIDIA_VISIBLE_DEVICES"], {})[env["TEST_POD_UID"]] = limit
        self.looks += 1
        for uuid, pods_of in held.items():
            used = sum(pods_of.values())
            self.most[uuid] = max(self.most[uuid], used)
            if used > GPU_MIB:
                self.overcommitted.append(f"{uuid}: {pods_of}")


def _stop_control_plane(purser: Purser) -> None:
    for name in ("kube-apiserver", "etcd"):
        purser.cluster.processes[name].stop(grace_seconds=2)


def _start_control_plane(purser: Purser) -> None:
    for name in ("etcd", "kube-apiserver"):
        purser.cluster.restart(name)


def _save(purser: Purser, copy: Path) -> None:
    _stop_control_plane(purser)
    shutil.copytree(purser.cluster.folder / "etcd", copy)
    _start_control_plane(purser)


def _restore(purser: Purser, copy: Path) -> None:
    """Without what caches the API server's objects: watches of Kubernetes' own go on where the new history has not come
    to yet. Purser is not started again."""
    _stop_control_plane(purser)
    shutil.rmtree(purser.cluster.folder / "etcd")
    shutil.copytree(copy, purser.cluster.folder / "etcd")
    _start_control_plane(purser)


def _restart_caches(purser: Purser) -> None:
    """As Kubernetes' documentation says for a restored etcd."""
    for name in ("kube-controller-manager", "kube-scheduler"):
        purser.cluster.restart(name)
    purser.kube_scheduler.stop()
    purser.kube_scheduler.start()
    purser.wait_kube_scheduler()
    purser.cluster.restart_kubelet()


async def test_no_gpu_is_overcommitted_after_an_older_snapshot_was_restored(
    cluster: RealScenarioCluster, purser: Purser, tmp_path: Path
) -> None:
    kept = [f"kept-{each}" for each in range(8)]
    await create(cluster, *halves(cluster, *kept))
    await running(cluster, kept)
    watched = Watched()
    watching = asyncio.create_task(watched.run())
    try:
        await asyncio.to_thread(_save, purser, tmp_path / "etcd")
        for name in kept[:4]:
            await cluster.client.delete(PODS, name, cluster.namespace, grace_period_seconds=0)
        later = [f"later-{each}" for each in range(12)]
        await create(cluster, *halves(cluster, *later))
        await running(cluster, later)
        watched.look()
        assert set(watched.most.values()) == {GPU_MIB}

        await asyncio.to_thread(_restore, purser, tmp_path / "etcd")
        for each in range(12):
            body = owner(cluster, "Deployment", f"new-{each}", share(HALF_MIB, 40))
            _named(body, body["spec"]["template"]["spec"])
            await cluster.client.create(OWNERS["Deployment"], body, cluster.namespace)
            await asyncio.sleep(1)
        await asyncio.to_thread(_restart_caches, purser)
        await asyncio.sleep(AFTERWARDS_S)

        async def settled() -> bool:
            found = await pods(cluster)
            live = [each for each in found if each["status"].get("phase") not in ("Failed", "Succeeded")]
            count = sum(map(is_running, live))
            assert count == 16, f"{count} run: {[(p['metadata']['name'], p['status'].get('phase')) for p in found]}"
            return True

        try:
            await eventually(cluster, "every half of a GPU is in use again", settled)
        finally:
            print("looks:", watched.looks, "overcommitted:", len(watched.overcommitted), watched.overcommitted[:5])
            for each in await pods(cluster):
                print(each["metadata"]["name"], each["status"].get("phase"), each["status"].get("message", "")[:200])
    finally:
        watching.cancel()
    assert not watched.overcommitted
    for each in range(12):
        await cluster.client.delete(OWNERS["Deployment"], f"new-{each}", cluster.namespace)
