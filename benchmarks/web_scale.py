"""What `purser web` costs with a large fleet: the page in a browser, the stream, and the server's memory and CPU.

    python benchmarks/web_scale.py [--nodes 1000 10000] [--changes 100] [--seconds 30]

needs Debian's chromium. The pages' server is a process of its own. What it shows is made up: nodes of 8 GPUs, of which
half are held by one to three pods; pods come to so many GPUs a second, or leave them. As a cluster that is watched, it
is a new document about once a second. Its making costs CPU as well, which is counted separately, and it keeps no
objects of a cluster as `purser web` does.

Chromium opens the fleet's page at 1 920 x 1 080, without a GPU. *First* and *all* are the times from navigation to the
frame after the first tile, and after all of them, were drawn. Further viewers are connections that only read. Bytes are
counted where they arrive.
"""

import argparse
import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path

from purser.cli.serving import LogLevel, configure_logs
from purser.core.model import ContainerKind, GrantState
from purser.core.state import (
    ROLLOUT_VERSION,
    ClusterState,
    NodeDetails,
    Rollout,
    StateContainer,
    StateGpu,
    StateGpuHealth,
    StateGrant,
    StateNode,
    StateShare,
    StateStep,
)
from purser.kube import SystemClock
from purser.web import Feed, serving_pages

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.lab.browsers import Tab, browsing

GPUS_PER_NODE, MEMORY_MIB = 8, 81_920
LEAST_PAUSE_S, REST = 1.0, 1.5
"""As `purser.top.following` looks at a cluster."""
NAMESPACES = [f"team-{number}" for number in range(20)]
VIEWERS = (1, 10, 50)
SETTLED_S = 5.0
NEARLY = 0.9
"""Who has so much of the fleet's bytes has it: what pods hold changes, and so does how many bytes that is."""
LOADS = 5
FIRST_S, FRAMES_PER_SECOND, SERVER_MIB, MB_PER_MINUTE = 1, 30, 200, 1
"""The aims, at 1 000 nodes."""
SIZE = {"width": 1920, "height": 1080}

NOTE_TILES = """
window.drawn = new Promise((resolve) => {
  import(new URL("/static/fleet_draw.js", location.href)).then(({ Painter }) => {
    const { paint } = Painter.prototype;
    const times = [];
    Painter.prototype.paint = function (view, ...more) {
      paint.call(this, view, ...more);
      for (const [at, count] of [1, GPUS].entries()) {
        if (view.order.length >= count && times[at] === undefined) {
          times[at] = 0;
          requestAnimationFrame(() => {
            times[at] = performance.now();
            if (at === 1) {
              resolve(times);
            }
          });
        }
      }
    };
  });
});
"""
COUNT_FRAMES = """
([seconds, step]) => new Promise((resolve) => {
  const scroller = document.getElementById("scroller");
  const times = [];
  let down = step;
  const frame = (now) => {
    times.push(now);
    if (step > 0) {
      const { scrollTop } = scroller;
      const most = scroller.scrollHeight - scroller.clientHeight;
      down = scrollTop >= most - 1 ? -step : scrollTop <= 0 ? step : down;
      scroller.scrollTop += down;
    }
    if (now - times[0] < 1000 * seconds) {
      requestAnimationFrame(frame);
    } else {
      resolve(times);
    }
  };
  requestAnimationFrame(frame);
})
"""
COUNT_BYTES = """
() => performance.getEntries().reduce((sum, { transferSize }) => sum + (transferSize ?? 0), 0)
"""


