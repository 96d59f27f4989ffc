"""`purser backtest` on the lab with a running clock, by hand: sixty times as fast as a cluster whose pods run for three
to twelve minutes, kube-scheduler's back-off as well. What schedulers, kubelets and times of whole seconds cost is not
faster, and counts sixty times as much.

A history is short, and the last pod ends it: where that one is placed some seconds earlier or later, allocation is off
by points. So several are played, and the figures of the one in the middle count.
"""

import asyncio
import json
import random
import statistics
import time
from unittest import mock

import pytest

from purser.kube.clock import SystemClock
from purser.kube.resources import EVENTS, NODES, PODS
from purser.kube.watching import Change, ChangeType
from purser.lab.cluster import Lab
from purser.lab.controllers.scheduling import scheduler
from purser.lab.settings import LabSettings, node_choices
from purser.simulator import backoff
from tests import waiting
from tests.tiers import TIER, Tier
from tests.unit.cli.typed import beside

pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(TIER is not Tier.SOAK, reason="minutes, for what unit tests try in the small: by hand"),
    pytest.mark.timeout(900),
]

HISTORIES = 5
PODS_COME = 30
GPUS = 12
MEMORY_MIB = 15360
SPEED = 60


class FastClock(SystemClock):
    def monotonic(self):
        return SPEED * time.monotonic()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds / SPEED)


class History:
    """Pods that come and go, and when they did."""

    def __init__(self, client, seed):
        self._client, self._drawn = client, random.Random(seed)
        self._lasts_s, self._ending = {}, []
        self.gpus, self.created, self.bound, self.gone = {}, {}, {}, {}

    async def follow(self, version):
        async with self._client.watch(PODS.raw(), "default", resource_version=version) as changes:
            async for change in changes:
                if isinstance(change, Change):
                    self._heard(change.type, change.object)

    def _heard(self, kind, pod):
        name = pod["metadata"]["name"]
        if pod["spec"].get("nodeName") and name not in self.bound:
            self.bound[name] = time.time()
            self._ending.append(asyncio.create_task(self._end(name)))
        if kind is ChangeType.DELETED:
            self.gone[name] = time.time()

    async def _end(self, name):
        await FastClock().sleep(self._lasts_s[name])
        await self._client.delete(PODS, name, "default", grace_period_seconds=1)

    async def run(self):
        for number in range(PODS_COME):
            name = f"pod-{number}"
            gpus, part = self._drawn.choice([(1, 1), (1, 1), (2, 1), (4, 1), (1, 1 / 2), (1, 1 / 4)])
            limits = {"nvidia.com/gpu": str(gpus), "nvidia.com/gpumem": str(round(part * MEMORY_MIB))}
            self.gpus[name], self._lasts_s[name] = gpus * part, self._drawn.uniform(200, 700)
            self.created[name] = time.time()
            container = {"name": "c", "image": "busybox", "resources": {"limits": limits}}
            body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
            await self._client.create(PODS, body, "default")
            await FastClock().sleep(self._drawn.uniform(20, 80))
        while len(self.gone) < PODS_COME:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    def waited_mean_s(self):
        return statistics.mean(self.bound[name] - self.created[name] for name in self.created)


async def history(path, logs, seed):
    """What is known, and the file that kubectl would have written afterwards."""
    async with Lab(LabSettings(node_choices(["t4-4:3"]), decision_log_folder=logs)) as lab, waiting.limit():
        await lab.ready()
        known = History(lab.client, seed)
        following = asyncio.create_task(known.follow((await lab.client.list(PODS)).resource_version))
        await known.run()
        following.cancel()
        ended = 0
        while ended < PODS_COME:
            listed = (await lab.client.list(EVENTS.raw())).items
            ended = sum(each["reason"] == "Killing" for each in listed)
        nodes = (await lab.client.list(NODES.raw())).items
    items = [{**each, "kind": "Event"} for each in listed] + [{**each, "kind": "Node"} for each in nodes]
    await asyncio.to_thread(path.write_text, json.dumps({"kind": "List", "items": items}))
    return known


async def replayed(*source):
    code, out, err = await beside("backtest", *source, "--no-nodes-needed", "-o", "json")
    assert (code, err) == (0, "")
    return json.loads(out)["reconstruction"]


async def test_histories_with_a_running_clock_are_replayed_as_they_were(tmp_path, quiet_logs, monkeypatch):
    monkeypatch.setattr(backoff, "INITIAL_BACKOFF_S", backoff.INITIAL_BACKOFF_S / SPEED)
    monkeypatch.setattr(backoff, "MAX_BACKOFF_S", backoff.MAX_BACKOFF_S / SPEED)
    found = {"events": [], "log": []}
    for seed in range(HISTORIES):
        logs = tmp_path / f"logs-{seed}"
        logs.mkdir()
        with mock.patch.object(scheduler, "SystemClock", FastClock):
            known = await history(tmp_path / f"{seed}.json", logs, seed)
        sources = {
            "events": ("--dump", tmp_path / f"{seed}.json"),
            "log": tuple(f"--log={path}" for path in sorted(logs.iterdir())),
        }
        for what, source in sources.items():
            told = await replayed(*source)
            found[what].append(told)
            true_s = known.waited_mean_s()
            print(
                f"{seed} {what}: waited {true_s:.3f} s, by the source {told['source']['waited_mean_s']:.3f}, "
                f"replayed {told['replayed']['waited_mean_s']:.3f} ({told['waiting_error_percent']:.1f} %); allocation "
                f"off by {told['allocation_error_points']:.2f} points, {told['moment_error_points']:.2f} at one moment"
            )
            assert abs(told["source"]["waited_mean_s"] - true_s) < 0.15
    for each in found.values():
        assert statistics.median(told["allocation_error_points"] for told in each) < 1
        assert statistics.median(told["waiting_error_percent"] for told in each) < 10
