"""`purser backtest` on the lab: from the events of pods that are gone, and the nodes, and from the scheduler's decision
log, against what is known of them.

The clock that stamps objects, events and decisions is the test's: it stands still while schedulers and kubelets do what
is to be done, however long that takes on a busy machine, and moves on to the next pod that comes or goes.
kube-scheduler's back-off ends while it stands, and the replay has none.
"""

import asyncio
import heapq
import json
import random
import time
from datetime import UTC, datetime
from unittest import mock

import pytest

from purser.kube import events
from purser.kube.clock import SystemClock
from purser.kube.resources import EVENTS, NODES, PODS
from purser.kube.watching import Change, ChangeType
from purser.lab.apiserver import jsonio
from purser.lab.cluster import Lab
from purser.lab.controllers.scheduling import scheduler
from purser.lab.settings import LabSettings, node_choices
from purser.scheduler.cache import cache
from purser.scheduler.extender import extender
from purser.simulator import backoff
from tests import waiting
from tests.unit.cli.typed import beside

pytestmark = pytest.mark.gate

BEGIN_S = float(int(time.time()))
PODS_COME = 30
GPUS = 12
MEMORY_MIB = 15360
SPEED = 60
QUIET_S = 0.7
"""Without any change of a pod, longer than any back-off: all that fit were bound."""


SAID_S = 0.2
"""After a change is seen, until whoever made it has said so in an event, and the decision log has it."""


class StandingClock(SystemClock):
    """For stamps; paces are the machine's."""

    now_s = BEGIN_S

    def now(self):
        return datetime.fromtimestamp(StandingClock.now_s, UTC)


class FastClock(StandingClock):
    def monotonic(self):
        return SPEED * time.monotonic()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds / SPEED)


class History:
    """Pods that come and go, and what is known of them."""

    def __init__(self, client, seed):
        self._client, self._drawn = client, random.Random(seed)
        self._due = []
        self._limits, self._lasts_s = {}, {}
        self._refused, self._changed = set(), asyncio.Event()
        self.gpus, self.created, self.bound, self.gone = {}, {}, {}, {}

    async def follow(self, version):
        async with self._client.watch(PODS.raw(), "default", resource_version=version) as changes:
            async for change in changes:
                if isinstance(change, Change):
                    self._heard(change.type, change.object)

    def _heard(self, kind, pod):
        name, now_s = pod["metadata"]["name"], StandingClock.now_s
        if pod["spec"].get("nodeName") and name not in self.bound:
            self.bound[name] = now_s
            heapq.heappush(self._due, (now_s + self._lasts_s[name], name, self._delete))
        if any(each["type"] == "PodScheduled" for each in pod.get("status", {}).get("conditions", ())):
            self._refused.add(name)
        if kind is ChangeType.DELETED:
            self.gone[name] = now_s
        self._changed.set()

    async def run(self):
        at_s = BEGIN_S
        for number in range(PODS_COME):
            name = f"pod-{number}"
            gpus, part = self._drawn.choice([(1, 1), (1, 1), (2, 1), (4, 1), (1, 1 / 2), (1, 1 / 4)])
            self._limits[name] = {"nvidia.com/gpu": str(gpus), "nvidia.com/gpumem": str(round(part * MEMORY_MIB))}
            self.gpus[name], self._lasts_s[name] = gpus * part, self._drawn.uniform(200, 700)
            heapq.heappush(self._due, (at_s, name, self._create))
            at_s += self._drawn.uniform(20, 80)
        while self._due:
            StandingClock.now_s, name, do = heapq.heappop(self._due)
            await do(name)

    async def _create(self, name):
        self.created[name] = StandingClock.now_s
        container = {"name": "c", "image": "busybox", "resources": {"limits": self._limits[name]}}
        await self._client.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]}}, "default")
        await self._until(lambda: name in self.bound or name in self._refused)

    async def _delete(self, name):
        await self._client.delete(PODS, name, "default", grace_period_seconds=1)
        await self._until(lambda: name in self.gone)
        while self.bound.keys() < self.created.keys():
            self._changed.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def _until(self, holds):
        while not holds():
            self._changed.clear()
            await self._changed.wait()
        await FastClock().sleep(SPEED * SAID_S)

    def waited_mean_s(self):
        return sum(self.bound[name] - self.created[name] for name in self.created) / PODS_COME

    def allocation_percent(self, begin_s, end_s):
        held = sum(
            self.gpus[name] * max(0.0, min(self.gone[name], end_s) - max(self.bound[name], begin_s))
            for name in self.created
        )
        return 100 * held / (GPUS * (end_s - begin_s))


class StandingDatetime(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(StandingClock.now_s, tz)


async def history(path, logs):
    """What is known, and the file that kubectl would have written afterwards."""
    settings = LabSettings(node_choices(["t4-4:3"]), decision_log_folder=logs)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        known = History(lab.client, seed=5)
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


async def test_a_history_is_replayed_as_it_was(tmp_path, quiet_logs, monkeypatch):
    monkeypatch.setattr(backoff, "INITIAL_BACKOFF_S", 0.0)
    logs = tmp_path / "logs"
    logs.mkdir()
    with (
        mock.patch.object(events, "SystemClock", StandingClock),
        mock.patch.object(cache, "SystemClock", StandingClock),
        mock.patch.object(jsonio, "datetime", StandingDatetime),
        mock.patch.object(scheduler, "SystemClock", FastClock),
        mock.patch.object(extender, "RESOLVE_PERIOD_S", SAID_S / 4),
    ):
        known = await history(tmp_path / "past.json", logs)
    await is_replayed(known, "--dump", tmp_path / "past.json")
    await is_replayed(known, *(f"--log={path}" for path in sorted(logs.iterdir())))


async def is_replayed(known, *source):
    """Allocation within a point, and waiting time within a tenth."""
    code, out, err = await beside("backtest", *source, "--policy", "purser", "-o", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["pods"] == PODS_COME and not found["left_out"]
    begin_s, end_s = (datetime.fromisoformat(found[each]).timestamp() for each in ("begin", "end"))
    true_percent, true_wait_s = known.allocation_percent(begin_s, end_s), known.waited_mean_s()
    told = found["reconstruction"]
    print(source[0].partition("=")[0])
    print(f"known: {true_percent:.3f} % allocated, {true_wait_s:.2f} s waited on the mean")
    for each in ("source", "replayed"):
        percent, wait_s = told[each]["allocation_percent"], told[each]["waited_mean_s"]
        print(f"{each}: {percent:.3f} % allocated, {wait_s:.2f} s waited on the mean")
        assert abs(percent - true_percent) < 1
        assert abs(wait_s - true_wait_s) < 0.1 * true_wait_s
    print(f"stated: {told['allocation_error_points']} points, {told['waiting_error_percent']} %")
    assert told["allocation_error_points"] < 1 and told["waiting_error_percent"] < 10
    assert told["source"]["waited_pods"] >= 10
