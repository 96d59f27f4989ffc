"""The use of GPUs over time, from what speaks Prometheus' API; a real one is asked in tests/cluster/test_usage.py."""

import asyncio
import math
import threading
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from tests import waiting
from tests.unit.kube.servers import ManualClock, serving
from tests.unit.top.states import cluster, gpu, grant, node

from purser.telemetry import listening
from purser.usage import Prometheus, prometheus
from purser.web.access import LOCAL_ADDRESS, LocalAccess
from purser.web.answers import BUSY_MESSAGE, PrometheusAnswer, PrometheusAnswers
from purser.web.history import UsageHistory, usage_of_namespace
from purser.web.pages import SESSION, Pages, Session
from purser.web.past_use import past_use
from purser.web.serving import WEB_LIMITS, web_app

from .pages import PageClock, Source, following
from .test_pages import text_of

STATE = cluster((node("n", gpu(0, held=100), gpu(1)),), (grant("holder"),))
A, B = {"namespace": "team-a"}, {"namespace": "team-b"}


class FakePrometheus:
    """Four GPUs. Of two that team-a holds it uses a half, team-b uses the one it has; GPU-0 has been idle for 6 hours,
    and so has one that nobody holds any more."""

    def __init__(self):
        self.asked = []
        self.status = 200
        self.refused = ""
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def handle(self, request):
        form = await request.post()
        self.asked.append(form["query"])
        await self.may_answer.wait()
        if self.status != 200 or (self.refused and self.refused in form["query"]):
            return web.Response(status=max(self.status, 422) if self.refused else self.status)
        found = self.of(form["query"])
        if request.path.endswith("query_range"):
            times = [float(form["start"]), float(form["end"])]
            result = [{"metric": labels, "values": [[at, str(value)] for at in times]} for labels, value in found]
        else:
            result = [{"metric": labels, "value": [1.0, str(value)]} for labels, value in found]
        return web.json_response({"status": "success", "data": {"result": result}})

    def of(self, query):
        if query.startswith("max by (node, uuid) (purser_device_memory_used_bytes"):
            return [({"node": "n", "uuid": "GPU-0"}, 0.25), ({"node": "n", "uuid": "GPU-1"}, 3.0)]
        if "device_utilization" in query and "avg_over_time" in query:
            return [({}, 0.25)]
        if "by (namespace, pod)" in query:
            held = "grant_memory" in query
            return [({**B, "pod": "q"}, 60.0), ({**A, "pod": "p"}, 120.0 if held else 60.0)]
        if "granted_memory_bytes" in query and "device" in query:
            is_idle = "[21600s]" in query or "[3600s]" in query or "[1800s]" in query
            return [({"node": "n", "uuid": uuid}, 0.0) for uuid in ("GPU-0", "GPU-1")] if is_idle else []
        if query.startswith("count_over_time"):
            return [({}, 60)]
        if "granted_memory" in query:
            return [(A, 120.0 if "over_time" in query else 2.0), (B, 60.0 if "over_time" in query else 1.0)]
        if "container_" in query:
            return [(A, 60.0 if "over_time" in query else 1.0), (B, 60.0 if "over_time" in query else 1.0)]
        if "idle_gpus" in query:
            return [({}, 0.5)]
        return [({}, 240.0 if "over_time" in query else 4.0)]


@asynccontextmanager
async def used(namespace="", selector=""):
    """A client of the pages, what it reads from, and the Prometheus."""
    fake = FakePrometheus()

    @web.middleware
    async def logged_in(request, handler):
        request[SESSION] = Session(namespace, is_by_cookie=False)
        return await handler(request)

    async with (
        serving(fake.handle) as url,
        UsageHistory(Prometheus(url), selector, PageClock()) as history,
        following(Source(STATE)) as feed,
    ):
        app = web_app(Pages(PageClock(), history), LocalAccess(feed))
        if namespace:
            app.middlewares.append(logged_in)
        async with (
            listening(app, LOCAL_ADDRESS, 0, limits=WEB_LIMITS) as port,
            ClientSession(f"http://{LOCAL_ADDRESS}:{port}") as client,
        ):
            yield client, fake, history


