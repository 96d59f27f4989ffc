"""`purser top`: in a terminal of its own, against the lab's API server; once, and where it cannot be used."""

import asyncio
import json
import signal
from contextlib import asynccontextmanager

import pytest
from tests.unit.cli.typed import beside, here
from tests.unit.kube.servers import api_server
from tests.unit.scheduler.explained import gpu, gpus, node, pod
from tests.unit.top.emulated import InTerminal, purser

from purser.kube.resources import NODES, PODS
from purser.lab.apiserver import ApiServer

pytestmark = pytest.mark.processes

UP, DOWN = b"\x1b[A", b"\x1b[B"


class World:
    def __init__(self, api, client, kubeconfig):
        self.api, self.client, self.kubeconfig = api, client, kubeconfig

    async def add_node(self, name, count=2, memory=8000):
        made = node(name, gpus(name, count, memory))
        await self.client.create(NODES, {"metadata": {**made["metadata"], "uid": None}})
        await self.client.patch_merge(NODES, name, {"status": made["status"]}, subresource="status")

    async def add_pod(self, name, limits, **facts):
        made = pod(name, limits, **facts)
        meta = {key: made["metadata"][key] for key in ("annotations", "labels")}
        await self.client.create(PODS, {**made, "metadata": {"name": name, "namespace": "default", **meta}})

    def top(self, *words, **terminal):
        return InTerminal(*purser("top", f"--kubeconfig={self.kubeconfig}", *words), **terminal)


@asynccontextmanager
async def world(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    async with api_server(kubeconfig, tls=False) as (api, client):
        yield World(api, client, kubeconfig)


async def test_a_session_by_keys(tmp_path):
    async with world(tmp_path) as cluster:
        for name in ("n1", "n2", "n10"):
            await cluster.add_node(name)
        await cluster.add_pod("large", gpu(9000))
        await cluster.add_pod("elsewhere", gpu(100), nodeSelector={"zone": "a"})
        async with cluster.top(cells=150) as top:
            text = await top.shows("n10")
            rows = [line.split()[0] for line in text.splitlines()[3:6]]
            assert rows == ["n1", "n2", "n10"]
            assert text.splitlines()[1].split() == ["Nodes", "3", "GPUs", "6", "Pods", "0", "Waiting", "2"]
            top.press("\t")
            await top.shows(lambda text: "UUID" in text or "HEALTH" in text)
            top.press("4")
            text = await top.shows("CardInsufficientMemory")
            assert "3 nodes lack zone=a, which the pod's node selector requires" in text
            top.press("/large\r")
            text = await top.shows(lambda text: "/large (1)" in text and "elsewhere" not in text)
            top.press("\r")
            text = await top.shows("This change makes the pod fit now")
            assert "default/large waits: it fits on none of 3 nodes" in text
            top.press("q\x1b")
            await top.shows("elsewhere")
            await cluster.add_pod("late", gpu(9000))  # a watch brings it
            await top.shows(lambda text: "late" in text and text.count("CardInsufficientMemory") == 2)
            top.press("?")
            await top.shows("this page")
            top.press("qq")
            assert await top.ends() == 0
            assert top.is_as_before
            assert top.screen.strange == b""
            assert "31" not in top.screen.seen


@pytest.mark.gate
async def test_the_terminal_is_as_before_however_it_ends(tmp_path):
    async def ended(cluster, number):
        async with cluster.top(environment={"NO_COLOR": "1"}) as top:
            await top.shows("n1")
            assert top.screen.is_alternate
            if number is None:
                top.press("\x03")
            else:
                top.process.send_signal(number)
            assert await top.ends() == 0
            assert top.is_as_before
            assert top.screen.seen <= {"", "0", "1", "7"}

    async with world(tmp_path) as cluster:
        await cluster.add_node("n1")
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, None)
        await asyncio.gather(*(ended(cluster, number) for number in numbers))


