"""A scheduler that is asked, and whatever may answer in its place."""

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from tests.unit.cli.typed import beside
from tests.unit.kube.certificates import Authority
from tests.unit.kube.servers import HastyClock, StandingClock, running, serving

from purser.core.state import ClusterState, PodDetails, StateEvent, StateEvents, StateReplica, StateStep, rollout
from purser.kube import ConfigError, KubeError, SystemClock
from purser.top import asking
from purser.top.asking import (
    POLL_INTERVAL_S,
    PolledScheduler,
    ReadAnswerError,
    ReadApi,
    StateReader,
    reason_lines,
    token_from_file,
)

from .states import cluster, details, node, waiting

STATE = cluster((node("n1"),), (), (waiting("big"),))
STEP = StateStep("Created", "2027-01-15T08:00:00Z", 0)
EVENT = StateEvent("Pulled", "it is there", "Normal", 1, "2027-01-15T08:00:00Z", "kubelet")


@asynccontextmanager
async def reading(tmp_path, handler):
    authority = Authority()
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    ca.write_bytes(authority.pem)
    token.write_text("secret\n")
    context = authority.server_context(tmp_path, "localhost", ip="127.0.0.1")
    async with serving(handler, context) as url:
        api = ReadApi(url, token_from_file(token), ca)
        async with StateReader(api) as reader:
            yield reader, api


def answering(state=STATE, tag='"1"'):
    seen = []

    async def handle(request):
        if request.path.endswith("/why"):
            return web.Response(status=404, text="404: Not Found")  # as schedulers of before
        seen.append((request.path, request.headers["Authorization"], request.headers.get("If-None-Match")))
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        return web.Response(body=msgspec.json.encode(state), headers={"ETag": tag})

    return handle, seen


async def test_a_state_is_read_and_not_sent_again_while_it_is_the_same(tmp_path):
    handle, seen = answering()
    async with reading(tmp_path, handle) as (reader, _):
        first = await reader.read()
        assert first == STATE
        assert await reader.read() is first
        assert seen == [("/v1/state", "Bearer secret", None), ("/v1/state", "Bearer secret", '"1"')]


async def test_what_a_replica_notes_is_printed_and_is_said_of_its_pods(tmp_path):
    replica = StateReplica("pod-1", False, "pod-2")
    assert replica.notes == (
        "pod-1 is not the leader, so it does not place pods or know why they wait; the leader is pod-2",
    )
    assert StateReplica("pod-1", False, "").notes[0].endswith("; the leader is unknown")
    assert StateReplica("pod-1", False, "pod-1").notes == (
        "pod-1 has just become the leader, and does not place pods or know why they wait yet",
    )
    unknown = msgspec.structs.replace(waiting("odd", "", ""), reasons=())
    state = msgspec.structs.replace(STATE, replica=replica, notes=replica.notes, waiting=(*STATE.waiting, unknown))
    handle, _ = answering(state)
    async with reading(tmp_path, handle) as (reader, api):
        source, changed = PolledScheduler(reader, api, SystemClock()), asyncio.Event()
        running = asyncio.ensure_future(source.run(changed.set))
        await changed.wait()
        running.cancel()
        assert (source.state, source.problem) == (state, "")
        assert await source.details("default", "big") == [
            "2 GPUs are too small",
            "CardInsufficientMemory: 2 GPUs are too small",
        ]
        assert await source.details("default", "odd") == ["This replica of the scheduler does not know the reason."]
        assert await source.details("default", "none") == []
        of_scheduler = (
            "--scheduler",
            api.url,
            "--token-file",
            tmp_path / "token",
            "--certificate-authority",
            api.ca_file,
        )
        code, out, err = await beside("top", "--once", *of_scheduler)
        assert (code, err) == (0, f"purser: {replica.notes[0]}\n")
        assert out.splitlines()[-1].split()[-3:] == ["1", "-", "-"]
        for output in ("table", "json"):
            code, out, err = await beside("why", "odd", *of_scheduler, "-o", output)
            assert (code, err) == (0, f"purser: {replica.notes[0]}\n")
            assert output == "json" or out.startswith("default/odd waits: the reason is unknown\n")


class PassingClock(HastyClock):
    """Its time is what was slept."""

    def monotonic(self):
        return sum(self.slept)


def waited_for(asked, answers):
    """Answers in turn, to requests whose ``?wait=`` is put into ``asked``; a number is a status. Afterwards, an event
    is set, and there is no answer."""
    has_all = asyncio.Event()

    async def handle(request):
        asked.append(request.query.get("wait", ""))
        if len(asked) > len(answers):
            has_all.set()
            await asyncio.Event().wait()
        answer = answers[len(asked) - 1]
        if answer == "closed":
            request.transport.close()
        if not isinstance(answer, ClusterState):
            return web.Response(status=answer if isinstance(answer, int) else 500)
        return web.Response(body=msgspec.json.encode(answer), headers={"ETag": '"1"'})

    return handle, has_all


