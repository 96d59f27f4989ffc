"""Whom the agent evicts for what he has beyond his grant, and who cannot keep it from that."""

from types import SimpleNamespace
from typing import Any

from tests.unit.agent.builders import A, grant, part

from purser.agent.allocation.evictions import MAX_EVICTION_GRACE_S, make_evict
from purser.agent.allocation.pod_statuses import NodePod, NodePodSpec
from purser.agent.monitoring import auditing
from purser.agent.monitoring.auditing import Auditor
from purser.core.kubernetes.quantities import MIB
from purser.core.monitoring.accounts import ContainerUse, GpuAccount, PodContainer
from purser.core.monitoring.audit import LASTING_READINGS
from purser.core.monitoring.compute import WINDOW_READINGS
from purser.kube.errors import TooManyRequestsError
from purser.kube.objects import ObjectMeta


class World:
    """Pods with 1000 MiB each, by name what they have."""

    def __init__(self, **used_mib: int) -> None:
        self.used_mib = used_mib
        self.pods = {f"uid-{name}": self.pod(name) for name in used_mib}
        self.evicted: list[str] = []
        self.guarded: set[str] = set()
        store = SimpleNamespace(by_uid=lambda uid: self.pods.get(uid))
        self.told: list[tuple[str, str]] = []
        recorder = SimpleNamespace(event=lambda _, reason, text, **__: self.told.append((reason.value, text)))
        pods: Any = SimpleNamespace(pods=SimpleNamespace(store=store))
        self.auditor = Auditor(recorder, "n", pods, lambda: {A: None}, self.evict)  # type: ignore[arg-type,dict-item]

    def pod(self, name: str, **meta: Any) -> NodePod:
        return NodePod(metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", **meta))

    def asked_to_go(self, name: str, grace_s: int) -> None:
        self.pods[f"uid-{name}"] = self.pod(name, deletion_timestamp="then", deletion_grace_period_seconds=grace_s)

    async def evict(self, pod: NodePod) -> None:
        if pod.metadata.name in self.guarded:
            raise TooManyRequestsError("PUT", "/", 429)
        self.evicted.append(pod.metadata.name)

    async def readings(self, count: int, unlimited: tuple[str, ...] = (), sm_percent: int | None = None) -> list[str]:
        """The evictions of so many, in each of which each pod uses so much compute. Each was granted 10 %."""
        self.evicted.clear()
        uses = tuple(
            ContainerUse(PodContainer("ns", name, f"uid-{name}", "main"), A, mib * MIB, sm_percent)
            for name, mib in self.used_mib.items()
        )
        grants = [grant(name, part("main", A, memory_mib=1000)) for name in self.used_mib]
        for _ in range(count):
            await self.auditor.take([GpuAccount(A, {}, uses, ())], grants, {}, unlimited)
        return self.evicted


async def test_a_disruption_budget_shields_its_own_pods_alone() -> None:
    world = World(most=5000, more=4000, good=1000)
    world.guarded = {"most"}
    assert await world.readings(LASTING_READINGS) == ["more"]


async def test_a_pod_that_is_about_to_end_is_waited_for_and_not_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr(auditing, "MAX_WAITED_READINGS", 5)
    world = World(most=5000, more=4000)
    world.asked_to_go("most", MAX_EVICTION_GRACE_S)
    assert await world.readings(LASTING_READINGS - 1 + 5) == []
    assert await world.readings(1) == ["more"]


async def test_a_pod_that_gives_itself_a_year_to_end_is_asked_to_go_by_then() -> None:
    world = World(most=5000)
    world.asked_to_go("most", 365 * 86400)
    assert await world.readings(LASTING_READINGS) == ["most"]
    asked: list[Any] = []

    async def create_subresource(*arguments: Any) -> None:
        asked.append(arguments[3]["deleteOptions"].get("gracePeriodSeconds"))

    async def version() -> dict[str, str]:
        return {"major": "1", "minor": "30"}

    client: Any = SimpleNamespace(create_subresource=create_subresource, version=version)
    evict = make_evict(client)
    for seconds in (30, MAX_EVICTION_GRACE_S, 365 * 86400):
        await evict(NodePod(spec=NodePodSpec(termination_grace_period_seconds=seconds)))
    assert asked == [None, None, MAX_EVICTION_GRACE_S]


async def test_nobody_is_beyond_a_time_slice() -> None:
    world = World(most=5000)
    assert await world.readings(LASTING_READINGS, unlimited=(A,)) == []
    assert world.auditor.findings == ()


async def test_a_pod_that_computes_too_much_is_told_once_and_stays() -> None:
    world = World(busy=900)
    began = WINDOW_READINGS + LASTING_READINGS - 1
    assert await world.readings(began - 1, sm_percent=60) == []
    assert world.told == []
    assert await world.readings(20, sm_percent=60) == []
    gpu = f"GPU {A}"
    used = ("GpuComputeOverused", f"The pod uses 60% of the compute of {gpu} on average but was granted 10%")
    assert world.told == [used]
    await world.readings(WINDOW_READINGS, sm_percent=5)
    settled = ("GpuUseSettled", f"The pod no longer uses more compute on {gpu} than it was granted")
    assert world.told == [used, settled]
