"""The reasons of events that are posted where something else has found what they say."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.agent.builders import A, grant, part

from purser.agent.allocation.book import Book, BookedContainer
from purser.agent.allocation.pod_statuses import NodePod
from purser.agent.reasons import AgentReason
from purser.agent.reporting.events import HealthEvents, NodeEvents
from purser.core.health.messages import HealthNews, News
from purser.core.model import Enforcement
from purser.kube.objects import ObjectMeta

POD = NodePod(metadata=ObjectMeta(name="p", namespace="ns", uid="uid-p"))


class Recorder:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []

    def event(self, about: Any, reason: str, message: str, type: str = "Normal") -> None:
        self.said.append((about.kind, reason, type))


@pytest.mark.parametrize(
    ("news", "on_node", "on_pod", "type"),
    [
        (News.UNHEALTHY, AgentReason.GPU_UNHEALTHY, AgentReason.HELD_GPU_UNHEALTHY, "Warning"),
        (News.DEGRADED, AgentReason.GPU_DEGRADED, AgentReason.HELD_GPU_DEGRADED, "Warning"),
        (News.RECOVERED, AgentReason.GPU_RECOVERED, AgentReason.HELD_GPU_RECOVERED, "Normal"),
    ],
)
def test_news_of_a_gpu_is_told_its_node_and_who_holds_it(
    tmp_path: Any, news: Any, on_node: Any, on_pod: Any, type: Any
):
    book, recorder = Book(tmp_path / "book.json", "n"), Recorder()
    given = BookedContainer((f"{A}::0",), Enforcement.NONE)
    book.reassign(grant("p", part("main", A)), "main", given.ids)
    pods: Any = SimpleNamespace(pods=SimpleNamespace(store=SimpleNamespace(by_uid={"uid-p": POD}.get)))
    events = HealthEvents(recorder, "n", pods, book, dict, dict)  # type: ignore[arg-type]
    events.news(A, HealthNews(news, "is so"))
    assert recorder.said == [("Node", on_node, type), ("Pod", on_pod, type)]


def test_what_else_is_told_of_a_node_and_its_pods() -> None:
    recorder = Recorder()
    events = NodeEvents(recorder, "n", SimpleNamespace())  # type: ignore[arg-type]
    events.empty_mig("GPU 0")
    events.nics_distant(POD, "0 of 1 GPU")
    assert recorder.said == [("Node", AgentReason.MIG_EMPTY, "Warning"), ("Pod", AgentReason.NIC_APART, "Warning")]