async def test_the_page_shows_curves_hours_and_idle_gpus():
    async with used(selector='cluster="x"') as (client, fake, _):
        text = await text_of(client, "/use?since=1h")
        assert all('cluster="x"' in query for query in fake.asked)
    shows = [
        "GPUs over the last 1h",
        "Usable (without fragments)",
        '<td class="number">3.5</td>',
        "1 GPU is held and idle",
        "<td>6h</td>",
        "/pods/default/holder",
        'aria-current="true">Last 1h',
        'data-refresh-ms="60000"',
    ]
    assert [each for each in shows if each not in text] == []
    hours = text[text.index("GPU-hours by namespace over") :]
    assert hours.index("team-a") < hours.index("team-b")  # who wastes most
    assert "style=" not in text and "<script>" not in text


async def test_the_use_of_one_gpu_and_of_one_pod_is_on_its_page():
    async with used() as (client, fake, _):
        gpu_page = await text_of(client, "/gpus/GPU-0?since=1h")
        assert (
            "Share of the time in which kernels ran over the last 1h" in gpu_page
            and '<td class="number">0.25</td>' in gpu_page
        )
        assert any('uuid="GPU-0"' in query and 'node="n"' in query for query in fake.asked)
        fake.asked.clear()
        pod_page = await text_of(client, "/pods/default/holder")
        assert "Memory in GiB over the last 24h" in pod_page and 'aria-current="true">Last 24h' in pod_page
        assert all('namespace="default", pod="holder"' in query for query in fake.asked)
        count = len(fake.asked)
        await text_of(client, "/pods/default/holder")
        assert len(fake.asked) == count


async def test_the_use_of_all_gpus_of_a_node_is_on_its_page():
    async with used(selector='cluster="x"') as (client, fake, _):
        text = await text_of(client, "/nodes/n?since=7d")
        shows = [
            "Busy GPUs (sum of the shares of time in which kernels ran) over the last 7d",
            "Memory in GiB over the last 7d",
            'aria-current="true">Last 7d',
            "<summary>Values</summary>",
            '<td class="number">0.25</td>',
            'data-refresh-ms="60000"',
        ]
        assert [each for each in shows if each not in text] == []
        assert len(fake.asked) == 3
        assert all('{node="n", cluster="x"}' in query and "by (uuid)" in query for query in fake.asked)
        await text_of(client, "/nodes/n?since=7d")
        assert len(fake.asked) == 3
        await text_of(client, "/nodes/n?since=odd")
        assert len(fake.asked) == 6


async def test_a_node_is_shown_without_its_use_where_prometheus_does_not_answer(monkeypatch):
    async with used() as (client, fake, _):
        fake.status = 503
        text = await text_of(client, "/nodes/n?since=1h")
        assert '<p class="notice">' in text and "default/holder" in text and "Reading" not in text
    async with used() as (client, fake, _):
        fake.may_answer.clear()
        with monkeypatch.context() as patched:
            patched.setattr("purser.web.answers._PATIENCE_S", 0.01)
            text = await text_of(client, "/nodes/n")
        assert "Reading the last 24h from Prometheus" in text and 'data-refresh-ms="3000"' in text
        assert "default/holder" in text
    async with used() as (client, fake, _):
        fake.of = lambda query: []
        assert "Prometheus has no usage metrics for the last 24h." in await text_of(client, "/nodes/n")


async def test_who_sees_one_namespace_sees_the_use_of_its_pods_but_of_no_gpu():
    async with used("default") as (client, fake, _):
        assert "Use over time" not in await text_of(client, "/gpus/GPU-0")
        assert "Use over time" not in await text_of(client, "/nodes/n?since=1h")
        assert fake.asked == []
        assert "Memory in GiB" in await text_of(client, "/pods/default/holder")
        fake.status = 500
        failed = await text_of(client, "/pods/default/holder?since=7d")
        assert "see the log of purser web" in failed and "Prometheus at" not in failed


async def test_names_cannot_change_what_is_asked():
    async with used() as (_, fake, history):
        await history.of_pod("default", 'x"} or vector(1) # \\', "1h")
        assert fake.asked and all(r'pod="x\"} or vector(1) # \\"' in query for query in fake.asked)
        fake.asked.clear()
        await history.of_node('x"} or vector(1) # \\', "1h")
        assert fake.asked and all(r'{node="x\"} or vector(1) # \\"}' in query for query in fake.asked)


