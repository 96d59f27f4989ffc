"""`purser top` on a lab: the cluster's own words, and the scheduler's by its read API; and what is the same in both.
And in a terminal that tmux makes."""

import asyncio
import base64
import json
import shutil
import sys
import uuid

import pytest
import yaml

from purser.kube.resources import MUTATING_WEBHOOKS, NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.scenarios.actions import eventually
from tests.unit.cli.typed import beside

from .lab_cluster import LabCluster

pytestmark = pytest.mark.gate


def body(name, limits):
    container = {"name": "c", "image": "busybox", "resources": {"limits": limits}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


async def test_both_ways_say_the_same_of_nodes_and_grants_and_why_a_pod_waits(tmp_path):
    settings = LabSettings(node_choices(["t4-4:2"]), probe_interval_s=0.1)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        client, cluster = lab.client, LabCluster(lab, "default")
        for number in range(3):
            limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9000", "nvidia.com/gpucores": "30"}
            await client.create(PODS, body(f"held-{number}", limits))
        await client.create(PODS, body("large", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20000"}))
        (webhooks,) = (await client.list(MUTATING_WEBHOOKS)).items
        ca, token = tmp_path / "ca.crt", tmp_path / "token"
        ca.write_bytes(base64.b64decode(webhooks["webhooks"][0]["clientConfig"]["caBundle"]))
        token.write_text(yaml.safe_load(lab.kubeconfig.read_text())["users"][0]["user"]["token"])
        of_cluster = (f"--kubeconfig={lab.kubeconfig}",)
        url = f"https://localhost:{lab.read_api_port}"
        of_scheduler = ("--scheduler", url, "--token-file", token, "--certificate-authority", ca)

        async def said(words):
            code, out, err = await beside("top", "--once", "-o", "json", *words)
            assert (code, err) == (0, "")
            return json.loads(out)

        found = {}

        async def is_settled():
            found["cluster"], found["scheduler"] = await said(of_cluster), await said(of_scheduler)
            grants = [each["state"] for read in found.values() for each in read["grants"]]
            reasons = [each["reason"] for each in found["scheduler"]["waiting"]]
            return grants == ["running"] * 6 and reasons == ["CardInsufficientMemory"]

        await eventually(cluster, "pods run, and one was refused", is_settled)
        one, other = found["cluster"], found["scheduler"]
        assert one["nodes"] == other["nodes"]
        assert sorted(one["grants"], key=str) == sorted(other["grants"], key=str)
        assert [each["pod"] for each in one["waiting"]] == [each["pod"] for each in other["waiting"]] == ["large"]
        assert one["waiting"][0]["since"] == other["waiting"][0]["since"]
        assert other["replica"]["places_pods"] is True
        (event,) = {each["message"] for each in other["waiting"]}
        assert "too small for 20000 MiB" in event
        code, out, _ = await beside("top", "--once", *of_scheduler)
        assert (code, "large" in out) == (0, True)
        code, out, err = await beside("why", "large", *of_scheduler)
        assert (code, err) == (0, "")
        first, _, head, reason, _, lead, change, *_ = out.splitlines()
        assert first == "default/large waits: it fits on none of 2 nodes"
        assert head.split() == ["NODES", "GPUS", "REASON", "OF", "WHAT"]
        assert reason.split()[:4] == ["2", "8", "CardInsufficientMemory", "Purser"]
        assert "too small for 20000 MiB" in reason
        assert lead.startswith("This change makes the pod fit now, and is the smallest of its kind.")
        assert change.startswith("- container c requests nvidia.com/gpumem: ")
        code, out, _ = await beside("top", "--once", "-o", "json", "-n", "empty", *of_scheduler)
        part = json.loads(out)
        assert (code, part["nodes"], part["grants"], part["waiting"]) == (0, other["nodes"], [], [])
        code, out, _ = await beside("why", "held-0", *of_scheduler)
        assert code == 0 and out.startswith("default/held-0 is on node t4-4-") and "holds 9000 MiB of GPU" in out
        code, out, err = await beside("why", "held-0", "-n", "other", *of_scheduler)
        assert (code, out) == (1, "") and "does not know pod other/held-0" in err


class Terminal:
    """One of 80 x 24 characters and 16 colours, in which a command runs."""

    def __init__(self) -> None:
        self._tmux = ("tmux", "-L", f"purser-{uuid.uuid4().hex[:8]}", "-f", "/dev/null")

    async def tmux(self, *words: object) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._tmux, *map(str, words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        return (await process.communicate())[0].decode()

    async def start(self, command: str) -> None:
        await self.tmux("new-session", "-d", "-s", "top", "-x", 80, "-y", 24, f"TERM=screen {command}")

    async def press(self, *keys: str) -> None:
        await self.tmux("send-keys", "-t", "top", *keys)

    async def screen(self) -> str:
        return await self.tmux("capture-pane", "-p", "-t", "top")

    async def __aenter__(self) -> "Terminal":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tmux("kill-server")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_in_a_terminal_it_follows_keys_its_size_and_the_cluster():
    settings = LabSettings(node_choices(["t4-4:2"]), probe_interval_s=0.1)
    async with Lab(settings) as lab, waiting.limit(), Terminal() as terminal:
        await lab.ready()
        cluster = LabCluster(lab, "default")
        await lab.client.create(PODS, body("large", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20000"}))
        await terminal.start(f"{sys.executable} -m purser top --kubeconfig {lab.kubeconfig}")

        async def shows(*words: str, without: str = "nothing of this") -> list[str]:
            async def probe():
                screen = await terminal.screen()
                assert all(word in screen for word in words) and without not in screen, screen
                return screen.rstrip().splitlines()

            return await eventually(cluster, f"the screen has {words}", probe)

        await shows("Nodes 2", "t4-4-0", "t4-4-1")
        await terminal.press("4")
        await shows("large", "CardInsufficientMemory")
        await terminal.press("Enter")
        await shows("15360", "large waits")
        await terminal.press("Escape")
        await terminal.press("1")
        await terminal.press("/")
        await terminal.press("t4-4-1")
        await shows("t4-4-1", without="t4-4-0 ")
        await terminal.press("Escape")
        await lab.kill_agent("t4-4-1")
        await shows("4 Unhealthy")
        await terminal.tmux("resize-window", "-t", "top", "-x", 60, "-y", 15)
        lines = await shows("t4-4-0", "t4-4-1")
        assert (len(lines) <= 15, max(map(len, lines)) <= 60) == (True, True)
        await lab.client.delete(NODES, "t4-4-1")
        await shows("Nodes 1", "t4-4-0", without="t4-4-1")
        await terminal.press("q")

        async def has_ended():
            assert "no server running" in await terminal.screen() or "error connecting" in await terminal.screen()
            return True

        await eventually(cluster, "top ends, and its terminal with it", has_ended)
