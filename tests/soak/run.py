"""The soak, composed."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any

from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.actions import create, running
from tests.scenarios.pods import pod, whole
from tests.soak.breaking import Breaker
from tests.soak.checks import Witness, all_cards_can_be_had, resident_mib
from tests.soak.honest import ANYWHERE, create_pods, observe_pods
from tests.soak.hostile import Attacker
from tests.soak.outcomes import HonestPods

NODES = ["a100-40gb-8", "h100-8", "t4-4"]
PATIENCE_S = 120.0
MENDING_S = 300.0


@dataclass(frozen=True)
class Plan:
    """How long, and how much."""

    seconds: float
    pods: int
    seed: str
    attack_every_s: float = 1.0
    break_every_s: float = 6.0


@dataclass
class Result:
    """What is reported at the end."""

    plan: Plan
    seconds: float
    records: HonestPods
    attacker: Attacker
    breaker: Breaker
    witness: Witness
    lost: str
    """Why some card cannot be had at the end; empty when all can."""

    @property
    def is_good(self) -> bool:
        """Whether every promise held."""
        return not (self.records.hurt or self.witness.given_twice or self.lost)

    def describe(self) -> str:
        """For people."""
        memory = self.witness.memory_mib
        twice = [f"  GIVEN TWICE {each}" for each in self.witness.given_twice[:20]]
        lines = [
            f"{self.seconds / 60:.0f} minutes, seed {self.plan.seed}",
            self.records.describe(),
            f"attacks: {_counts(self.attacker.acts)}; answered with a refusal: {_counts(self.attacker.refused)}",
            f"faults: {_counts(self.breaker.faults)}",
            f"cards given twice: {len(self.witness.given_twice)} in {self.witness.samples} samples",
            *twice,
            f"cards lost: {self.lost or 'none'}",
            f"memory of the whole lab, MiB: {memory[:: max(1, len(memory) // 12)]}, at the end {resident_mib()}",
        ]
        return "\n".join(lines)


async def soak(plan: Plan) -> Result:
    """Run it."""
    async with Lab(LabSettings(node_choices(NODES), probe_interval_s=0.2)) as lab:
        async with asyncio.timeout(120):
            await lab.ready()
        return await _run(lab, plan)


async def _run(lab: Lab, plan: Plan) -> Result:
    honest, hostile = LabCluster(lab, "honest"), LabCluster(lab, "hostile")
    await honest.set_up()
    await hostile.set_up()
    records, witness = HonestPods(PATIENCE_S), Witness(lab)
    breaker = Breaker(lab, records, random.Random(f"faults {plan.seed}"))
    attacker = Attacker(lab, hostile, honest.namespace, random.Random(f"attacks {plan.seed}"))
    started = time.monotonic()
    creating = create_pods(
        honest, records, random.Random(f"pods {plan.seed}"), per_s=plan.pods / plan.seconds, total=plan.pods
    )
    async with _beside(
        observe_pods(honest, records), witness.run(0.5), breaker.run(plan.break_every_s),
        attacker.run(plan.attack_every_s), _progress(started, records, witness),
    ):  # fmt: skip
        await creating
    lost = await _mended(lab, honest)
    return Result(plan, time.monotonic() - started, records, attacker, breaker, witness, lost)


async def _mended(lab: Lab, cluster: LabCluster) -> str:
    """Start what is dead and have every card once; what cannot be had."""
    waiting.begins(MENDING_S)
    for name, node in lab.nodes.items():
        for card in range(len(node.driver.uuids)):
            lab.recover_gpu(name, card)
        await lab.kill_agent(name)
        node.start()
    await lab.start_scheduler()
    lab.kube_scheduler.start()
    with contextlib.suppress(Exception):
        await LabCluster(lab, "hostile").tear_down()
    try:
        await all_cards_can_be_had(lab, cluster)
        wanted = {f"all-{name}": len(node.driver.uuids) for name, node in lab.nodes.items()}
        for pod_name, cards in wanted.items():
            where = {**ANYWHERE, "nodeSelector": {"kubernetes.io/hostname": pod_name.removeprefix("all-")}}
            await create(cluster, pod(cluster, pod_name, whole(cards), **where))
        await running(cluster, wanted)
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return ""


async def _progress(started: float, records: HonestPods, witness: Witness) -> None:
    shown = 0
    while True:
        await asyncio.sleep(60)
        for record in records.hurt[shown : shown + 5]:
            print(f"  HURT {record.name} {record.failure}", flush=True)
        shown = len(records.hurt)
        minutes = (time.monotonic() - started) / 60
        print(
            f"{minutes:.0f} min: {records.created} honest pods, {len(records.existing)} there,"
            f" {len(records.hurt)} hurt, {len(witness.given_twice)} given twice, {resident_mib()} MiB",
            flush=True,
        )


@contextlib.asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these while the body runs; one that fails ends everything."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
        yield
        for task in tasks:
            task.cancel()


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items())) or "none"