async def test_hours_are_broken_down_by_pod_and_model():
    async with used() as (client, _, _):
        text = await text_of(client, "/use?since=1h")
    assert text.index("team-a/p<") < text.index("team-b/q<") and "GPU-hours by model" in text
    assert "/pods/team-a/p" not in text  # it has ended
    async with used("team-b") as (client, _, _):
        text = await text_of(client, "/use?since=1h")
    assert "team-b/q<" in text and "team-a/p" not in text and "GPU-hours by model" not in text


async def test_a_viewer_of_a_namespace_sees_its_use_and_nobody_elses():
    async with used("team-b") as (client, _, history):
        text = await text_of(client, "/use?since=1h")
        found, _ = await history.of("1h")
    assert "team-b" in text and "GPU-hours" in text
    assert "team-a" not in text and "All GPUs" not in text and "held and idle" not in text and "3.5" not in text
    part = usage_of_namespace(found, "nobody")
    assert (part.usage.namespaces, part.usage.total, part.idle, dict(part.curves.held)) == ((), 0.0, (), {})


async def test_it_is_read_once_for_all_who_look():
    async with used() as (client, fake, _):
        fake.may_answer.clear()
        asking = [asyncio.ensure_future(text_of(client, "/use")) for _ in range(5)]
        while not fake.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        fake.may_answer.set()
        await asyncio.gather(*asking)
        count = len(fake.asked)
        await text_of(client, "/use")
        assert len(fake.asked) == count


async def test_while_it_is_being_read_the_page_says_so(monkeypatch):
    monkeypatch.setattr("purser.web.answers._PATIENCE_S", 0.01)
    async with used() as (client, fake, _):
        fake.may_answer.clear()
        text = await text_of(client, "/use?since=odd")
        assert "Reading the last 24h" in text and 'data-refresh-ms="3000"' in text and "By model" in text


@pytest.mark.parametrize(("status", "says"), [(401, "rejected the credentials"), (500, "not like Prometheus")])
async def test_a_prometheus_that_does_not_answer_is_said_and_the_rest_is_shown(status, says):
    async with used() as (client, fake, _):
        fake.status = status
        text = await text_of(client, "/use")
        assert says in text and "By namespace" in text and "Reading" not in text


@pytest.mark.parametrize("value", ["1.7e308", "1e300", "-5", "NaN", "+Inf", "-Inf", "-0", "5e-324", "9" * 400])
async def test_numbers_that_are_no_amounts_are_left_out(value):
    async with used() as (client, fake, _):
        series = [({"namespace": name, "node": "n"}, value) for name in ("", "team-a", "team-b", "team-b")]
        fake.of = lambda query: series
        text = await text_of(client, "/use?since=1h")
        assert "By namespace" in text and "-0<" not in text and "inf" not in text and "nan" not in text


async def test_without_the_agents_metrics_no_gpu_is_called_busy():
    async with used() as (client, fake, _):
        of = fake.of
        fake.of = lambda query: [] if "device" in query else of(query)
        text = await text_of(client, "/use?since=1h")
    assert "No GPU that pods hold is known to have been idle for half an hour." in text


async def test_a_problem_is_one_short_line_without_credentials():
    fake = FakePrometheus()
    fake.of = lambda query: [({}, "x" * 100_000)]
    async with serving(fake.handle) as url:
        secret = url.replace("://", "://user:secret@") + "/?token=secret"
        async with UsageHistory(Prometheus(secret), "", PageClock()) as history:
            _, problem = await history.of("1h")
    assert "not a number" in problem and len(problem) < 1000 and "secret" not in problem


async def test_large_answers_are_read_beside_the_event_loop(monkeypatch):
    threads = []

    class Reader:
        def read(self, body):
            threads.append(threading.current_thread())
            return known.read(body)

    known = prometheus._range_answer_reader
    monkeypatch.setattr(prometheus, "_range_answer_reader", Reader())
    async with used() as (client, _, _):
        await text_of(client, "/use?since=1h")
    assert threads and threading.main_thread() not in threads


async def test_viewers_of_a_namespace_are_not_told_where_prometheus_is_or_what_it_says():
    async with used("team-b") as (client, fake, _):
        fake.status = 500
        text = await text_of(client, "/use")
        assert "see the log of purser web" in text and LOCAL_ADDRESS not in text


async def test_what_could_not_be_read_is_read_again_soon_however_long_the_time():
    clock = ManualClock()
    fake = FakePrometheus()
    async with serving(fake.handle) as url, UsageHistory(Prometheus(url), "", clock) as history:
        fake.status = 503
        found, problem = await history.of("30d")
        assert found is None and problem
        fake.status = 200
        clock.advance(60.0)
        found, problem = await history.of("30d")
        assert found is not None and not problem


