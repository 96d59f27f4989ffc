"""Everything breaks while pods come and go; afterwards the books of all parties agree, and every card can be had."""

import asyncio
import contextlib
import os
import random

import pytest

from purser.adapters.nodes import inventory_of
from purser.agent.health.memory import BOOT_ID
from purser.core.ledger import Ledger
from purser.kube.errors import ApiError, NotFoundError
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.folders import node_folders
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.decision_logs import replayed
from tests.lab.lab_cluster import LabCluster, check_invariants
from tests.scenarios.actions import (
    check_environment,
    create,
    eventually,
    grant_of,
    is_running,
    pods,
    running,
    story,
)
from tests.scenarios.pods import GPU, container, half, pod, share, whole
from tests.tiers import IS_LONG

FAULTS = ["kubelet", "agent", "scheduler", "card"] * (6 if IS_LONG else 1)
KUBELETS = ["v1.36.2", "v1.20.2"] if IS_LONG else ["v1.36.2"]
MAX_PODS = 30 if IS_LONG else 12
APART_S = 0.05 if IS_LONG else 0.15
"""At most, from one pod that comes or goes to the next."""
MAX_STEPS = 12 if IS_LONG else 4
"""At most so many pods come or go from one fault to the next, or while a card is lost; half while a process is dead."""
SEED = int(os.environ.get("PURSER_CHAOS_SEED", "1"))
ANYWHERE = {"nodeSelector": {}, "schedulerName": "purser-scheduler"}
REQUESTS = (share(4000, 10), share(9000, 30), share(2000, 0), share(3000, 20, 2), half(), whole(), whole(2))


@pytest.fixture
async def chaos_lab(kubelet_version, quiet_logs, tmp_path):
    """Whatever was decided meanwhile is decided again, to the last bit, of the logs of all scheduler processes."""
    nodes, kubelet = node_choices(["a100-40gb-8", "t4-4"]), KubeletSection(version=kubelet_version)
    async with Lab(LabSettings(nodes, kubelet=kubelet, probe_interval_s=0.1, decision_log_folder=tmp_path)) as lab:
        async with waiting.limit():
            await lab.ready()
        yield lab
    decisions, differences = replayed(tmp_path)
    assert differences == []
    assert decisions > 0
    assert len(list(tmp_path.iterdir())) > 1, "each process begins a file"


@pytest.mark.parametrize(
    ("kubelet_version", "seed"), [pytest.param(each, SEED, id=f"{each}, seed {SEED}") for each in KUBELETS]
)
async def test_no_share_is_lost_or_given_twice_whatever_breaks(chaos_lab, kubelet_version, seed):
    cluster = LabCluster(chaos_lab, "chaos")
    await cluster.set_up()
    churn = Churn(cluster, random.Random(f"pods {seed}"))
    async with asyncio.TaskGroup() as group:
        group.create_task(churn.run())
        await break_things(chaos_lab, churn, random.Random(f"faults {seed}"))
        churn.is_over = True
    await remedy(chaos_lab, cluster)
    await delete_all(cluster, lambda one: one["status"].get("phase") == "Failed")
    await eventually(cluster, "no pod is between two states", lambda: settled(cluster))
    await check_all_books(chaos_lab, cluster)
    await check_invariants(chaos_lab)
    await delete_all(cluster, lambda one: True)
    # One after the other: while a card of the large node is not trusted yet, the four would take others of it.
    await create(cluster, pod(cluster, "eight", whole(8), **ANYWHERE))
    await running(cluster, ["eight"])
    await create(cluster, pod(cluster, "four", whole(4), **ANYWHERE))
    await running(cluster, ["eight", "four"])


class Churn:
    """Pods come and go. Its steps are the time that faults go by, however fast the machine is."""

    def __init__(self, cluster, dice):
        self.is_over = False
        self._cluster, self._dice = cluster, dice
        self._steps, self._stepped = 0, asyncio.Event()

    async def run(self):
        """Until it is over: no request is cut short, of which nobody would know whether its pod is still to come."""
        number = 0
        while not self.is_over:
            number += 1
            await self._step(f"pod-{number}")
            self._steps += 1
            self._stepped.set()
            await asyncio.sleep(self._dice.random() * APART_S)

    async def steps(self, count):
        """Return after so many more."""
        wanted = self._steps + count
        while self._steps < wanted:
            self._stepped.clear()
            await self._stepped.wait()

    async def _step(self, name):
        cluster, dice = self._cluster, self._dice
        there = await pods(cluster)
        if len(there) < MAX_PODS and dice.random() < 0.65:
            # The webhook may go away between its two calls: what was not mutated is then refused, rightly.
            with contextlib.suppress(ApiError):
                await create(cluster, some_pod(cluster, name, dice))
        elif there:
            leaving = dice.choice(there)["metadata"]["name"]
            with contextlib.suppress(NotFoundError):
                await cluster.client.delete(
                    PODS, leaving, cluster.namespace, grace_period_seconds=dice.choice([0, None])
                )