@pytest.mark.gate
async def test_sizes_change_down_to_nothing_and_a_terminal_that_reads_nothing_holds_up_nobody(tmp_path):
    async with world(tmp_path) as cluster:
        for number in range(30):
            await cluster.add_node(f"n{number}")
        async with cluster.top() as top:
            await top.shows("n19")
            top.resize(20, 5)
            text = await top.shows(lambda text: "n1" in text and "n19" not in text)
            assert len(text.splitlines()) == 5
            top.resize(1, 1)
            top.press(DOWN * 40 + UP)
            top.resize(80, 24)
            await top.shows("n28")
            top.stop_reading()
            top.press("jk" * 2000)
            top.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                assert await top.process.wait() == 0


@pytest.mark.gate
async def test_an_api_server_that_goes_away_is_waited_for_and_said(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    async with ApiServer(tls=False) as api:
        api.write_kubeconfig(kubeconfig)
        top = InTerminal(*purser("top", f"--kubeconfig={kubeconfig}"))
        await top.__aenter__()
        await top.shows("no node has published GPUs")
    try:
        await top.shows("not up to date")
        top.press("q")
        assert await top.ends() == 0
    finally:
        await top.__aexit__()
    code, _, err = await beside("top", "--once", f"--kubeconfig={kubeconfig}")
    assert (code, err.count("\n")) == (1, 1)


async def test_it_is_printed_once(tmp_path):
    async with world(tmp_path) as cluster:
        await cluster.add_node("n1")
        # Sorted by the second in which they came, and then by name.
        await cluster.add_pod("alike", gpu(9000))
        await cluster.add_pod("gated", gpu(9), schedulingGates=[{"name": "a/b"}])
        await cluster.add_pod("large", gpu(9000))
        once = ("top", "--once", f"--kubeconfig={cluster.kubeconfig}")
        code, out, err = await beside(*once)
        assert (code, err) == (0, "")
        assert out.splitlines()[0].startswith("1 node  2 GPUs")
        assert [line.split()[2] for line in out.splitlines()[-3:]] == ["alike", "gated", "large"]
        code, out, _ = await beside(*once, "-o", "json")
        found = json.loads(out)
        assert (code, found["api_version"], found["replica"]) == (0, "v1", None)
        assert [each["reason"] for each in found["waiting"]] == [
            "CardInsufficientMemory",
            "SchedulingGated",
            "CardInsufficientMemory",
        ]
        assert found["waiting"][0]["since"].endswith("Z")
        assert found["nodes"][0]["gpus"][1]["memory_mib"] == 8000
        wide = await beside(*once, "--view", "gpus", "-o", "wide")
        assert "UUID" in wide[1].splitlines()[0]
        assert json.loads((await beside(*once, "--view", "waiting", "-o", "json"))[1]) == found["waiting"]
        assert (await beside(*once, "--view", "pods", "-o", "yaml"))[1] == "[]\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "is not a terminal: use --once"),
        (("-o", "json"), "--output requires --once"),
        (("--scheduler", "https://a"), "--scheduler requires a token"),
        (("--token-file", "t"), "require --scheduler"),
        (("--scheduler", "http://a", "--token-file", "t", "--once"), "must be https://HOST:PORT"),
        (
            ("--scheduler", "https://a", "--token-file", "t", "--context", "c"),
            "--scheduler cannot be used with --kubeconfig or --context",
        ),
        (("--scheduler", "https://a", "--token-file", "/none", "--once"), "--token-file /none"),
        (("--scheduler", "https://a", "--token-file", "t", "--certificate-authority", "/none", "--once"), "/none"),
    ],
)
def test_wrong_usage_is_said_in_a_line(words, says):
    code, out, err = here("top", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.gate
async def test_a_terminal_without_cursor_movement_is_no_use():
    async with InTerminal(*purser("top"), environment={"TERM": "dumb"}) as top:
        assert await top.ends() == 2
        assert b"use --once, or set TERM" in top.raw
