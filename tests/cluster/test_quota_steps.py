"""Teams whose pods come and go: what their quotas say is used is what the book says, after each of a thousand steps."""

import asyncio
import json
import random
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest

from purser.core.kubernetes.quantities import quantity_ceil
from purser.kube.errors import ForbiddenError
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NAMESPACES, PODS
from tests.cluster.purser_processes import PURSER, Purser
from tests.cluster.real_scenarios import RealScenarioCluster, scenario_cluster
from tests.scenarios.actions import eventually
from tests.scenarios.pods import GPU, GPUCORES, GPUMEM_PERCENTAGE, container, pod, share, whole
from tests.tiers import TIER, Tier

TEAMS = [f"team-{number}" for number in range(8)]
ROUNDS = 125
MOST_PODS = 6
MEMORY, CORES, COUNTED = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores", "requests.nvidia.com/gpu"
HARD = {MEMORY: "60k", CORES: "150", COUNTED: "5"}
"""Less than a team asks for at times: the API server refuses some pods, and others wait."""

pytestmark = [
    pytest.mark.skipif(TIER is not Tier.SOAK, reason="a thousand steps: PURSER_TIER=soak"),
    pytest.mark.timeout(3600),
]


@pytest.fixture
async def cluster(purser: Purser) -> AsyncIterator[RealScenarioCluster]:
    async with scenario_cluster(purser) as cluster:
        for team in TEAMS:
            await cluster.client.create(NAMESPACES, {"metadata": {"name": team}})
            body = {"metadata": {"name": "gpus"}, "spec": {"hard": HARD}}
            await cluster.client.create(RESOURCE_QUOTAS, body, team)
        yield cluster
        for team in TEAMS:
            await cluster.client.delete(NAMESPACES, team)


class Team:
    """A namespace's pods that exist, with the GPUs that each asks for."""

    def __init__(self, cluster: RealScenarioCluster, namespace: str, chance: random.Random) -> None:
        self.namespace = namespace
        self.gpus: dict[str, int] = {}
        self._cluster, self._chance, self._made = cluster, chance, 0

    async def step(self) -> str:
        """Create a pod, or delete one; what it was."""
        if self.gpus and (len(self.gpus) == MOST_PODS or self._chance.random() < 0.45):
            name = self._chance.choice(sorted(self.gpus))
            await self._cluster.client.delete(PODS, name, self.namespace, grace_period_seconds=0)
            del self.gpus[name]
            return "deleted"
        self._made += 1
        name, limits = f"p{self._made}", self._limits()
        body = pod(self._cluster, name, limits)
        body["metadata"]["namespace"] = self.namespace
        # A container that never starts: what is counted is its pod.
        body["spec"]["containers"] = [
            container(self._cluster, limits, image="example.invalid/nothing", imagePullPolicy="Never")
        ]
        try:
            await self._cluster.client.create(PODS, body, self.namespace)
        except ForbiddenError as error:
            assert "exceeded quota" in str(error)
            return "refused"
        self.gpus[name] = int(limits[GPU])
        return "created"

    def _limits(self) -> dict[str, str]:
        memory, cores, count = self._chance.randrange(1, 9000), self._chance.randrange(60), self._chance.randrange(1, 3)
        percent = {GPU: "1", GPUMEM_PERCENTAGE: str(self._chance.randrange(1, 20)), GPUCORES: str(cores)}
        return self._chance.choice([share(memory, cores, count), percent, whole()])


async def purser_json(purser: Purser, *words: str) -> Any:
    command = [str(PURSER), "get", *words, "-ojson", f"--kubeconfig={purser.cluster.kubeconfig}"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    return json.loads(done.stdout)


async def book(purser: Purser) -> dict[str, tuple[int, int]]:
    """MiB and percent that the pods of each namespace hold, added up from their grants."""
    held: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for part in await purser_json(purser, "grants", "-A"):
        for each in part["shares"]:
            memory, cores = held[part["namespace"]]
            held[part["namespace"]] = (memory + each["memory_mib"], cores + each["cores_percent"])
    return held


async def test_quotas_say_what_the_book_says_after_each_of_a_thousand_steps(
    cluster: RealScenarioCluster, purser: Purser
) -> None:
    chance = random.Random(32)
    teams = [Team(cluster, name, chance) for name in TEAMS]
    done: defaultdict[str, int] = defaultdict(int)

    async def agree() -> bool:
        held, shown = await asyncio.gather(book(purser), purser_json(purser, "namespaces"))
        by_name = {each["namespace"]: each["held"] for each in shown}
        for team in teams:
            memory, cores = held[team.namespace]
            assert memory <= quantity_ceil(HARD[MEMORY]) and cores <= quantity_ceil(HARD[CORES])
            described = await asyncio.to_thread(
                purser.cluster.kubectl, "describe", "quota", "gpus", f"-n{team.namespace}"
            )
            rows = (line.split() for line in described.splitlines())
            used = {row[0]: quantity_ceil(row[1]) for row in rows if row and row[0] in HARD}
            wanted = {MEMORY: memory, CORES: cores, COUNTED: sum(team.gpus.values())}
            assert used == wanted, (team.namespace, described)
            listed = by_name.get(team.namespace, {"memory_mib": 0, "cores_percent": 0})
            assert listed == {"memory_mib": memory, "cores_percent": cores}, team.namespace
        return True

    for _ in range(ROUNDS):
        for what in await asyncio.gather(*(team.step() for team in teams)):
            done[what] += 1
        await eventually(cluster, "quotas, the book and purser get namespaces agree", agree)
    print(dict(done))
    assert sum(done.values()) == 1000 and min(done.values()) > 50
