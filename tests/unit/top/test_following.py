"""What is read from the API server for somebody who looks at one object."""

from tests.unit.kube.servers import ManualClock, api_server, eventually, running
from tests.unit.scheduler.explained import gpu, gpus, node, pod

from purser.kube import SystemClock
from purser.kube.errors import ForbiddenError
from purser.kube.object_events import MAX_EVENTS, ObservedEvent
from purser.kube.objects import ObjectMeta
from purser.kube.resources import NODES, PODS
from purser.top.following import FollowedCluster

ABOUT = {"uid": "u"}


class EventsClient:
    """A client that has events, or none that its user may see."""

    class config:
        server = "https://cluster"

    def __init__(self, events):
        self.events, self.asked = events, []

    async def pages(self, resource, namespace, *, field_selector, size, most):
        self.asked.append((resource.plural, namespace, field_selector))
        if self.events is None:
            raise ForbiddenError(403, "Forbidden", "no")
        for start in range(0, min(len(self.events), size * most), size):
            yield self.events[start : start + size]


def event(second):
    meta = ObjectMeta(annotations={"large": "x" * 1000}, creation_timestamp=f"2027-01-15T07:59:{second:02}Z")
    return ObservedEvent(metadata=meta, reason=str(second))


async def test_events_are_read_once_for_a_while_and_the_last_are_kept():
    client, clock = EventsClient([event(second) for second in range(MAX_EVENTS + 5)]), ManualClock()
    followed = FollowedCluster(client, clock, lambda _: [])
    found = await followed.events("team-a", ABOUT)
    assert [each.reason for each in found] == [str(second) for second in range(5, MAX_EVENTS + 5)]
    assert found[-1].seen_at.endswith("54Z")
    await followed.events("team-a", ABOUT)
    assert client.asked == [("events", "team-a", "involvedObject.uid=u")]
    clock.advance(60)
    await followed.events("team-a", ABOUT)
    assert len(client.asked) == 2


async def test_who_may_not_list_events_sees_the_page_without_them():
    assert await FollowedCluster(EventsClient(None), ManualClock(), lambda _: []).events("team-a", ABOUT) is None


async def test_an_api_server_that_goes_away_is_reported_and_so_is_its_return(tmp_path, monkeypatch):
    """Neither changes an object."""
    monkeypatch.setattr("purser.top.following._PROBLEM_PERIOD_S", 0.01)
    async with api_server(tmp_path / "kubeconfig") as (api, client):
        followed = FollowedCluster(client, SystemClock(), lambda _: [])
        reported = []
        async with running(followed.run(lambda: reported.append(followed.problem))):
            await eventually(lambda: followed.state is not None)
            await api.stop()
            await eventually(lambda: reported and reported[-1].startswith("not up to date: "))
            await api.start()
            await eventually(lambda: reported[-1] == "")


async def test_claims_are_followed_once_a_pod_names_one(tmp_path):
    """As `purser why` reads them: without them such a pod would be said to fit."""
    async with api_server(tmp_path / "kubeconfig") as (_, client):
        await client.create(NODES.raw(), node("n", gpus("n", 1)))
        followed = FollowedCluster(client, SystemClock(), lambda found: [found.objection])

        def message():
            return next((each.message for each in followed.state.waiting), "") if followed.state else ""

        async with running(followed.run(lambda: None)):
            uses = [{"name": "nic", "resourceClaimName": "nic"}]
            body = pod("p", gpu(), resourceClaims=uses)
            await client.create(PODS.raw(), {"metadata": {"name": "p"}, "spec": body["spec"]}, "default")
            await eventually(lambda: message() == "ResourceClaim nic does not exist")
