"""Fifty owners of pods with GPUs, created while a part is down for five minutes: none of their pods fails, none is
created again and again, and all run once the part is back."""

import asyncio
import itertools
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from purser.kube.errors import KubeError
from tests.cluster.purser_processes import Purser
from tests.cluster.real_scenarios import RealScenarioCluster, scenario_cluster
from tests.scenarios.actions import check_books, eventually, is_running, pods
from tests.scenarios.pods import GPU, GPUCORES, GPUMEM_PERCENTAGE, OWNERS, Raw, owner, share, whole
from tests.tiers import TIER, Tier

OUTAGE_S, LOOK_S = 300, 2
WORDS = {
    "share": share(1024, 2),
    "percentage": {GPU: "1", GPUMEM_PERCENTAGE: "2", GPUCORES: "2"},
    "volcano": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1024"},
    "gpushare": {"aliyun.com/gpu-mem": "1"},
}
OWNED = [
    *((kind, word, limits) for kind in OWNERS for word, limits in WORDS.items() for _ in range(3)),
    *((kind, "whole", whole()) for kind in ("DaemonSet", "Job")),
]
MOST_PODS = 2
"""Of one owner: the one that waits, and the one that takes its place; one more may meet an agent that has just gone."""

MOST_FAILED = 8
"""While an agent is away: pods that are bound before kubelet and the scheduler know, once for each GPU at most."""

pytestmark = [
    pytest.mark.skipif(TIER is not Tier.SOAK, reason="five minutes for each part: PURSER_TIER=soak"),
    pytest.mark.timeout(3600),
]


@pytest.fixture
async def cluster(purser: Purser) -> AsyncIterator[RealScenarioCluster]:
    async with scenario_cluster(purser) as cluster:
        yield cluster


@asynccontextmanager
async def scheduler_away(cluster: RealScenarioCluster, purser: Purser) -> AsyncIterator[None]:
    await cluster.kill_scheduler()
    try:
        yield
    finally:
        await cluster.start_scheduler()


@asynccontextmanager
async def agent_away(cluster: RealScenarioCluster, purser: Purser) -> AsyncIterator[None]:
    await cluster.kill_agent(cluster.gpu_node)
    try:
        yield
    finally:
        await cluster.start_agent(cluster.gpu_node)


@asynccontextmanager
async def api_server_away(cluster: RealScenarioCluster, purser: Purser) -> AsyncIterator[None]:
    """`went` takes it away, for nobody could create the owners without it."""
    try:
        yield
    finally:
        await asyncio.to_thread(purser.cluster.restart, "kube-apiserver")
        # Without its Lease it ends, and kubelet starts its container again.
        await asyncio.to_thread(purser.kube_scheduler.stop)
        await asyncio.to_thread(purser.kube_scheduler.start)


@asynccontextmanager
async def webhook_away(cluster: RealScenarioCluster, purser: Purser) -> AsyncIterator[None]:
    """The API server alone cannot reach it, as behind a NetworkPolicy."""
    rule = ["OUTPUT", "-p", "tcp", "--dport", str(purser.webhook_port), "-j", "REJECT", "--reject-with", "tcp-reset"]
    await asyncio.to_thread(subprocess.run, ["iptables", "-w", "-I", *rule], check=True)
    try:
        yield
    finally:
        await asyncio.to_thread(subprocess.run, ["iptables", "-w", "-D", *rule], check=True)


@asynccontextmanager
async def kubelet_away(cluster: RealScenarioCluster, purser: Purser) -> AsyncIterator[None]:
    await cluster.wait_for_empty_checkpoint()  # of what the part before left
    await asyncio.to_thread(purser.cluster.kill_kubelet)
    try:
        yield
    finally:
        await asyncio.to_thread(purser.cluster.start_kubelet)


async def went(purser: Purser) -> None:
    """While pods of the owners are being made and placed."""
    await asyncio.to_thread(purser.cluster.processes["kube-apiserver"].stop, grace_seconds=2)


AWAY = (scheduler_away, webhook_away, agent_away, kubelet_away, api_server_away)


class Seen:
    """All pods that were ever there."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.failed: dict[str, Raw] = {}

    async def look(self, cluster: RealScenarioCluster) -> list[Raw]:
        found = await pods(cluster)
        for each in found:
            uid = each["metadata"]["uid"]
            self.names[uid] = each["metadata"]["labels"]["app"]
            if each["status"].get("phase") == "Failed":
                self.failed[uid] = each["status"]
        return found


@pytest.mark.parametrize("away", AWAY, ids=lambda each: each.__name__)
async def test_fifty_owners_wait_for_five_minutes_and_then_run(
    cluster: RealScenarioCluster, purser: Purser, away: Callable[..., Awaitable[None]]
) -> None:
    names = [f"{kind.lower()}-{word}-{place}" for place, (kind, word, _) in enumerate(OWNED)]
    seen = Seen()
    async with away(cluster, purser):
        for name, (kind, _, limits) in zip(names, OWNED, strict=True):
            await cluster.client.create(OWNERS[kind], owner(cluster, kind, name, limits), cluster.namespace)
        if away is api_server_away:
            await went(purser)
        ends_at = time.monotonic() + OUTAGE_S
        while time.monotonic() < ends_at:
            try:
                await seen.look(cluster)
            except KubeError:
                assert away is api_server_away
            await asyncio.sleep(LOOK_S)
        print(away.__name__, "waited:", len(seen.names), "pods, failed:", len(seen.failed))
    returned, ran = time.monotonic(), dict[str, float]()

    async def all_run() -> bool:
        for each in await seen.look(cluster):
            if is_running(each):
                ran.setdefault(each["metadata"]["labels"]["app"], time.monotonic() - returned)
        missing = sorted(set(names) - ran.keys())
        assert not missing, f"not running: {missing}"
        return True

    try:
        await eventually(cluster, "all owners' pods run", all_run)
    finally:
        _print_slowest(ran)
        print(away.__name__, "failed:", Counter(f"{status.get('message')}" for status in seen.failed.values()))
    per_owner = Counter(seen.names.values())
    assert len(seen.failed) <= (MOST_FAILED if away is agent_away else 0)
    most_pods = MOST_PODS + (away is agent_away)
    assert max(per_owner.values()) <= most_pods, per_owner.most_common(5)
    await check_books(cluster)
    for name, (kind, _, _) in zip(names, OWNED, strict=True):
        await cluster.client.delete(OWNERS[kind], name, cluster.namespace)


def _print_slowest(ran: dict[str, float]) -> None:
    key = lambda each: each[0].rpartition("-")[0]  # noqa: E731
    for kind, group in itertools.groupby(sorted(ran.items(), key=key), key):
        print(f"{kind}: {max(seconds for _, seconds in group):.1f} s")
