"""A scheduler's log over many restarts, and a change of its version, while everything breaks: each decision comes out
the same, to the last bit, of the files that all processes left.

    PURSER_TIER=soak pytest --timeout=0 -s tests/lab/test_decision_log_under_faults.py

Pods come and go by several at once; faults come meanwhile. From half of the decisions on the scheduler is the next
version, whose format of the log is another one.
"""

import asyncio
import contextlib
import io
import random
import time
from collections import Counter

import pytest

from purser.core.decisions import Reader
from purser.core.decisions.records import LOG_FORMAT, NodesJudged, PodPlaced, SchedulingStart
from purser.kube.errors import ApiError, NotFoundError
from purser.kube.resources import PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.decision_logs import replayed, up_to_the_cut
from tests.lab.lab_cluster import LabCluster, check_invariants
from tests.lab.test_chaos import ANYWHERE, some_pod
from tests.scenarios.actions import create
from tests.scenarios.pods import pod, share
from tests.tiers import TIER, Tier
from tests.unit.core.decisions.versions import later_reader, later_writer

DECISIONS = 10_000 if TIER is Tier.SOAK else 250
STREAMS = 4
"""Pods come and go by so many at once."""
MAX_PODS = 24
"""Of each stream: more than fit, so that some wait and are judged again and again."""
APART_BYTES = 20_000
"""So much is written from one fault to the next: some forty decisions, however fast the machine is."""


class Files:
    """The log's files. Those of scheduler processes that have ended are moved away, for a folder keeps the newest."""

    def __init__(self, folder):
        self.folder, self.done = folder / "now", folder / "done"
        self.folder.mkdir()
        self.done.mkdir()
        self.decisions, self.formats = 0, Counter()
        self.is_next = False
        """Whether the scheduler is of the next version by now."""

    @property
    def size_bytes(self):
        """Of the file that is written now."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def collect(self):
        """After the scheduler ended."""
        for path in sorted(self.folder.iterdir()):
            path = path.rename(self.done / path.name)
            reader = Reader(io.BytesIO(path.read_bytes()).read)
            for record in up_to_the_cut(reader):
                self.decisions += isinstance(record, NodesJudged | PodPlaced)
                if isinstance(record, SchedulingStart):
                    self.formats[record.format] += 1
        print(f"{self.decisions} decisions in {sum(self.formats.values())} files", flush=True)


@pytest.mark.gate
async def test_decisions_under_faults_come_out_the_same_over_restarts_and_versions(quiet_logs, tmp_path):
    files, begun = Files(tmp_path), time.monotonic()
    nodes = node_choices(["a100-40gb-8", "t4-4"])
    faults = Counter()
    async with Lab(LabSettings(nodes, probe_interval_s=0.25, decision_log_folder=files.folder)) as lab:
        async with waiting.limit():
            await lab.ready()
        cluster = LabCluster(lab, "chaos")
        await cluster.set_up()
        streams = [asyncio.create_task(come_and_go(cluster, number)) for number in range(STREAMS)]
        dice = random.Random(5)
        with later_reader(), contextlib.ExitStack() as version:
            while files.decisions < DECISIONS or len(files.formats) < 2:
                await break_things(lab, files, streams, dice, faults, version)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await check_invariants(lab)
    with later_reader():
        files.collect()
        decisions, differences = replayed(files.done)
    assert differences == []
    assert decisions == files.decisions >= DECISIONS
    assert sorted(files.formats) == [LOG_FORMAT, LOG_FORMAT + 1]
    took = f"{(time.monotonic() - begun) / 60:.1f} minutes"
    print(f"{decisions} decisions in {sum(files.formats.values())} files, by format {dict(files.formats)}, {took}")
    print(f"faults: {dict(faults)}")


async def come_and_go(cluster, stream):
    """Names are kept here: to list the pods for each step would be most of the work."""
    dice, there, number = random.Random(stream), [], 0
    while True:
        if len(there) < MAX_PODS and dice.random() < 0.6:
            number += 1
            name = f"pod-{stream}-{number}"
            made = (
                some_pod(cluster, name, dice)
                if dice.random() < 0.5
                else pod(cluster, name, share(dice.choice([1000, 2000, 5000]), 5), **ANYWHERE)
            )
            # The webhook is away while the scheduler is: what was not mutated is refused, rightly.
            with contextlib.suppress(ApiError):
                await create(cluster, made)
                there.append(name)
        elif there:
            name = there.pop(dice.randrange(len(there)))
            with contextlib.suppress(NotFoundError):
                await cluster.client.delete(PODS, name, cluster.namespace, grace_period_seconds=dice.choice([0, None]))
        await asyncio.sleep(dice.random() * 0.02)


async def break_things(lab, files, streams, dice, faults, version):
    """Each fault once, in any order, and last the scheduler's: its file is whole then, and is counted. The scheduler
    that comes next may be of the next version."""
    for fault in [*dice.sample(["kubelet", "agent", "card"], 3), "scheduler"]:
        await something_decided(files, streams, dice)
        node = dice.choice(list(lab.nodes))
        faults[fault] += 1
        match fault:
            case "kubelet":
                await lab.restart_kubelet(node)
            case "agent":
                await lab.kill_agent(node)
                await asyncio.sleep(dice.random() * 0.3)
                lab.start_agent(node)
            case "card":
                lab.lose_gpu(node, 0)
                await asyncio.sleep(1)
                lab.recover_gpu(node, 0)
            case "scheduler":
                await lab.kill_scheduler()
                files.collect()
                if files.decisions >= DECISIONS // 2 and not files.is_next:
                    files.is_next = True
                    version.enter_context(later_writer())
                await lab.start_scheduler()


async def something_decided(files, streams, dice):
    """Return once enough was written."""
    enough = files.size_bytes + APART_BYTES * dice.random() * 2
    while files.size_bytes < enough:
        await asyncio.sleep(0.1)
        for stream in streams:
            assert not stream.done(), stream.exception()
