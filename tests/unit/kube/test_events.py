import asyncio
from datetime import datetime

from aiohttp import web
from tests.unit.kube.servers import ManualClock, client_of, eventually, refuse

from purser.kube import EventRecorder, ref_of
from purser.kube.objects import Node, ObjectMeta, Pod
from purser.kube.resources import NODES, PODS

POD = Pod(ObjectMeta(name="a", namespace="ns", uid="u", resource_version="5"))


class EventServer:
    """Keeps Events as they are posted and patched."""

    def __init__(self):
        self.events = {}
        self.requests = []
        self.answer = None

    async def handle(self, request):
        self.requests.append(request.method)
        if self.answer:
            return await self.answer()
        body = await request.json()
        if request.method == "POST":
            if body["metadata"]["name"] in self.events:
                return refuse(409, "AlreadyExists")
            self.events[body["metadata"]["name"]] = body
            return web.json_response(body, status=201)
        name = request.path.rsplit("/", 1)[1]
        if name not in self.events:
            return refuse(404, "NotFound")
        self.events[name] |= body
        return web.json_response(self.events[name])


async def test_an_event_names_its_object_and_who_speaks():
    server = EventServer()
    async with client_of(server.handle) as client, EventRecorder(client, "purser-scheduler", "s-1") as recorder:
        recorder.event(ref_of(PODS, POD), "FailedScheduling", "No node has room.", "Warning")
    (event,) = server.events.values()
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "a", "uid": "u"}
    assert (event["reason"], event["message"], event["type"]) == ("FailedScheduling", "No node has room.", "Warning")
    assert (event["reportingComponent"], event["reportingInstance"]) == ("purser-scheduler", "s-1")
    assert event["metadata"]["namespace"] == "ns"
    assert "eventTime" not in event


async def test_an_events_name_has_its_time_to_the_microsecond_and_no_other_event_has_it():
    server, clock = EventServer(), ManualClock()
    async with (
        client_of(server.handle) as client,
        EventRecorder(client, "c", "i", clock=clock, exact_times=True) as recorder,
    ):
        for number in range(20):
            recorder.event(ref_of(PODS, POD), "Granted", f"GPU {number}")
    assert len(server.events) == 20
    for name, event in server.events.items():
        at = datetime.fromisoformat(event["eventTime"])
        assert at == clock.now()
        assert int(name.removeprefix("a."), 16) // 1000 == round(at.timestamp() * 1_000_000)


async def test_an_event_has_its_own_annotations():
    server = EventServer()
    async with client_of(server.handle) as client, EventRecorder(client, "c", "i") as recorder:
        recorder.event(ref_of(PODS, POD), "Granted", "GPU 0", annotations={"a": "1"})
        recorder.event(ref_of(PODS, POD), "Granted", "GPU 0", annotations={"a": "2"})
        recorder.event(ref_of(PODS, POD), "Other", "GPU 0")
    found = [event["metadata"].get("annotations") for event in server.events.values()]
    assert found == [{"a": "1"}, {"a": "2"}, None]


async def test_events_on_cluster_scoped_objects_go_to_the_default_namespace():
    server = EventServer()
    async with client_of(server.handle) as client, EventRecorder(client, "c", "i") as recorder:
        recorder.event(ref_of(NODES, Node(ObjectMeta(name="n" * 253, uid="u"))), "Reason", "m" * 2000)
    (event,) = server.events.values()
    assert event["metadata"]["namespace"] == "default"
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) == 1024


async def test_the_same_event_again_raises_the_count_also_from_a_newer_version_of_the_object():
    server = EventServer()
    clock = ManualClock()
    newer = Pod(ObjectMeta(name="a", namespace="ns", uid="u", resource_version="6"))
    async with client_of(server.handle) as client, EventRecorder(client, "c", "i", clock=clock) as recorder:
        recorder.event(ref_of(PODS, POD), "Reason", "again")
        recorder.event(ref_of(PODS, POD), "Reason", "another")
        clock.advance(60)
        recorder.event(ref_of(PODS, newer), "Reason", "again")
    assert sorted((event["message"], event["count"]) for event in server.events.values()) == [
        ("again", 2),
        ("another", 1),
    ]


