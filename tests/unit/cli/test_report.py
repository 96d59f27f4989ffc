"""`purser report usage` against what speaks Prometheus' API; a real one is asked in tests/cluster/test_usage.py."""

import json
import socket
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.unit.cli.typed import beside, here

from purser.lab.apiserver import ApiServer


@asynccontextmanager
async def prometheus(answer):
    """Its URL; ``answer`` makes of an expression the samples, or the whole body as text."""
    asked = []

    async def query(request):
        form = await request.post()
        asked.append((form["query"], request.headers.get("Authorization")))
        found = answer(form["query"])
        if isinstance(found, int):
            return web.Response(status=found)
        if isinstance(found, str):
            return web.Response(text=found, status=500)
        result = [{"metric": labels, "value": [1.0, str(value)]} for labels, value in found]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    app = web.Application()
    app.router.add_post("/prefix/api/v1/query", query)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/prefix", asked
    finally:
        await runner.cleanup()


def two_gpus_for_an_hour(query):
    """A has one of them, and uses a quarter of it; 60 steps of a minute."""
    a = {"namespace": "a"}
    if query.startswith("count_over_time"):
        return [({}, 60)]
    if "granted_memory" in query:
        return [(a, 60.0)]
    if "container_memory_used" in query:
        return [(a, 15.0)]
    if "container_utilization" in query:
        return [(a, 30.0), ({"namespace": "b"}, "NaN")]
    return [({}, 6.0)] if "foreign" in query else [({}, 120.0)]


async def test_namespaces_and_what_nobody_was_granted_are_all_gpu_hours(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    async with prometheus(two_gpus_for_an_hour) as (url, asked):
        words = ("report", "usage", "--since=1h", f"--prometheus={url}")
        code, out, err = await beside(*words, f"--token-file={token}", "-o", "json", '--selector=cluster="x"')
        assert (code, err) == (0, "")
        report = json.loads(out)
        assert report["namespaces"] == [{"namespace": "a", "granted": 1.0, "used": 0.25, "busy": 0.5}]
        assert (report["window_s"], report["covered_s"]) == (3600.0, 3600.0)
        assert (report["total"], report["not_granted"], report["foreign"]) == (2.0, 1.0, 0.1)
        assert all('cluster="x"' in query and login == "Bearer secret" for query, login in asked)
        code, out, _ = await beside(*words, "-o", "wide")
        assert [line.split()[0:2] for line in out.splitlines()[1:]] == [
            ["a", "1.00"],
            ["(not", "granted)"],
            ["(foreign", "processes)"],
            ["(total)", "2.00"],
        ]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda query: [], "has no purser_cluster_gpus metric for the last 7d"),
        (lambda query: '{"status": "error", "error": "too many samples"}', "too many samples"),
        (lambda query: "<html>", "responds, but not like Prometheus (status 500): check that --prometheus is"),
        (
            lambda query: '{"data": {"result": [{"metric": {}, "value": [1, "x"]}]}, "status": "success"}',
            "is not a number",
        ),
        (lambda query: "[" * 10_000, "not like Prometheus"),
    ],
    ids=["no metrics", "refused", "something else", "no number", "deep"],
)
async def test_what_is_no_answer_is_reported_in_one_line(answer, says):
    async with prometheus(answer) as (url, _):
        code, out, err = await beside("report", "usage", f"--prometheus={url}")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert says in err


def no_such_host(*asked, **more):
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def said_by(url):
    code, out, err = await beside("report", "usage", f"--prometheus={url}")
    assert (code, out) == (1, "")
    return err


async def test_what_is_wrong_with_the_connection_is_one_plain_sentence(monkeypatch):
    assert await said_by("http://me:secret@127.0.0.1:1") == (
        "purser: Prometheus at http://127.0.0.1:1 cannot be reached (connection refused): "
        "check --prometheus, or forward a port to Prometheus with kubectl port-forward\n"
    )
    with monkeypatch.context() as names:  # a machine may have nobody to ask
        names.setattr("socket.getaddrinfo", no_such_host)
        assert "nowhere.invalid cannot be reached (no such host): check" in await said_by("http://nowhere.invalid")
    async with prometheus(two_gpus_for_an_hour) as (url, _):
        assert "does not support TLS: use an http:// URL" in await said_by(url.replace("http:", "https:"))
    async with prometheus(lambda query: 401) as (url, _):
        assert "rejected the credentials (status 401): use a valid token, or add" in await said_by(url)


async def test_a_certificate_that_is_not_trusted_is_said_with_what_to_do():
    async with ApiServer() as api:
        said = await said_by(api.url)
    assert "has a certificate that is not trusted (" in said
    assert said.endswith(": set SSL_CERT_FILE to a file with its CA certificate\n")


def test_wrong_usage(tmp_path):
    tokens = {"two": "a\nb", "one": "a"}
    for name, token in tokens.items():
        (tmp_path / name).write_text(token)
    for words in (
        ("--since=never",),
        ("--since=400d",),
        ("--prometheus=here",),
        ("--prometheus=http://[",),
        ("--prometheus=http://",),
        ("--prometheus=http://a:99999",),
        ("--selector=\udcff",),
        ("--token-file=/nowhere",),
        (f"--token-file={tmp_path / 'two'}",),
        (f"--token-file={tmp_path / 'one'}", "--prometheus=http://me@127.0.0.1:1"),
    ):
        code, out, err = here("report", "usage", *words)
        assert (code, out, err.count("\n")) == (2, "", 1), words


async def test_an_answer_of_many_namespaces_is_read_to_its_end():
    async with prometheus(lambda query: [({"namespace": f"team-{each:04}"}, 60.0) for each in range(5000)]) as (url, _):
        code, out, err = await beside("report", "usage", f"--prometheus={url}", "-o", "json")
    assert (code, err) == (0, "")
    assert len(json.loads(out)["namespaces"]) == 5000
