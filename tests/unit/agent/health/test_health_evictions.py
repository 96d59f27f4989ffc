"""Whom the agent evicts from GPUs that stay unhealthy."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.agent.builders import A, B, grant, part
from tests.unit.agent.conftest import eventually

from purser.agent.allocation.book import Book, BookedContainer
from purser.agent.allocation.evictions import MAX_EVICTION_GRACE_S
from purser.agent.allocation.pod_statuses import NodePod
from purser.agent.health import evicting
from purser.agent.health.evicting import MAX_ENDING_S, UNHEALTHY_PATIENCE_S, UnhealthyEvictions
from purser.agent.reporting.events import HealthEvents
from purser.core.model import Enforcement
from purser.kube.errors import TooManyRequestsError
from purser.kube.objects import ObjectMeta


class World:
    """Two GPUs, ``one`` and ``two`` on the first, ``other`` on the second."""

    def __init__(self, folder: Any) -> None:
        self.now = 0.0
        self.health: dict[str, Any] | None = {A: None, B: None}
        self.pods: dict[str, NodePod] = {}
        self.evicted: list[str] = []
        self.guarded: set[str] = set()
        self.events: list[tuple[str, str]] = []
        self.book = Book(folder / "book.json", "n")
        for name, uuid in (("one", A), ("two", A), ("other", B)):
            given = BookedContainer((f"{uuid}::0",), Enforcement.NONE)
            self.book.reassign(grant(name, part("main", uuid)), "main", given.ids)
            self.set(name)
        self.well(A, B)
        recorder: Any = SimpleNamespace(event=lambda _, reason, text, **__: self.events.append((reason.value, text)))
        pods: Any = SimpleNamespace(pods=SimpleNamespace(store=SimpleNamespace(by_uid=self.pods.get)))
        events = HealthEvents(recorder, "n", pods, self.book, dict, dict)
        monitor: Any = self
        self.evictions = UnhealthyEvictions(monitor, events, recorder, self.evict, SimpleNamespace(monotonic=self.time))  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now

    @property
    def assessed_health(self) -> Any:
        return self.health

    def set(self, name: str, **meta: Any) -> None:
        uid = f"uid-{name}"
        self.pods[uid] = NodePod(metadata=ObjectMeta(name=name, namespace="ns", uid=uid, **meta))

    def ending(self, name: str) -> None:
        self.set(name, deletion_timestamp="then", deletion_grace_period_seconds=MAX_EVICTION_GRACE_S)

    def well(self, *uuids: str) -> None:
        self.health = {each: SimpleNamespace(takes_pods=True, reason="") for each in uuids}

    def sick(self, uuid: str) -> None:
        assert self.health is not None
        self.health[uuid] = SimpleNamespace(takes_pods=False, reason="it is lost")

    async def evict(self, pod: NodePod) -> None:
        if pod.metadata.name in self.guarded:
            raise TooManyRequestsError("POST", "/", 429)
        self.evicted.append(pod.metadata.name)

    async def after(self, seconds: float) -> list[str]:
        """Who is evicted then."""
        self.now += seconds
        self.evicted.clear()
        await self.evictions.act()
        return list(self.evicted)


@pytest.fixture
def here(tmp_path: Any) -> World:
    return World(tmp_path)


async def test_one_pod_at_a_time_leaves_a_gpu_that_stays_unhealthy(here: World) -> None:
    here.sick(A)
    assert await here.after(0) == []
    assert await here.after(UNHEALTHY_PATIENCE_S - 1) == []
    assert await here.after(1) == ["one"]
    assert here.events == [("EvictedFromUnhealthyGpu", f"Evicted by Purser: GPU {A} is unhealthy: it is lost")]
    here.ending("one")
    assert await here.after(1) == []
    del here.pods["uid-one"]
    assert await here.after(1) == ["two"]


async def test_a_pod_that_does_not_end_keeps_the_others_for_a_while_only(here: World) -> None:
    here.sick(A)
    await here.after(0)
    here.ending("one")
    assert await here.after(UNHEALTHY_PATIENCE_S) == []
    assert await here.after(MAX_ENDING_S) == ["two"]


async def test_a_disruption_budget_keeps_its_own_pods_alone(here: World) -> None:
    here.sick(A)
    here.guarded = {"one"}
    await here.after(0)
    assert await here.after(UNHEALTHY_PATIENCE_S) == ["two"]


async def test_a_gpu_that_recovers_keeps_its_pods(here: World) -> None:
    here.sick(A)
    await here.after(0)
    here.well(A, B)
    await here.after(UNHEALTHY_PATIENCE_S - 1)
    here.sick(A)
    assert await here.after(2) == []


async def test_a_driver_that_does_not_answer_is_no_verdict_on_its_gpus(here: World) -> None:
    here.sick(A)
    await here.after(0)
    here.health = None
    assert await here.after(UNHEALTHY_PATIENCE_S) == []


@pytest.mark.processes
@pytest.mark.asyncio(loop_scope="module")
async def test_an_agent_evicts_where_that_is_allowed(world: Any, kubelet: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(evicting, "UNHEALTHY_PATIENCE_S", 0.1)
    monkeypatch.setattr(evicting, "LOOK_PERIOD_S", 0.1)
    async with world.agent(evict_from_unhealthy_gpus=True) as agent:
        await eventually(agent.ready)
        for name, uuid in (("sick", world.uuids[0]), ("well", world.uuids[1])):
            await world.pod(name, part("main", uuid))
            await kubelet.admit(f"default/{name}", [("main", 1)])
        world.driver.lose_gpu(world.uuids[0])

        async def reasons() -> list[str]:
            return [reason for reason, _ in await world.events("sick")]

        async def evicted() -> bool:
            return "EvictedFromUnhealthyGpu" in await reasons()

        await eventually(evicted)
        assert [reason for reason, _ in await world.events("well")] == []