async def test_an_event_that_the_server_forgot_is_posted_again():
    server = EventServer()
    async with client_of(server.handle) as client, EventRecorder(client, "c", "i") as recorder:
        recorder.event(ref_of(PODS, POD), "Reason", "again")
        await recorder.drain()
        server.events.clear()
        recorder.event(ref_of(PODS, POD), "Reason", "again")
        await recorder.drain()
        recorder.event(ref_of(PODS, POD), "Reason", "again")
    (event,) = server.events.values()
    assert event["count"] == 2
    assert server.requests == ["POST", "PATCH", "POST", "PATCH"]


async def test_an_object_that_is_talked_about_too_much_is_cut_off_and_others_are_not():
    server = EventServer()
    clock = ManualClock()
    other = Pod(ObjectMeta(name="b", namespace="ns", uid="v"))
    async with client_of(server.handle) as client, EventRecorder(client, "c", "i", clock=clock) as recorder:
        for number in range(30):
            recorder.event(ref_of(PODS, POD), "Reason", f"message {number}")
        assert recorder.dropped == 5
        recorder.event(ref_of(PODS, other), "Reason", "message")
        clock.advance(300)
        recorder.event(ref_of(PODS, POD), "Reason", "after five minutes")
    assert recorder.dropped == 5
    assert len(server.events) == 27


async def test_a_burst_for_one_reason_does_not_cut_off_another():
    server = EventServer()
    async with client_of(server.handle) as client, EventRecorder(client, "c", "i", clock=ManualClock()) as recorder:
        for number in range(60):
            recorder.event(ref_of(PODS, POD), "GpuUnhealthy", f"reading {number} failed", "Warning")
        recorder.event(ref_of(PODS, POD), "GpuRecovered", "all is well")
    assert "all is well" in {event["message"] for event in server.events.values()}


async def test_a_burst_is_posted_at_a_limited_rate():
    server = EventServer()
    clock = ManualClock()
    async with client_of(server.handle) as client, EventRecorder(client, "c", "i", clock=clock) as recorder:
        for number in range(120):
            about = Pod(ObjectMeta(name=f"p{number}", namespace="ns", uid=f"u{number}"))
            recorder.event(ref_of(PODS, about), "Granted", "a card")
        await eventually(lambda: len(server.events) == 100)
        await eventually(lambda: clock.sleepers)
        assert len(server.events) == 100
        while len(server.events) < 120:
            clock.advance(0.1)
            await asyncio.sleep(0.001)
        assert clock.monotonic() >= 1.8
        told = {event["lastTimestamp"] for event in server.events.values()}
        assert len(told) == 1, "when it was said, not when it was posted"
    assert recorder.dropped == 0


async def test_warnings_go_before_other_events_that_wait_and_find_room_where_these_do_not():
    server = EventServer()
    pods = [Pod(ObjectMeta(name=f"p{number}", namespace="ns", uid=f"u{number}")) for number in range(4200)]
    async with client_of(server.handle) as client:
        recorder = EventRecorder(client, "c", "i")
        for about in pods:
            recorder.event(ref_of(PODS, about), "Granted", "a GPU")
        dropped = recorder.dropped
        for about in pods[:2]:
            recorder.event(ref_of(PODS, about), "GpuUnhealthy", "the GPU is lost", "Warning")
        assert recorder.dropped == dropped > 0
        task = asyncio.create_task(recorder.run())
        await eventually(lambda: len(server.events) >= 3)
        task.cancel()
        await asyncio.wait({task})
    first = [(event["reason"], event["involvedObject"]["name"]) for event in server.events.values()][:3]
    assert first == [("GpuUnhealthy", "p0"), ("GpuUnhealthy", "p1"), ("Granted", "p0")]


async def test_refusals_and_a_server_that_hangs_never_reach_the_caller():
    server = EventServer()

    async def forbid():
        return refuse(403, "Forbidden")

    async def hang():
        await asyncio.Event().wait()

    async with client_of(server.handle) as client:
        recorder = EventRecorder(client, "c", "i")
        task = asyncio.create_task(recorder.run())
        server.answer = forbid
        recorder.event(ref_of(PODS, POD), "Reason", "refused")
        await eventually(lambda: recorder.dropped == 1)
        server.answer = hang
        for number in range(4200):
            about = Pod(ObjectMeta(name=f"p{number}", namespace="ns", uid=f"u{number}"))
            recorder.event(ref_of(PODS, about), "Reason", "stuck")
        assert recorder.dropped > 50
        await recorder.drain(timeout=0.01)
        task.cancel()
        await asyncio.wait({task})
