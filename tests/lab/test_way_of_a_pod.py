"""Who asks whom for one pod, in the lab and in the diagram of docs/architecture.md."""

import re
from pathlib import Path

from purser.agent.kubelet.plugin import ResourcePlugin
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from purser.scheduler import server
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.actions import create, running
from tests.scenarios.pods import pod, share

PAGE = Path(__file__).parents[2] / "docs/architecture.md"


def drawn() -> list[str]:
    """What the diagram has webhook, extender and agent asked, in its order."""
    _, _, diagram = PAGE.read_text().partition("```mermaid\nsequenceDiagram\n")
    asked = re.findall(r"\b(\w+)->>(?!\1)(?:webhook|extender|agent): (.+)", diagram.partition("```")[0])
    return [each.removeprefix("POST /") for _, each in asked]


async def test_a_pod_goes_the_way_that_is_drawn(quiet_logs, monkeypatch) -> None:
    seen = []
    answer, timed = server._answer, ResourcePlugin._timed

    def answered(name, verb, body):
        seen.append(name)
        return answer(name, verb, body)

    def called(plugin, method):
        seen.append(method)
        return timed(plugin, method)

    monkeypatch.setattr(server, "_answer", answered)
    monkeypatch.setattr(ResourcePlugin, "_timed", called)
    async with Lab(LabSettings(node_choices(["t4-4:2"]))) as lab:  # nobody prioritizes a node that fits alone
        await lab.ready()
        cluster = LabCluster(lab, "way")
        await cluster.set_up()
        seen.clear()
        await create(cluster, pod(cluster, "share", share(), nodeSelector={}))
        await running(cluster, ["share"])
        assert seen == drawn()
