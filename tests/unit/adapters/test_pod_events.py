"""Warnings about pods that have not started, and what is said of them."""

from tests.unit.kube.servers import api_server
from tests.unit.scheduler.explained import gpu, gpus, node, pod

from purser.adapters.objects import read_objects
from purser.adapters.pod_events import with_warnings
from purser.kube.resources import EVENTS, NODES, PODS
from purser.scheduler.explaining import Explainer


def event(name, about, reason, message, kind="Warning"):
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "uid": about},
        "reason": reason,
        "message": message,
        "type": kind,
        "lastTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
    }


async def explained(tmp_path, **spec):
    async with api_server(tmp_path / "kubeconfig", tls=False) as (_, client):
        made = node("n", gpus("n", 1))
        await client.create(NODES, {**made, "apiVersion": "v1"})
        created = await client.create(PODS, {**pod("p", gpu(9), **spec), "apiVersion": "v1"})
        for each in (
            ("e1", created.metadata.uid, "OtherScheduler", "an older word"),
            ("e2", created.metadata.uid, "OtherScheduler", "recreate it\x1b"),
            ("e3", created.metadata.uid, "FailedScheduling", "0/1 nodes"),
            ("e4", created.metadata.uid, "NotServed", "only said", "Normal"),
            ("e5", "another", "NotServed", "of another pod"),
        ):
            await client.create(EVENTS, event(*each))
        objects = await with_warnings(client, await read_objects(client), "Pod", "default", "p")
        return Explainer(objects).explain("default", "p")


async def test_of_a_pod_that_waits_pursers_own_warnings_are_printed(tmp_path):
    found = await explained(tmp_path, schedulerName="volcano")
    assert found.notes == (
        "event OtherScheduler from 2026-01-01T00:00:02Z: recreate it\N{REPLACEMENT CHARACTER}",
        "scheduler volcano places the pod. Purser does not know the rules of that scheduler, such as queues and pod "
        "groups",
    )


async def test_the_rules_of_the_default_scheduler_are_known(tmp_path):
    found = await explained(tmp_path, schedulerName="default-scheduler", schedulingGates=[{"name": "a/b"}])
    assert [each.split()[:2] for each in found.notes] == [["event", "OtherScheduler"]]