async def seen_while_waiting(tmp_path, answers):
    """What requests waited for, and what is seen of the state and of what is wrong."""
    asked, seen = [], []
    handle, has_all = waited_for(asked, answers)
    async with reading(tmp_path, handle) as (reader, api):
        source = PolledScheduler(reader, api, PassingClock(), waits=True)
        follow = source.run(lambda: seen.append((source.state.sequence, source.problem.rpartition(": ")[0][-12:])))
        async with running(follow), asyncio.timeout(20):
            await has_all.wait()
    return asked, seen


async def test_changes_are_waited_for_as_long_as_the_scheduler_has_places_and_answers(tmp_path):
    """Too many who wait, an expired token or an outage makes it poll for once."""
    newer = msgspec.structs.replace(STATE, sequence=2)
    answers = [
        ("", STATE),
        ("30", 304),
        ("30", 429),
        ("", 304),
        ("30", 503),
        ("", 304),
        ("30", newer),
        ("30", 401),
        ("", 304),
        ("30", 500),
        ("", 502),
        ("", 504),
        ("", STATE),
        ("30", 304),
    ]
    asked, seen = await seen_while_waiting(tmp_path, [answer for _, answer in answers])
    assert asked == [*(wait for wait, _ in answers), "30"]
    assert seen == [(1, ""), (2, ""), (2, "answered 502"), (2, "answered 504"), (1, "")]


@pytest.mark.parametrize("cut", [[504], ["closed"] * 2])
async def test_where_a_proxy_cuts_requests_that_wait_changes_are_polled_for(tmp_path, cut):
    """aiohttp sends a request again by itself, once, where a connection that it had was closed."""
    newer = msgspec.structs.replace(STATE, sequence=2)
    polls, waits = round(asking.NO_WAIT_S / POLL_INTERVAL_S), ["30"] * len(cut)
    answers = [STATE, *cut, *([304] * (polls - 1)), newer, *cut, 304, 304]
    asked, seen = await seen_while_waiting(tmp_path, answers)
    assert asked == ["", *waits, *([""] * polls), *waits, "", "", ""]
    assert seen == [(1, ""), (2, "")], "not an outage"


async def test_an_answer_that_does_not_come_is_an_error_that_names_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "ANSWER_TIMEOUT_S", -0.75)  # with the second that the request waits: 0.25

    async def handle(_):
        await asyncio.Event().wait()

    async with reading(tmp_path, handle) as (reader, _):
        with pytest.raises(KubeError, match=r"/v1/state did not answer within 0\.25 s$"):
            await reader.read(1)


async def test_a_node_is_asked_about_once_for_all_who_look_at_it(tmp_path):
    seen = []

    async def handle(request):
        seen.append(request.path)
        if request.path.endswith("gone"):
            return web.Response(status=404, text="there is no such node")
        if request.path.endswith("odd"):
            return web.Response(text="[]")
        return web.Response(body=msgspec.json.encode(details(request.path.rpartition("/")[2])))

    async with reading(tmp_path, handle) as (reader, api):
        clock = StandingClock()
        source = PolledScheduler(reader, api, clock)
        found = await asyncio.gather(*(source.node_details(name) for name in ("n", "n", "m")))
        assert found == [details("n"), details("n"), details("m")]
        assert sorted(seen) == ["/v1/nodes/m", "/v1/nodes/n"]
        assert await source.node_details("n") is found[0]
        clock.ahead_s += POLL_INTERVAL_S
        assert await source.node_details("n") == found[0]
        assert len(seen) == 3
        assert await source.node_details("gone") is None
        with pytest.raises(KubeError, match="a node's details cannot be read"):
            await source.node_details("odd")
        of_namespace = ReadApi(api.url, api.token, api.ca_file, "team-a")
        async with StateReader(of_namespace) as part:
            assert (await part.read_node("n")).name == "n"
        assert seen[-1] == "/v1/namespaces/team-a/nodes/n"


async def test_steps_and_events_are_those_of_one_object(tmp_path):
    seen = []

    async def handle(request):
        seen.append(request.path_qs)
        if request.path.endswith("/events"):
            if "team-b" in request.path:
                return web.Response(status=403, text="not allowed to list events")
            events = (EVENT,) if "name" in request.query_string else ()
            return web.Response(body=msgspec.json.encode(StateEvents(events)))
        if request.path.endswith("/gone"):
            return web.Response(status=404)
        return web.Response(body=msgspec.json.encode(PodDetails("p", "u", (STEP,))))

    async with reading(tmp_path, handle) as (reader, api):
        source = PolledScheduler(reader, api, StandingClock())
        found = await asyncio.gather(*(source.steps("team-a", name, "u") for name in ("p", "p", "gone")))
        assert found == [(STEP,), (STEP,), ()]
        assert await source.steps("team-a", "p", "of-another-pod") == ()
        assert await source.events("team-a", {"uid": "u&name=v"}) == (EVENT,)
        assert await source.events("team-a", {"uid": "v"}) == ()
        assert await source.events("team-b", {"kind": "Node", "name": "n"}) is None
        assert sorted(seen) == [
            "/v1/namespaces/team-a/events?uid=u%26name%3Dv",
            "/v1/namespaces/team-a/events?uid=v",
            "/v1/namespaces/team-a/pods/gone",
            "/v1/namespaces/team-a/pods/p",
            "/v1/namespaces/team-b/events?kind=Node&name=n",
        ]