class MadeUpFleet:
    """A `StateSource` of nodes that do not exist."""

    where = "a fleet that is made up"
    problem = ""

    def __init__(self, nodes: int) -> None:
        self.state: ClusterState | None = None
        self.changes_per_second = 0.0
        self.cpu_s = 0.0
        """What making it up took."""
        self._dice = random.Random(1)
        self._uuids = [f"GPU-{uuid.UUID(int=self._dice.getrandbits(128))}" for _ in range(nodes * GPUS_PER_NODE)]
        self._names = [f"gpu-node-{number}.cluster.example" for number in range(nodes)]
        self._held: list[list[tuple[str, str, int]]] = [[] for _ in self._uuids]
        for gpu in self._dice.sample(range(len(self._uuids)), len(self._uuids) // 2):
            self._change(gpu)
        self._sequence = 0

    async def run(self, on_change: Callable[[], None]) -> None:
        began, took = time.monotonic(), 0.0
        while True:
            if self.state is None or self.changes_per_second:
                before = time.monotonic()
                changes = round((before - began) * self.changes_per_second)
                self.state = await asyncio.to_thread(self._next, changes)
                on_change()
                took = time.monotonic() - before
                began = before
            else:
                began = time.monotonic()
            await asyncio.sleep(max(LEAST_PAUSE_S, REST * took))

    def wants(self, uids: Sequence[str]) -> None:
        pass

    async def details(self, namespace: str, pod: str) -> list[str]:
        return []

    async def steps(self, namespace: str, pod: str, uid: str) -> list[StateStep]:
        return []

    async def rollout(self) -> Rollout:
        return Rollout(ROLLOUT_VERSION, (), ())

    async def node_details(self, name: str) -> NodeDetails | None:
        return None

    def _next(self, changes: int) -> ClusterState:
        before = time.thread_time()
        for _ in range(changes):
            self._change(self._dice.randrange(len(self._uuids)))
        self._sequence += 1
        nodes = tuple(map(self._node, range(len(self._names))))
        grants = tuple(
            self._grant(gpu, *holder) for gpu, holders in enumerate(self._held) if holders for holder in holders
        )
        made = ClusterState("made-up", self._sequence, None, nodes, grants, ())
        self.cpu_s += time.thread_time() - before
        return made

    def _change(self, gpu: int) -> None:
        """Its pods leave; where there are none, some come."""
        dice = self._dice
        count = 0 if self._held[gpu] else dice.choice((1, 1, 2, 3))
        self._held[gpu] = [
            (
                dice.choice(NAMESPACES),
                f"training-{dice.getrandbits(32):08x}-{dice.getrandbits(20):05x}",
                dice.choice((4_096, 8_192, 16_384, 24_576)),
            )
            for _ in range(count)
        ]

    def _node(self, number: int) -> StateNode:
        first = number * GPUS_PER_NODE
        gpus = tuple(self._gpu(first + index, index) for index in range(GPUS_PER_NODE))
        return StateNode(self._names[number], False, "570.86.15", "1.0.0", gpus)

    def _gpu(self, gpu: int, index: int) -> StateGpu:
        held = self._held[gpu]
        return StateGpu(
            uuid=self._uuids[gpu],
            index=index,
            model="NVIDIA H100 80GB HBM3",
            mode="shared",
            resource="nvidia.com/gpu",
            parent="",
            health=StateGpuHealth.HEALTHY,
            reason="",
            cordoned=False,
            enforcement="none",
            slots=10,
            slots_held=len(held),
            memory_mib=MEMORY_MIB,
            memory_held_mib=sum(memory for _, _, memory in held),
            cores_percent=100,
            cores_held_percent=30 * len(held),
            pods=len(held),
        )

    def _grant(self, gpu: int, namespace: str, pod: str, memory: int) -> StateGrant:
        share = StateShare(self._uuids[gpu], gpu % GPUS_PER_NODE, memory, 30, "")
        container = StateContainer("main", ContainerKind.APP, "none", (share,))
        node = self._names[gpu // GPUS_PER_NODE]
        return StateGrant(namespace, pod, f"uid-of-{pod}", node, str(GrantState.RUNNING), (container,))


async def serve(nodes: int) -> None:
    """Each line of input is a rate of changes. The answer is how many seconds of CPU went into making up the fleet."""
    source, clock = MadeUpFleet(nodes), SystemClock()
    feed = Feed(source, clock)
    async with serving_pages(feed, clock, 0) as url, asyncio.TaskGroup() as group:
        following = group.create_task(feed.run())
        await feed.wait_for_newer(0)
        print(url, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            source.changes_per_second = float(line)
            print(source.cpu_s, flush=True)
        following.cancel()


class Server:
    """The process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._line()

    def change(self, per_second: float) -> float:
        """Have so many GPUs change; seconds of CPU that went into making them up."""
        assert self._process.stdin is not None
        print(per_second, file=self._process.stdin, flush=True)
        return float(self._line())

    def memory_mib(self, field: str = "VmRSS") -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024  # type: ignore[index]

    def cpu_s(self) -> float:
        words = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    async def core(self, per_second: float, seconds: float) -> tuple[float, float]:
        """How much of a core it takes at a rate of changes, and how much more making them up takes."""
        made, used = self.change(per_second), self.cpu_s()
        await asyncio.sleep(seconds)
        own_s, compute_s = self.cpu_s() - used, self.change(per_second) - made
        return (own_s - compute_s) / seconds, compute_s / seconds

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def serving(nodes: int) -> Iterator[Server]:
    words = [sys.executable, __file__, "--serve", str(nodes)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Server(process)
    finally:
        process.terminate()
        process.wait()


class Viewer:
    """A connection that reads the stream as a browser does, and counts what arrives."""

    def __init__(self) -> None:
        self.bytes = 0
        self._more = asyncio.Event()

    async def has(self, count: float) -> None:
        """Return once so many bytes have arrived."""
        while self.bytes < count:
            self._more.clear()
            await self._more.wait()

    async def read(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(f"GET /events HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip\r\n\r\n".encode())
            while some := await reader.read(1 << 16):
                self.bytes += len(some)
                self._more.set()
        finally:
            writer.close()


@asynccontextmanager
async def watching(url: str, count: int) -> AsyncIterator[list[Viewer]]:
    viewers = [Viewer() for _ in range(count)]
    tasks = [asyncio.ensure_future(viewer.read(url)) for viewer in viewers]
    try:
        yield viewers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(nodes: int, changes: float, seconds: float) -> None:
    print(f"\n{nodes} nodes x {GPUS_PER_NODE} GPUs, {changes:g} changes a second")
    with serving(nodes) as server:
        alone = server.memory_mib()
        print(f"server without a viewer: {alone:.0f} MiB")
        first = await measure_rest(server, seconds)
        await measure_pages(server, nodes, changes, seconds)
        await measure_viewers(server, changes, seconds, first)
        most = server.memory_mib("VmHWM")
        print(f"  {most:.0f} MiB at most (aim at 1 000 nodes: {SERVER_MIB} MB)")


async def measure_rest(server: Server, seconds: float) -> int:
    """Bytes of the whole fleet."""
    async with watching(server.url, 1) as [viewer]:
        await asyncio.sleep(SETTLED_S)
        first = viewer.bytes
        own, _ = await server.core(0, seconds)
    print(f"a viewer of a fleet in which nothing changes: {own:.2%} of a core; first {first / 1000:.0f} kB of stream")
    return first


async def measure_pages(server: Server, nodes: int, changes: float, seconds: float) -> None:
    server.change(changes)
    await asyncio.sleep(SETTLED_S)
    first, whole = [], []
    for _ in range(LOADS):
        async with browsing(server.url, viewport=SIZE) as tab:
            drawn = await load(tab, nodes)
            first.append(drawn[0] / 1000)
            whole.append(drawn[1] / 1000)
            if len(first) == LOADS:
                await measure_page(tab, seconds)
    print(f"  first tile: {summary(first)} (aim: {FIRST_S} s); all: {summary(whole)}; {LOADS} loads")


async def load(tab: Tab, nodes: int) -> list[float]:
    """Milliseconds until the first tile was drawn, and all."""
    await tab.page.add_init_script(NOTE_TILES.replace("GPUS", str(nodes * GPUS_PER_NODE)))
    await tab.open("")
    return list(await tab.page.evaluate("window.drawn"))


async def measure_page(tab: Tab, seconds: float) -> None:
    print(f"the page: {await tab.page.evaluate(COUNT_BYTES) / 1000:.0f} kB without the stream")
    await asyncio.sleep(SETTLED_S)
    print(f"  still: {frames(await tab.page.evaluate(COUNT_FRAMES, [seconds, 0]))} (aim: {FRAMES_PER_SECOND})")
    print(f"  scrolling: {frames(await tab.page.evaluate(COUNT_FRAMES, [seconds, 40]))}")
    devtools = await tab.page.context.new_cdp_session(tab.page)
    await devtools.send("HeapProfiler.collectGarbage")
    heap = await devtools.send("Runtime.getHeapUsage")
    print(f"  JavaScript heap: {heap['usedSize'] / 1e6:.1f} MB")


async def measure_viewers(server: Server, changes: float, seconds: float, first: int) -> None:
    server.change(changes)
    await asyncio.sleep(SETTLED_S)
    before = server.memory_mib()
    print(f"viewers, with {changes:g} changes a second: server {before:.0f} MiB with none")
    for count in VIEWERS:
        made, used, began = server.change(changes), server.cpu_s(), time.monotonic()
        async with watching(server.url, count) as viewers:
            await asyncio.gather(*(viewer.has(NEARLY * first) for viewer in viewers))
            took_s = time.monotonic() - began
            joining = (server.cpu_s() - used - (server.change(changes) - made)) / count
            await asyncio.sleep(SETTLED_S)
            arrived, began = viewers[0].bytes, time.monotonic()
            own, made = await server.core(changes, seconds)
            rate = (viewers[0].bytes - arrived) / (time.monotonic() - began) * 60 / 1e6
            memory = server.memory_mib()
        print(f"  {count:2}: {took_s:.1f} s until all have the fleet, {joining:.2f} s of CPU for each")
        print(
            f"      then {memory:.0f} MiB ({memory - before:+.1f}), {own:.1%} of a core; {made:.1%} more to make it up"
        )
        print(f"      {rate:.2f} MB a minute for each (aim: {MB_PER_MINUTE})")


def frames(times: list[float]) -> str:
    gaps = [after - before for before, after in pairwise(times)]
    rate = 1000 * len(gaps) / (times[-1] - times[0])
    return f"{rate:.0f} frames a second, p99 {statistics.quantiles(gaps, n=100)[98]:.0f} ms, longest {max(gaps):.0f} ms"


def summary(times: list[float]) -> str:
    return f"median {statistics.median(times):.2f} s, worst {max(times):.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--changes", type=float, default=100.0, help="GPUs that change a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--serve", type=int, help="be the server of so many nodes")
    given = parser.parse_args()
    configure_logs(LogLevel.ERROR)
    if given.serve is not None:
        asyncio.run(serve(given.serve))
        return
    for nodes in given.nodes:
        asyncio.run(measure(nodes, given.changes, given.seconds))


if __name__ == "__main__":
    main()