async def test_the_page_says_how_old_its_answer_is_and_how_much_metrics_cover():
    async with used() as (client, fake, _):
        assert "<p>As of 2027-01-15 08:00 UTC.</p>" in await text_of(client, "/use?since=1h")
        of = fake.of
        fake.of = lambda query: [] if "amespace" in query else of(query)
        text = await text_of(client, "/use?since=24h")
        assert "UTC. Metrics cover only 4% of that time, so the hours cover only that part.</p>" in text
        assert text.count("Not known.") == 2 and "No pod held" not in text


@pytest.mark.parametrize(("window", "kept_s"), [("1h", 60), ("24h", 120), ("30d", 1800)])
async def test_an_answer_is_kept_for_a_part_of_the_time_that_it_is_about(window, kept_s):
    clock, fake = ManualClock(), FakePrometheus()
    async with serving(fake.handle) as url, UsageHistory(Prometheus(url), "", clock) as history:
        first, _ = await history.of(window)
        clock.advance(kept_s - 1)
        assert (await history.of(window))[0] is first
        clock.advance(1)
        await history.of(window)
        async with waiting.limit():
            while (await history.of(window))[0] is first:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_the_fleets_page_is_told_what_is_in_use_of_what_is_held():
    async with used(selector='cluster="x"') as (client, fake, _):
        assert "memory used (% of held)" in await text_of(client, "/")
        async with client.get("/used") as response:
            found = await response.json()
        assert found == {"gpus": [["n", "GPU-0", 25], ["n", "GPU-1", 100]], "is_read": True, "problem": ""}
        assert all('cluster="x"' in query for query in fake.asked)


async def test_who_sees_one_namespace_is_not_told_what_is_in_use():
    async with used("default") as (client, fake, _):
        assert "memory used (% of held)" not in await text_of(client, "/")
        assert "<" not in await text_of(client, "/used", 404) and fake.asked == []


async def test_without_one_the_page_says_how_to_have_it():
    found = past_use("1h", None, "", STATE, shows_all=True)
    assert (found.is_read, found.picture) == (False, None)


async def test_pods_that_a_prometheus_finds_too_many_cost_the_page_nothing_else():
    async with used() as (client, fake, _):
        fake.refused = "by (namespace, pod)"
        text = await text_of(client, "/use?since=1h")
    assert "not like Prometheus" in text and "GPUs over the last 1h" in text and "GPU-hours by model" in text


async def test_a_prometheus_that_hangs_keeps_nobody_waiting_for_each_pod(monkeypatch):
    monkeypatch.setattr("purser.web.history._CURVES_TIMEOUT_S", 0.05)
    monkeypatch.setattr("purser.web.answers._PATIENCE_S", 10)
    async with used() as (_, fake, history):
        fake.may_answer.clear()
        found = await asyncio.gather(*(history.of_pod("default", f"p-{number}", "1h") for number in range(40)))
        problems = {problem for _, problem in found}
        assert problems == {"Prometheus did not respond within 0.05 s.", BUSY_MESSAGE}
        assert len(fake.asked) == 1


async def test_an_old_curve_is_not_shown_while_a_newer_one_is_read():
    clock, found, results = ManualClock(), PrometheusAnswer(), iter(["old", "new", "newest"])
    answers = PrometheusAnswers(clock, timeout_s=10, max_waiting=2)

    async def read():
        return next(results)

    assert await answers.newest(found, 60, read) == ("old", "")
    assert await answers.newest(found, 60, read) == ("old", "")
    clock.advance(61)
    assert await answers.newest(found, 60, read) == ("old", "")  # a newer one is read meanwhile
    clock.advance(1000)
    await asyncio.sleep(0)
    assert (await answers.newest(found, 60, read))[0] in ("new", "newest")
    await answers.close()


async def test_eight_gpus_of_141_gib_have_a_curve_of_their_memory():
    async with used() as (_, fake, history):
        fake.of = lambda query: [({}, 8 * 141 * 2**30)]
        found, problem = await history.of_pod("default", "large", "1h")
    assert problem == "" and found.held_bytes[-1] == found.used_bytes[-1] == 8 * 141 * 2**30
    assert all(map(math.isnan, found.busy_gpus))  # nobody has so many GPUs