async def test_of_a_scheduler_that_does_not_answer_each_thing_is_asked_once_at_a_time(tmp_path):
    seen, may_answer = [], asyncio.Event()

    async def handle(request):
        seen.append(request.path)
        await may_answer.wait()
        return web.Response(status=503)

    async with reading(tmp_path, handle) as (reader, api):
        clock = StandingClock()
        source = PolledScheduler(reader, api, clock)
        asking = []
        for _ in range(5):
            asking += [asyncio.ensure_future(source.node_details("n")), asyncio.ensure_future(source.rollout())]
            await asyncio.sleep(0)
            clock.ahead_s += POLL_INTERVAL_S
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        asking[0].cancel()
        may_answer.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(each) for each in found[1:]] == [ReadAnswerError] * 9
        assert sorted(seen) == ["/v1/nodes/n", "/v1/rollout"]


def test_a_reason_of_which_only_the_number_is_known_is_a_line():
    pod = waiting("big")
    counted = msgspec.structs.replace(pod, reasons=(msgspec.structs.replace(pod.reasons[0], text="", nodes=3),))
    assert reason_lines(counted)[1] == "CardInsufficientMemory: 3 nodes"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            lambda: web.Response(status=403, text="user x may not\x1b[2J\n" + "y" * 100000),
            "answered 403: user x may not",
        ),
        (lambda: web.Response(text="{}"), "the scheduler's state cannot be read"),
        (lambda: web.Response(text="[" * 100000), "the scheduler's state cannot be read"),
        (lambda: web.Response(status=302, headers={"Location": "https://elsewhere"}), "answered 302"),
        (lambda: web.Response(status=304), "answered 304"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_an_error_in_a_line(tmp_path, answer, says):
    async def handle(_):
        return answer()

    async with reading(tmp_path, handle) as (reader, _):
        with pytest.raises(KubeError) as caught:
            await reader.read()
        text = str(caught.value)
        assert says in text
        assert text.isprintable()
        assert len(text) < 500


async def test_an_answer_without_an_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "MAX_STATE_ANSWER_BYTES", 1 << 20)

    async def handle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while request.transport is not None and not request.transport.is_closing():
            await response.write(b" " * 65536)
            await asyncio.sleep(0)
        return response

    async with reading(tmp_path, handle) as (reader, _):
        with pytest.raises(KubeError, match="larger than 1048576 bytes"):
            await reader.read()


async def test_a_certificate_of_another_ca_is_refused_before_the_token_is_sent(tmp_path):
    handle, seen = answering()
    async with reading(tmp_path, handle) as (_, api):
        other = tmp_path / "other.crt"
        other.write_bytes(Authority("other").pem)
        async with StateReader(ReadApi(api.url, api.token, other)) as reader:
            with pytest.raises(KubeError, match="certificate verify failed"):
                await reader.read()
        assert seen == []


async def test_a_ca_that_is_renewed_is_trusted_without_a_restart(tmp_path):
    handle, _ = answering()
    async with reading(tmp_path, handle) as (_, api):
        ca = tmp_path / "renewed.crt"
        ca.write_bytes(Authority("other").pem)
        async with StateReader(ReadApi(api.url, api.token, ca)) as reader:
            with pytest.raises(KubeError, match="certificate verify failed"):
                await reader.read()
            ca.write_bytes(api.ca_file.read_bytes())
            with pytest.raises(KubeError, match="certificate verify failed"):
                await reader.read()
            assert await reader.read() == STATE


def test_an_address_that_cannot_be_one_is_an_error_in_a_line():
    with pytest.raises(ConfigError, match="not a read API address"):
        StateReader(ReadApi("https://[", lambda: "token"))


async def test_the_rollout_is_read_and_what_is_wrong_with_it_is_said(tmp_path):
    answers = [
        web.json_response(msgspec.to_builtins(rollout({"gpus": {"state": "ready"}}, ()))),
        web.Response(text="?"),
        web.Response(status=404),
    ]

    async def handle(request):
        assert request.path == "/v1/rollout"
        return answers.pop(0)

    async with reading(tmp_path, handle) as (reader, api):
        clock = StandingClock()
        source = PolledScheduler(reader, api, clock)
        found = await asyncio.gather(*(source.rollout() for _ in range(3)))
        assert [each.policies[0].name for each in found] == ["gpus"] * 3
        clock.ahead_s += POLL_INTERVAL_S
        with pytest.raises(KubeError, match="rollout document cannot be read"):
            await source.rollout()
        clock.ahead_s += POLL_INTERVAL_S
        with pytest.raises(KubeError, match="The scheduler may be too old"):
            await source.rollout()
        async with StateReader(dataclasses.replace(api, namespace="team-a")) as of_team:
            with pytest.raises(KubeError, match="viewers of the whole cluster"):
                await of_team.read_rollout()
