"""Disruption budgets: what the controller writes, and that evictions never take more than there is."""

import asyncio

import pytest

from purser.kube.clock import SystemClock, timestamp
from purser.kube.errors import ApiError
from purser.kube.resources import PODS
from purser.lab.controllers.disruption import BUDGETS, DELETION_TIMEOUT, status_of
from purser.lab.controllers.workloads.replicaset import REPLICA_SETS

NOW = SystemClock().now()
LABELS = {"app": "x"}


def budget(spec, **status):
    selector = {"matchLabels": LABELS}
    return {"metadata": {"name": "b", "generation": 2}, "spec": {"selector": selector, **spec}, "status": status}


def pod(name, *, ready=True, owner="rs", going=False):
    metadata = {"name": name, "labels": LABELS, "ownerReferences": [{"uid": owner, "controller": True}]}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 1),
        ({"minAvailable": "50%"}, 1),
        ({"maxUnavailable": 1}, 0),
        ({"maxUnavailable": "50%"}, 1),
        ({"minAvailable": 9}, 0),
        ({}, 2),
    ],
)
def test_a_budget_allows_what_is_healthy_beyond_what_it_needs(spec, allowed):
    pods = [pod("a"), pod("b"), pod("c"), pod("d", ready=False)]
    assert status_of(budget(spec), pods, {"rs": 4}, NOW)["disruptionsAllowed"] == allowed


def test_pods_that_are_going_are_not_healthy():
    found = status_of(budget({"minAvailable": 1}), [pod("a"), pod("b", going=True)], {"rs": 2}, NOW)
    assert (found["currentHealthy"], found["disruptionsAllowed"]) == (1, 0)


def test_a_pod_whose_eviction_was_allowed_does_not_count_until_its_deletion_is_overdue():
    noted = budget({"minAvailable": 1}, disruptedPods={"a": timestamp(NOW)})
    pods = [pod("a"), pod("b")]
    assert status_of(noted, pods, {"rs": 2}, NOW)["disruptionsAllowed"] == 0
    late = NOW + DELETION_TIMEOUT
    assert status_of(noted, pods, {"rs": 2}, late)["disruptionsAllowed"] == 1
    assert status_of(noted, [pod("b")], {"rs": 2}, NOW)["disruptedPods"] == {}


def test_a_share_of_pods_that_nobody_scales_spares_none():
    assert status_of(budget({"maxUnavailable": 1}), [pod("a", owner="other")], {}, NOW)["disruptionsAllowed"] == 0


async def test_many_evictions_at_once_take_no_more_than_the_budget_spares(world):
    await world.kubelet("n1")
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {
        "metadata": {"name": "r"},
        "spec": {"replicas": 6, "selector": {"matchLabels": LABELS}, "template": template},
    }
    await world.client.create(REPLICA_SETS, body, "default")
    spec = {"maxUnavailable": 2, "selector": {"matchLabels": LABELS}}
    await world.client.create(BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, "default")

    async def spares_two():
        status = (await world.client.get(BUDGETS, "b", "default")).get("status") or {}
        return (status.get("disruptionsAllowed"), status.get("currentHealthy")) == (2, 6)

    await world.until(spares_two)
    first = [each["metadata"]["name"] for each in await world.pods()]
    answers = await asyncio.gather(*(_evict(world, name) for name in first))
    assert sorted(answers) == [201, 201, 429, 429, 429, 429]
    # The evicted ones are recreated, and then others may go.
    await world.until(spares_two)


async def _evict(world, name):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    try:
        await world.client.create_subresource(PODS, name, "eviction", body, "default")
    except ApiError as error:
        return error.status
    return 201
