import asyncio
import json
from typing import assert_type

import pytest
from aiohttp import web
from tests.unit.kube.servers import (
    HastyClock,
    ManualClock,
    client_of,
    eventually,
    line,
    listing,
    pod,
    port_of_nobody,
    refuse,
    serving,
    status,
)

from purser.kube import (
    AlreadyExistsError,
    ApiError,
    ApiUnavailableError,
    Bookmark,
    Change,
    ChangeType,
    Client,
    ClusterConfig,
    ConflictError,
    DecodeError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    Raw,
    ServerError,
    TooManyRequestsError,
    untyped_resource,
)
from purser.kube.objects import Pod
from purser.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS, SECRETS


class Recorder:
    """Answers in the order given, the last one for ever, and remembers what was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def handle(self, request):
        body = await request.read()
        self.requests.append((request.method, request.raw_path, request.content_type, json.loads(body or "null")))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        # A response can be sent once only; the last answer is rebuilt each time.
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers.copy(), reason=answer.reason)


def answer(body, code=200):
    return web.json_response(body, status=code)


async def test_objects_are_read_into_structs_and_by_wish_whole():
    recorder = Recorder(answer(pod("a", note="x") | {"extra": [1]}))
    async with client_of(recorder.handle) as client:
        read = await client.get(PODS, "a", "ns")
        assert_type(read, Pod)
        assert (read.metadata.name, read.metadata.annotations) == ("a", {"note": "x"})
        whole = await client.get(PODS.raw(), "a", "ns")
        assert_type(whole, Raw)
        assert whole["extra"] == [1]
    assert recorder.requests[0][:2] == ("GET", "/api/v1/namespaces/ns/pods/a")


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("ns", "a", "status"), "/api/v1/namespaces/ns/pods/a/status"),
        (NODES, (None, "n1"), "/api/v1/nodes/n1"),
        (LEASES, ("ns",), "/apis/coordination.k8s.io/v1/namespaces/ns/leases"),
        (untyped_resource("purser.dev", "v1", "things", "Thing", namespaced=False), (None, "a/../b"), None),
    ],
)
def test_paths_are_the_apis_and_names_cannot_leave_them(resource, arguments, path):
    assert resource.path(*arguments) == (path or "/apis/purser.dev/v1/things/a%2F..%2Fb")


def test_a_path_without_sense_is_refused():
    with pytest.raises(ValueError, match="cluster-scoped"):
        NODES.path("ns", "n1")
    with pytest.raises(ValueError, match="Pod 'a' needs a namespace"):
        PODS.path(None, "a")


async def test_a_list_is_read_page_by_page_with_the_selectors_on_each():
    recorder = Recorder(listing([pod("a")], 5, "t k"), listing([pod("b")], 7))
    async with client_of(recorder.handle) as client:
        found = await client.list(PODS, label_selector="app in (x,y)", field_selector="spec.nodeName=n1")
    assert [item.metadata.name for item in found.items] == ["a", "b"]
    assert found.resource_version == "5"
    queries = [path for _, path, _, _ in recorder.requests]
    assert all("labelSelector=app" in query and "fieldSelector=spec.nodeName%3Dn1" in query for query in queries)
    assert "limit=500" in queries[0] and "continue" not in queries[0]
    assert "limit=500" in queries[1] and "continue=t+k" in queries[1]


async def test_a_list_whose_pages_expire_is_read_again_in_one_piece():
    recorder = Recorder(listing([pod("a")], 5, "t"), refuse(410, "Expired"), listing([pod("b"), pod("c")], 9))
    async with client_of(recorder.handle) as client:
        found = await client.list(PODS, "ns")
    assert ([item.metadata.name for item in found.items], found.resource_version) == (["b", "c"], "9")
    assert "limit" not in recorder.requests[2][1]


async def test_an_empty_list_may_be_null():
    async with client_of(Recorder(answer({"metadata": {"resourceVersion": "5"}, "items": None})).handle) as client:
        assert (await client.list(PODS)).items == []


async def test_a_watch_gives_typed_events_and_raises_what_the_server_sends():
    stream = line("ADDED", pod("a", 6)) + line("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
    stream += line("ERROR", status(410, "Expired")) + line("ADDED", pod("never"))
    async with client_of(Recorder(web.Response(body=stream)).handle) as client:
        seen = []
        with pytest.raises(GoneError):
            async with client.watch(PODS, "ns", resource_version="5") as events:
                async for event in events:
                    assert_type(event, Change[Pod] | Bookmark)
                    seen.append(event)
    assert isinstance(seen[0], Change)
    assert (seen[0].type, seen[0].object.metadata.name) == (ChangeType.ADDED, "a")
    assert seen[1] == Bookmark("7")
    assert len(seen) == 2


async def test_a_watch_of_a_client_that_is_left_meanwhile_ends_in_the_clients_own_error():
    goes_on = asyncio.Event()

    async def handle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", pod("a", 6)))
        await goes_on.wait()
        return response

    async with serving(handle) as url:
        client = await Client(ClusterConfig.insecure(url)).__aenter__()
        with pytest.raises(ApiUnavailableError, match=r"pods.*Connection closed"):
            async with client.watch(PODS, "ns", resource_version="5") as events:
                await anext(events)
                await client.__aexit__(None, None, None)
                await anext(events)
        goes_on.set()


@pytest.mark.parametrize("garbage", [b"hello\n", b"[]\n", b'{"type":"BOOKMARK","object":3}\n', b"[" * 9999 + b"\n"])
async def test_a_watch_that_is_none_is_a_decode_error(garbage):
    async with client_of(Recorder(web.Response(body=garbage)).handle) as client:
        with pytest.raises(DecodeError):
            async with client.watch(PODS, resource_version="5") as events:
                await anext(events)


@pytest.mark.parametrize("kind", ["BOOKMARK", "ERROR"])
async def test_a_known_event_that_cannot_be_read_is_not_called_unknown(kind):
    async with client_of(Recorder(web.Response(body=line(kind, {"metadata": 3, "code": "x"}))).handle) as client:
        with pytest.raises(DecodeError, match=rf"^cannot read the {kind} event of the watch on pods: "):
            async with client.watch(PODS, resource_version="5") as events:
                await anext(events)


async def test_writes_are_dicts_with_kind_and_field_manager():
    recorder = Recorder(answer({"metadata": {"name": "a"}, "data": {"k": "v"}}))
    body = {"metadata": {"name": "a", "namespace": "ns"}, "data": {"k": "v"}}
    whole = {"apiVersion": "v1", "kind": "ConfigMap"} | body
    async with client_of(recorder.handle, field_manager="me") as client:
        await client.create(CONFIG_MAPS, body)
        await client.apply(CONFIG_MAPS, body, force=True)
        await client.replace(CONFIG_MAPS.raw(), body)
        await client.patch_merge(CONFIG_MAPS, "a", {"data": {"k": None}}, "ns")
        await client.patch_json(CONFIG_MAPS, "a", [{"op": "test", "path": "/data/k", "value": "v"}], "ns")
        await client.patch_merge(NODES, "n1", {"status": {}}, subresource="status")
    where = "/api/v1/namespaces/ns/configmaps"
    assert recorder.requests == [
        ("POST", f"{where}?fieldManager=me", "application/json", whole),
        ("PATCH", f"{where}/a?fieldManager=me&force=true", "application/apply-patch+yaml", whole),
        ("PUT", f"{where}/a?fieldManager=me", "application/json", whole),
        ("PATCH", f"{where}/a?fieldManager=me", "application/merge-patch+json", {"data": {"k": None}}),
        (
            "PATCH",
            f"{where}/a?fieldManager=me",
            "application/json-patch+json",
            [{"op": "test", "path": "/data/k", "value": "v"}],
        ),
        ("PATCH", "/api/v1/nodes/n1/status?fieldManager=me", "application/merge-patch+json", {"status": {}}),
    ]


async def test_a_struct_cannot_be_written():
    async with client_of(Recorder(answer({})).handle) as client:
        for write in (client.create, client.apply, client.replace):
            with pytest.raises(TypeError):
                await write(PODS, Pod())


async def test_a_delete_carries_its_preconditions():
    recorder = Recorder(answer({"status": "Success"}))
    async with client_of(recorder.handle) as client:
        await client.delete(PODS, "a", "ns", uid="u", grace_period_seconds=0, propagation="Background")
        await client.delete(NODES, "n1")
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert [body for *_, body in recorder.requests] == [
        options | {"gracePeriodSeconds": 0, "propagationPolicy": "Background", "preconditions": {"uid": "u"}},
        options,
    ]


async def test_a_bind_is_one_binding_with_annotations_and_the_pods_uid():
    recorder = Recorder(answer({"kind": "Status", "status": "Success"}, 201))
    async with client_of(recorder.handle) as client:
        await client.bind("ns", "a", "uid-a", "n1", {"purser.dev/grant": "{}"})
    ((method, path, _, body),) = recorder.requests
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/a/binding?fieldManager=purser")
    assert body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a", "annotations": {"purser.dev/grant": "{}"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (refuse(403, "Forbidden"), ForbiddenError),
        (refuse(404, "NotFound"), NotFoundError),
        (refuse(409, "Conflict"), ConflictError),
        (refuse(409, "AlreadyExists"), AlreadyExistsError),
        (refuse(410, "Gone"), GoneError),
        (refuse(422, "Invalid", causes=[{"field": "spec"}]), InvalidError),
        (refuse(429, "TooManyRequests"), TooManyRequestsError),
        (refuse(500, "InternalError"), ServerError),
        (web.Response(status=404, text="404 page not found"), NotFoundError),
        (web.Response(status=418, body=b"\xff\xfe"), ApiError),
        (web.Response(status=302, headers={"Location": "/elsewhere"}), ApiError),
    ],
)
async def test_each_refusal_has_its_error_with_the_servers_words(response, kind):
    recorder = Recorder(response)
    async with client_of(recorder.handle) as client:
        with pytest.raises(ApiError) as caught:
            await client.create(PODS, pod("a"))
    assert type(caught.value) is kind
    assert caught.value.status == response.status
    if response.content_type == "application/json":
        assert caught.value.message == "told by the test"
        assert dict(caught.value.details) == json.loads(response.body)["details"]
    assert len(recorder.requests) == 1


async def test_secrets_come_decoded_and_do_not_show_in_logs():
    body = {"metadata": {"name": "s", "namespace": "ns"}, "data": {"key": "aHVzaA=="}}
    async with client_of(Recorder(answer(body)).handle) as client:
        secret = await client.get(SECRETS, "s", "ns")
    assert secret.data == {"key": b"hush"}
    assert "hush" not in repr(secret)


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_reads_are_tried_again_when_the_server_stumbles(code):
    recorder = Recorder(refuse(code, ""), refuse(code, ""), answer(pod("a")))
    async with client_of(recorder.handle, clock=HastyClock()) as client:
        assert (await client.get(PODS, "a", "ns")).metadata.name == "a"
    assert len(recorder.requests) == 3


@pytest.mark.parametrize("seconds", [{"retryAfterSeconds": 1}, {}])
async def test_retry_after_is_waited_for_writes_included(seconds):
    clock = HastyClock()
    recorder = Recorder(refuse(429, "TooManyRequests", headers={"Retry-After": "1"}, **seconds), answer(pod("a")))
    async with client_of(recorder.handle, clock=clock) as client:
        await client.create(PODS, pod("a"))
    assert len(recorder.requests) == 2
    assert len(clock.slept) == 1
    assert 1 <= clock.slept[0] <= 2


async def test_a_wait_beyond_the_deadline_is_not_begun():
    recorder = Recorder(refuse(429, "TooManyRequests", retryAfterSeconds=60))
    async with client_of(recorder.handle) as client:
        with pytest.raises(TooManyRequestsError) as caught:
            await client.get(PODS, "a", "ns")
    assert caught.value.retry_after_s == 60
    assert len(recorder.requests) == 1


async def test_a_call_ends_at_its_deadline_and_says_whether_it_may_have_been_carried_out():
    async def silent(request):
        await asyncio.Event().wait()

    async with client_of(silent, timeout=0.05) as client:
        with pytest.raises(ApiUnavailableError, match=r"http.* did not answer GET .* within 0.05 s") as read:
            await client.get(PODS, "a", "ns")
        with pytest.raises(ApiUnavailableError) as written:
            await client.create(PODS, pod("a"))
    assert not read.value.outcome_unknown
    assert written.value.outcome_unknown


async def test_a_refused_connection_is_tried_again_even_for_writes():
    recorder = Recorder(answer(pod("a")))
    with port_of_nobody() as port:
        clock = ManualClock()
        async with Client(ClusterConfig.insecure(f"http://127.0.0.1:{port}"), clock=clock) as client:
            write = asyncio.create_task(client.create(PODS, pod("a")))
            await eventually(lambda: clock.sleepers)
            async with serving(recorder.handle, port=port):
                clock.advance(60)
                assert (await write).metadata.name == "a"


async def test_nobody_listening_is_an_error_with_the_address_and_a_known_outcome():
    with port_of_nobody() as port:
        url = f"http://127.0.0.1:{port}"
        async with Client(ClusterConfig.insecure(url)) as client:
            with pytest.raises(ApiUnavailableError, match=url) as caught:
                await client.create(PODS, pod("a"))
    assert not caught.value.outcome_unknown


async def test_a_write_whose_connection_breaks_is_not_sent_twice():
    seen = []

    async def breaks(request):
        seen.append(await request.read())
        request.transport.abort()
        return web.Response()

    async with client_of(breaks) as client:
        with pytest.raises(ApiUnavailableError) as caught:
            await client.create(PODS, pod("a"))
    assert caught.value.outcome_unknown
    assert len(seen) == 1


async def test_an_answer_that_is_no_object_is_a_decode_error():
    async with client_of(Recorder(web.Response(text="<html>")).handle) as client:
        with pytest.raises(DecodeError, match="Pod without a readable name cannot be read"):
            await client.get(PODS, "a", "ns")
        with pytest.raises(DecodeError, match="the list of pods cannot be read"):
            await client.list(PODS)
        with pytest.raises(DecodeError, match="/version"):
            await client.version()


async def test_a_server_below_a_path_is_reached():
    recorder = Recorder(answer(pod("a")))
    async with serving(recorder.handle) as url, Client(ClusterConfig.insecure(f"{url}/k8s/clusters/c-1/")) as client:
        await client.get(PODS, "a", "ns")
    assert recorder.requests[0][1] == "/k8s/clusters/c-1/api/v1/namespaces/ns/pods/a"


async def test_a_client_outside_its_context_says_so():
    with pytest.raises(RuntimeError, match="async with"):
        await Client(ClusterConfig.insecure("http://127.0.0.1:1")).version()
