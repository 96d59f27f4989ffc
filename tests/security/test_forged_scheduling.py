"""Questions in kube-scheduler's name: whoever reaches the extender binds nothing that kube-scheduler would not, and
leaves nothing behind.
"""

import msgspec
import pytest

from purser.adapters.eligibility import why_not_schedulable
from purser.core.kubernetes.taints import PodToleration, Taint
from purser.core.names import GRANT_ANNOTATION
from purser.kube.codec import codec_of
from purser.kube.objects import Node, NodeSpec, ObjectMeta, Pod, PodSpec
from purser.kube.resources import NODES, PODS
from purser.scheduler.reasons import BindFailure
from tests.unit.scheduler.extender_world import eventually, replica, server

GPU, SHARE = {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}


async def pod_of(world, limits, *, labels=None, privileged=False, **spec):
    """A pod that came past the webhook."""
    body = {
        "metadata": {"generateName": "p-", "namespace": "default", "labels": labels or {}},
        "spec": {
            "schedulerName": "purser-scheduler",
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"limits": limits},
                    **({"securityContext": {"privileged": True}} if privileged else {}),
                }
            ],
            **spec,
        },
    }
    pod = await world.client.create(PODS, body)
    await eventually(lambda: world.cache.pod_by_uid(pod.metadata.uid) is not None)
    return pod


@pytest.mark.parametrize(
    ("limits", "changes", "says", "reason"),
    [
        (
            SHARE,
            {"labels": {"purser.dev/webhook": "ignore"}, "privileged": True},
            "excludes the pod from Purser's webhook",
            BindFailure.POD_NOT_ALLOWED,
        ),
        (SHARE, {"privileged": True}, "is privileged but requests a GPU share", BindFailure.POD_NOT_ALLOWED),
        ({"nvidia.com/gpumem": "16Gi"}, {}, "invalid GPU request", BindFailure.POD_NOT_ALLOWED),
        (GPU, {"schedulerName": "volcano"}, 'is for scheduler "volcano"', BindFailure.NOT_FOR_PURSER),
        (
            SHARE,
            {"schedulerName": "default-scheduler"},
            'is for scheduler "default-scheduler"',
            BindFailure.NOT_FOR_PURSER,
        ),
        ({"cpu": "1"}, {}, "does not request GPUs", BindFailure.NOT_FOR_PURSER),
        ({}, {"schedulerName": "default-scheduler"}, "is for scheduler", BindFailure.NOT_FOR_PURSER),
        (
            SHARE,
            {"nodeSelector": {"pool": "other"}},
            "lacks pool=other, which the pod's node selector requires",
            BindFailure.NODE_CLOSED,
        ),
    ],
    ids=[
        "ignore label",
        "privileged share",
        "nonsense",
        "other scheduler",
        "default one",
        "no GPUs",
        "neither",
        "selector",
    ],
)
async def test_bind_asks_again_what_holds_of_every_pod(limits, changes, says, reason):
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        pod = await pod_of(world, limits, **changes)
        assert says in await world.bind(pod, "n1")
        assert world.bind_failures() == {reason}
        stored = await world.stored(pod)
        assert stored.spec.node_name == ""
        assert GRANT_ANNOTATION not in stored.metadata.annotations
        assert world.memory_used("n1") == 0


async def test_nothing_is_bound_to_a_node_that_its_owner_closed_and_a_change_is_heard_of_at_once():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        pod = await pod_of(world, SHARE)
        await close(world, unschedulable=True)
        assert "node n1 is cordoned" in await world.bind(pod, "n1")
        await close(world, unschedulable=False, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
        assert "has taint team=a:NoSchedule, which the pod does not tolerate" in await world.bind(pod, "n1")
        assert world.bind_failures() == {BindFailure.NODE_CLOSED}
        # kube-scheduler may have heard of the change first
        await world.client.patch_merge(NODES, "n1", {"spec": {"taints": None}})
        assert await world.bind(pod, "n1") == ""


async def close(world, **spec):
    await world.client.patch_merge(NODES, "n1", {"spec": spec})
    wanted = spec.get("unschedulable")
    await eventually(lambda: world.cache.node("n1").spec.unschedulable is wanted)
    await eventually(lambda: len(world.cache.node("n1").spec.taints) == len(spec.get("taints", ())))


TAINT = Taint("team", "a", "NoSchedule")
CORDONED = NodeSpec(unschedulable=True)


@pytest.mark.parametrize(
    ("spec", "toleration", "closed"),
    [
        (NodeSpec(taints=(TAINT,)), None, True),
        (NodeSpec(taints=(TAINT,)), PodToleration("team", "Equal", "a", "NoSchedule"), False),
        (NodeSpec(taints=(TAINT,)), PodToleration("team", "", "a"), False),
        (NodeSpec(taints=(TAINT,)), PodToleration("team", "", "b"), True),
        (NodeSpec(taints=(TAINT,)), PodToleration("team", "Exists"), False),
        (NodeSpec(taints=(TAINT,)), PodToleration("", "Exists"), False),
        (NodeSpec(taints=(TAINT,)), PodToleration("", "", ""), True),
        (NodeSpec(taints=(TAINT,)), PodToleration("team", "Exists", "", "NoExecute"), True),
        (NodeSpec(taints=(TAINT,)), PodToleration("team", "Gt", "5"), False),
        (NodeSpec(taints=(Taint("x", "", "PreferNoSchedule"),)), None, False),
        (NodeSpec(taints=(Taint("x", "", "NoExecute"),)), None, True),
        (CORDONED, None, True),
        (CORDONED, PodToleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule"), False),
    ],
)
def test_taints_keep_away_as_kube_scheduler_has_them(spec, toleration, closed):
    pod = Pod(spec=PodSpec(tolerations=(toleration,) if toleration else ()))
    assert bool(why_not_schedulable(pod, Node(ObjectMeta("n1"), spec))) is closed


async def test_filter_offers_pods_of_others_nothing():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        theirs = await pod_of(world, SHARE, schedulerName="volcano")
        result = await world.filter(theirs, "n1")
        assert (result.node_names, list(result.failed_nodes)) == ([], ["n1"])
        assert theirs.metadata.uid not in world.cache.readings  # nor are they read


async def test_questions_about_pods_that_are_not_there_leave_nothing_behind():
    async with server() as api, replica(api) as world:
        await world.add_node("n1", memory=8000)
        there = await world.add_pod("there", memory=99_999)
        before = world.cache.arrivals.mix.epoch
        for number in range(100):
            for uid in (f"uid-{number}", there.metadata.uid):
                result = await world.filter(
                    forged(f"forged-{number}", uid, memory=4000 if number % 2 else 99_999), "n1"
                )
                assert bool(result.node_names) is bool(number % 2)
        assert world.cache.arrivals.mix.epoch == before
        assert await world.event_messages() == []
        await world.add_node("n2", memory=200_000)
        await world.extender.retry_refused()  # nothing to wake anybody for
        assert "purser.dev/room-found" not in (await world.stored(there)).metadata.annotations


def forged(name, uid, memory):
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"schedulerName": "purser-scheduler", "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return codec_of(PODS).object(msgspec.json.encode(body))
