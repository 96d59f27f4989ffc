"""Everything breaks while pods come and go; afterwards the books of all parties agree, and every card can be had."""

import asyncio
import contextlib
import random

import pytest

from purser.adapters.nodes import inventory_of
from purser.core.ledger import Ledger
from purser.kube.errors import ApiError, NotFoundError
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import LabSettings, node_choices
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

FAULTS = ["kubelet", "agent", "scheduler", "card"] * (12 if IS_LONG else 1)
KUBELETS = ["v1.36.2", "v1.20.2"] if IS_LONG else ["v1.36.2"]
MAX_PODS = 30 if IS_LONG else 12
APART_S = 0.05 if IS_LONG else 0.15
"""At most, from one pod that comes or goes to the next."""
ANYWHERE = {"nodeSelector": {}, "schedulerName": "purser-scheduler"}
REQUESTS = (share(4000, 10), share(9000, 30), share(2000, 0), share(3000, 20, 2), half(), whole(), whole(2))


@pytest.fixture
async def chaos_lab(kubelet_version, quiet_logs, tmp_path):
    """Whatever was decided meanwhile is decided again, to the last bit, of the logs of all scheduler processes."""
    nodes, kubelet = node_choices(["a100-40gb-8", "t4-4"]), KubeletSection(version=kubelet_version)
    async with Lab(LabSettings(nodes, kubelet=kubelet, probe_interval_s=0.1, decision_log_folder=tmp_path)) as lab:
        async with asyncio.timeout(60):
            await lab.ready()
        yield lab
    decisions, differences = replayed(tmp_path)
    assert differences == []
    assert decisions > 0
    assert len(list(tmp_path.iterdir())) > 1, "each process begins a file"


@pytest.mark.parametrize("kubelet_version", KUBELETS)
async def test_no_share_is_lost_or_given_twice_whatever_breaks(chaos_lab, kubelet_version):
    cluster = LabCluster(chaos_lab, "chaos")
    await cluster.set_up()
    dice = random.Random(kubelet_version)
    tasks = [asyncio.create_task(come_and_go(cluster, dice)), asyncio.create_task(break_things(chaos_lab, dice))]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
    await mend(chaos_lab, cluster)
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


async def come_and_go(cluster, dice):
    number = 0
    while True:
        there = await pods(cluster)
        if len(there) < MAX_PODS and dice.random() < 0.65:
            number += 1
            # The webhook may go away between its two calls: what was not mutated is then refused, rightly.
            with contextlib.suppress(ApiError):
                await create(cluster, some_pod(cluster, f"pod-{number}", dice))
        elif there:
            name = dice.choice(there)["metadata"]["name"]
            with contextlib.suppress(NotFoundError):
                await cluster.client.delete(PODS, name, cluster.namespace, grace_period_seconds=dice.choice([0, None]))
        await asyncio.sleep(dice.random() * APART_S)


def some_pod(cluster, name, dice):
    init = [container(cluster, dice.choice(REQUESTS[:3]), "prepare", command=["true"])] if dice.random() < 0.2 else None
    made = pod(cluster, name, dice.choice(REQUESTS), init_containers=init, **ANYWHERE)
    if dice.random() < 0.2:
        made["spec"]["containers"].append(container(cluster, share(1000, 5), "beside"))
    return made


async def break_things(lab, dice):
    """Returns after the last fault is over: of a kill that was cut short nobody would know what still runs."""
    for fault in dice.sample(FAULTS, len(FAULTS)):
        await asyncio.sleep(dice.random() * 0.5)
        node = dice.choice(list(lab.nodes))
        match fault:
            case "kubelet":
                await lab.restart_kubelet(node)
            case "agent":
                await lab.kill_agent(node)
                await asyncio.sleep(dice.random() * 0.3)
                lab.start_agent(node)
            case "scheduler":
                await lab.kill_scheduler()
                await asyncio.sleep(dice.random() * 0.3)
                await lab.start_scheduler()
            case "card":
                lab.lose_gpu(node, 0)
                await asyncio.sleep(0.5)
                lab.recover_gpu(node, 0)


async def mend(lab, cluster):
    """Start every agent again: a card that came back before any probe saw it lost stays out."""
    for name in lab.nodes:
        await lab.kill_agent(name)
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