def some_pod(cluster, name, dice):
    init = [container(cluster, dice.choice(REQUESTS[:3]), "prepare", command=["true"])] if dice.random() < 0.2 else None
    made = pod(cluster, name, dice.choice(REQUESTS), init_containers=init, **ANYWHERE)
    if dice.random() < 0.2:
        made["spec"]["containers"].append(container(cluster, share(1000, 5), "beside"))
    return made


async def break_things(lab, churn, dice):
    """Returns after the last fault is over: of a kill that was cut short nobody would know what still runs."""
    for fault in dice.sample(FAULTS, len(FAULTS)):
        await churn.steps(dice.randint(0, MAX_STEPS))
        node = dice.choice(list(lab.nodes))
        match fault:
            case "kubelet":
                await lab.restart_kubelet(node)
            case "agent":
                await lab.kill_agent(node)
                await churn.steps(dice.randint(0, MAX_STEPS // 2))
                lab.start_agent(node)
            case "scheduler":
                await lab.kill_scheduler()
                await churn.steps(dice.randint(0, MAX_STEPS // 2))
                await lab.start_scheduler()
            case "card":
                lab.lose_gpu(node, 0)
                await churn.steps(dice.randint(0, MAX_STEPS))
                lab.recover_gpu(node, 0)


async def remedy(lab, cluster):
    """Start every agent again, as after a reboot: a card that came back before any probe saw it lost stays out."""
    for name in lab.nodes:
        await lab.kill_agent(name)
    for place in range(len(lab.nodes)):
        (node_folders(lab.folder, place).host_root / BOOT_ID).write_text("the next\n")
    # What is offered from then on is what the next agents say.
    await eventually(cluster, "no node offers any slot", lambda: offered(cluster, dict.fromkeys(lab.nodes, 0)))
    for name in lab.nodes:
        lab.start_agent(name)
    wanted = {name: 10 * len(node.driver.uuids) for name, node in lab.nodes.items()}
    await eventually(cluster, "every node offers all of its slots", lambda: offered(cluster, wanted))
    # kubelet hears of a card that is back before the scheduler does.
    await eventually(cluster, "every node reports all of its cards", lambda: reported(lab, cluster))


async def reported(lab, cluster):
    """Whether the inventory of each node has all of its cards."""
    inventories = [inventory_of(node) for node in (await cluster.client.list(NODES)).items]
    found = {each.node: {device.uuid for device in each.devices} for each in inventories if each is not None}
    assert found == {name: set(node.driver.uuids) for name, node in lab.nodes.items()}, found
    return True


async def offered(cluster, wanted):
    """Whether each node offers so many slots."""
    nodes = (await cluster.client.list(NODES)).items
    found = {node.metadata.name: int(node.status.allocatable.get(GPU, 0)) for node in nodes}
    assert found == wanted, found
    return True


async def settled(cluster):
    """Every pod that has a node runs there."""
    between = [one["metadata"]["name"] for one in await pods(cluster) if between_states(one)]
    assert not between, f"neither waiting nor running: {between}"
    return True


def between_states(one):
    return bool(one["spec"].get("nodeName")) and one["status"].get("phase") != "Failed" and not is_running(one)


async def check_all_books(lab, cluster):
    """`check_books` over several nodes, with pods that kubelet rejected still there."""
    ledger = Ledger()
    for node in (await cluster.client.list(NODES)).items:
        ledger.set_inventory(inventory_of(node))
    alive = [one for one in await pods(cluster) if is_running(one)]
    for one in alive:
        ledger.adopt(grant_of(one))
    assert ledger.violations() == ()
    for name in lab.nodes:
        held = await cluster.pod_resources(name)
        ids = [id_ for of_container in held.values() for id_ in of_container]
        assert len(ids) == len(set(ids)), f"kubelet of {name} gave an id twice"
        for one in (one for one in alive if one["spec"]["nodeName"] == name):
            for part in grant_of(one).containers:
                key = (cluster.namespace, one["metadata"]["name"], part.container)
                if key in held:
                    assert {id_.partition("::")[0] for id_ in held[key]} == set(part.uuids), await story(cluster)
                await check_environment(cluster, one, part.container)


async def delete_all(cluster, which):
    names = [one["metadata"]["name"] for one in await pods(cluster) if which(one)]
    for name in names:
        with contextlib.suppress(NotFoundError):
            await cluster.client.delete(PODS, name, cluster.namespace, grace_period_seconds=0)

    async def gone():
        return not {one["metadata"]["name"] for one in await pods(cluster)} & set(names)

    await eventually(cluster, "the pods are gone", gone)
