"""Pods bound per second on the real control plane, through Purser and beside it, and what each part costs.

    python benchmarks/control_plane_scale.py --assets DIR [--assets DIR] [--nodes 1000] [--pods 1500] [--json FILE]

Starts etcd and kube-apiserver out of the folders named, makes nodes of 8 GPUs that have no kubelet, and goes through
the cases one after the other, each with a kube-scheduler of its own:

    purser            the chart's configuration; pods ask for whole GPUs, HAMi's and Volcano's shares in turn
    purser-all        the same with scheduler.nodesToScore: 0
    purser-exclusive  the same with scheduler.authority: exclusive
    purser-adaptive   the same without percentageOfNodesToScore: 100
    counted           no extender; the same pods, whose resources kube-scheduler counts by itself
    no-extender       the chart's configuration without its extender; pods ask for no GPUs
    stock             kube-scheduler's defaults; pods ask for no GPUs

Each case has a burst, all pods created as fast as the API server takes them, which tells how many are bound in a
second, and then pods at a steady rate, whose time from creation to binding is reported. kube-scheduler limits its own
requests to 50 a second by default, with bursts of 100; --qps 0 lifts that in all of them. At the end all grants are
read back and no GPU may be overcommitted. Before the first case comes a burst that is not measured.

Everything shares the machine: compare what one run prints. ``cpu`` is in milliseconds a pod, during the burst.

Example: python benchmarks/control_plane_scale.py --assets ~/kube/bin --nodes 5000 --case purser --case stock
"""

import argparse
import asyncio
import json
import os
import re
import ssl
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from purser.core.model import Device, NodeInventory
from purser.core.names import DEFAULT_NAMESPACE, INVENTORY_ANNOTATION, SCHEDULER_NAME
from purser.kube import Client, ClusterConfig, Informer, SystemClock
from purser.kube.objects import Pod
from purser.kube.resources import NAMESPACES, NODES, PODS, Raw
from purser.kube.transport import Call, Transport
from purser.lab.controlplane import commands
from purser.lab.controlplane.commands import Ports
from purser.lab.controlplane.plane import ADMIN
from purser.lab.controlplane.process import Process, is_answering
from purser.lab.controlplane.programs import API_SERVER, ASSETS_VARIABLE, ETCD, SCHEDULER, Programs
from purser.lab.controlplane.real import RealControlPlane
from purser.lab.hollow import HollowNodes, manifests
from purser.lab.ports import free_ports
from purser.lab.profile import configuration
from purser.scheduler.cache import ClusterCache
from purser.scheduler.keys import load_or_create_keys

GPUS, MEMORY_MIB, SLOTS = 8, 81920, 10
AT_ONCE = 32
WARM_UP = 30
CASES = ("purser", "purser-all", "purser-exclusive", "purser-adaptive", "counted", "no-extender", "stock")
TICKS = os.sysconf("SC_CLK_TCK")
SHARES = (
    {"nvidia.com/gpu": "1"},
    {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "10"},
    # nvidia.com/gpu is what the webhook adds.
    {"volcano.sh/gpu-memory": "4096", "nvidia.com/gpu": "1"},
)


@dataclass(frozen=True)
class Case:
    """Whom the pods name, what they ask for, and how kube-scheduler gets it."""

    name: str
    scheduler: str
    has_gpus: bool
    config: dict[str, Any]
    options: tuple[str, ...] = ()
    """Of `purser scheduler`."""

    @property
    def has_purser(self) -> bool:
        """Whether Purser is asked."""
        return "extenders" in self.config


def cases(extender_port: int) -> list[Case]:
    chart = configuration(extender_port)
    without = {key: value for key, value in chart.items() if key != "extenders"}
    adaptive = {key: value for key, value in chart.items() if key != "percentageOfNodesToScore"}
    return [
        Case("purser", SCHEDULER_NAME, True, chart),
        Case("purser-all", SCHEDULER_NAME, True, chart, ("--nodes-to-score", "0")),
        Case("purser-exclusive", SCHEDULER_NAME, True, chart, ("--authority", "exclusive")),
        Case("purser-adaptive", SCHEDULER_NAME, True, adaptive),
        Case("counted", SCHEDULER_NAME, True, without),
        Case("no-extender", SCHEDULER_NAME, False, without),
        Case("stock", "default-scheduler", False, {}),
    ]


def nodes(count: int) -> Iterator[Raw]:
    amounts = {
        "nvidia.com/gpu": GPUS * SLOTS,
        "nvidia.com/gpumem": GPUS * MEMORY_MIB,
        "nvidia.com/gpucores": GPUS * 100,
        "volcano.sh/gpu-memory": GPUS * MEMORY_MIB,
    }
    resources = {name: str(amount) for name, amount in amounts.items()}
    for node in manifests(HollowNodes(name="gpu", count=count, gpus=GPUS)):
        name = node["metadata"]["name"]
        cards = tuple(
            Device(f"GPU-{name}-{i}", i, "NVIDIA H100 80GB HBM3", MEMORY_MIB, slots=SLOTS) for i in range(GPUS)
        )
        inventory = msgspec.json.encode(NodeInventory(name, cards)).decode()
        node["metadata"]["annotations"][INVENTORY_ANNOTATION] = inventory
        status = node["status"]
        status["capacity"] = status["allocatable"] = {**status["capacity"], **resources}
        yield node


def pod(case: Case, number: int, phase: str) -> Raw:
    limits = {"cpu": "100m", "memory": "64Mi", **(SHARES[number % len(SHARES)] if case.has_gpus else {})}
    return {
        "metadata": {"name": f"{case.name}-{phase}-{number}", "namespace": "default"},
        "spec": {
            "schedulerName": case.scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
        },
    }


class Cluster:
    """The control plane, and when each pod was created and bound."""

    def __init__(self, client: Client, plane: RealControlPlane, folder: Path) -> None:
        self.client, self.plane, self.folder = client, plane, folder
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self._heard = asyncio.Event()

    async def follow(self) -> None:
        """Note when each pod is seen bound."""
        pods = Informer(self.client, PODS, "default")
        pods.add_handler(self._seen, lambda _, one: self._seen(one))
        await pods.run()

    def _seen(self, one: Pod) -> None:
        if one.spec.node_name:
            self.bound.setdefault(one.metadata.name, time.monotonic())
            self._heard.set()

    async def create(self, body: Raw) -> None:
        self.created[body["metadata"]["name"]] = time.monotonic()
        await self.client.create(PODS.raw(), body)

    async def all_bound(self, names: list[str], limit_s: float) -> None:
        """Raises TimeoutError."""
        missing = set(names) - self.bound.keys()
        try:
            async with asyncio.timeout(limit_s):
                while missing:
                    self._heard.clear()
                    await self._heard.wait()
                    missing -= self.bound.keys()
        except TimeoutError:
            name = min(missing)
            why = (await self.client.get(PODS.raw(), name, "default"))["status"]
            raise TimeoutError(f"{len(missing)} pods are not bound, such as {name}: {json.dumps(why)}") from None

    async def get(self, path: str, **params: str) -> bytes:
        """Of the API server's own paths, such as `/metrics`."""
        config = ClusterConfig.load(self.plane.kubeconfig(ADMIN))
        async with Transport(config, user_agent="benchmark", timeout=30.0, clock=SystemClock()) as transport:
            return await transport.request(Call("GET", path, params))

    async def clear(self) -> None:
        """Delete all pods."""
        found = (await self.client.list(PODS, "default")).items
        await each_of(
            found,
            lambda one: self.client.delete(
                PODS, one.metadata.name, "default", uid=one.metadata.uid, grace_period_seconds=0
            ),
        )


async def each_of(items: Any, do: Any) -> None:
    """Some at once."""
    rest = iter(items)

    async def worker() -> None:
        for item in rest:
            await do(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())


@asynccontextmanager
async def running(process: Process, probe: Any) -> AsyncIterator[Process]:
    process.start()
    try:
        await asyncio.to_thread(process.wait_ready, probe)
        yield process
    finally:
        await asyncio.to_thread(process.stop, 5)


class KubeScheduler:
    """One kube-scheduler, until the context is left."""

    def __init__(self, programs: Programs, plane: RealControlPlane, folder: Path, case: Case, qps: int) -> None:
        self._port, http = free_ports(2)
        kubeconfig = plane.kubeconfig(ADMIN)
        ports = Ports(0, 0, 0, 0, self._port, http)
        config = commands.scheduler_config(programs.version, ports, kubeconfig, case.config)
        if qps:
            config["clientConnection"] |= {"qps": qps, "burst": 2 * qps}
        path = folder / f"{case.name}.json"
        path.write_text(json.dumps(config))
        argv = [programs.path(SCHEDULER), f"--config={path}", "--bind-address=127.0.0.1"]
        argv += [f"--secure-port={self._port}", f"--authentication-kubeconfig={kubeconfig}"]
        argv += [f"--authorization-kubeconfig={kubeconfig}"]
        self._token = re.search(r'"?token"?: *"?([0-9a-f]+)', kubeconfig.read_text())[1]  # type: ignore[index]
        self.process = Process(case.name, argv, folder)

    def get(self, path: str) -> bytes:
        """Of its secure port; `/debug/pprof/profile?seconds=10` among others."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._port}{path}", headers={"Authorization": f"Bearer {self._token}"}
        )
        with urllib.request.urlopen(request, timeout=120, context=unverified()) as answer:
            body: bytes = answer.read()
            return body

    def is_ready(self) -> bool:
        try:
            return self.get("/healthz") == b"ok"
        except OSError:
            return False


def unverified() -> ssl.SSLContext:
    """It signs its own certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Purser:
    """Purser's scheduler, a process of its own as in the chart, without the webhook."""

    def __init__(self, plane: RealControlPlane, folder: Path) -> None:
        self.port, webhook, self._metrics = free_ports(3)
        self._command = [sys.executable, "-c", "from purser.cli import main; main()", "scheduler", "--no-webhook"]
        self._command += ["--kubeconfig", str(plane.kubeconfig(ADMIN)), "--log-level", "warning"]
        self._command += ["--webhook-address", "127.0.0.1", "--webhook-port", str(webhook)]
        self._command += ["--extender-port", str(self.port)]
        self._command += ["--metrics-address", "127.0.0.1", "--metrics-port", str(self._metrics)]
        self._folder = folder
        self.process = self.of(())

    def of(self, options: tuple[str, ...]) -> Process:
        """The process with these options, which is the one that is measured from now on."""
        self.process = Process("purser-process", [*self._command, *options], self._folder)
        return self.process

    def metrics(self) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=10) as answer:
            body: bytes = answer.read()
            return body

    def is_ready(self) -> bool:
        return is_answering(f"http://127.0.0.1:{self._metrics}/readyz")


# --- what is measured


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def processes(cluster: Cluster, extra: dict[str, Process]) -> dict[str, int]:
    """Process ids by name; this process among them."""
    found = {"benchmark": os.getpid()}
    for process in [*cluster.plane._processes, *extra.values()]:
        name = next((name for name, each in extra.items() if each is process), process.name)
        if process.pid is not None:
            found[name] = process.pid
    return found


def sums(exposition: bytes, metric: str, labels: tuple[str, ...]) -> dict[tuple[str, ...], tuple[float, float]]:
    """Sum and count of a histogram by some of its labels."""
    found: dict[tuple[str, ...], list[float]] = {}
    for name, text, value in re.findall(
        rf"^{metric}_(sum|count)(?:\{{(.*)\}})? (\S+)$", exposition.decode(), re.MULTILINE
    ):
        said = dict(re.findall(r'(\w+)="([^"]*)"', text))
        into = found.setdefault(tuple(said.get(label, "") for label in labels), [0.0, 0.0])
        into[name == "count"] += float(value)
    return {key: (total, count) for key, (total, count) in found.items()}


def parts(before: bytes, after: bytes, metric: str, labels: tuple[str, ...], pods: int) -> dict[str, float]:
    """Milliseconds that a pod took in each part, between two expositions of a histogram in seconds."""
    old, new = sums(before, metric, labels), sums(after, metric, labels)
    spent = {
        " ".join(key) or metric: 1000 * (total - old.get(key, (0.0, 0.0))[0]) / pods for key, (total, _) in new.items()
    }
    return {name: round(value, 3) for name, value in sorted(spent.items()) if value >= 0.001}


def requests(exposition: bytes) -> Counter[str]:
    """How many requests the API server answered, by verb and resource."""
    found: Counter[str] = Counter()
    for text, value in re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", exposition.decode(), re.MULTILINE):
        said = dict(re.findall(r'(\w+)="([^"]*)"', text))
        what = "/".join(filter(None, (said["resource"], said["subresource"])))
        found[f"{said['verb']} {what}"] += int(float(value))
    return found


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True)
class Options:
    pods: int
    steady_rate: float
    steady_s: float
    profile: Path | None
    qps: int


async def measure(
    cluster: Cluster, programs: Programs, case: Case, purser: Purser | None, options: Options
) -> dict[str, Any]:
    scheduler = KubeScheduler(programs, cluster.plane, cluster.folder, case, options.qps)
    extra = {"kube-scheduler": scheduler.process, **({"purser": purser.process} if purser else {})}
    async with running(scheduler.process, scheduler.is_ready):
        await burst(cluster, case, "warm", WARM_UP)
        pids = processes(cluster, extra)
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        seen = scheduler.get("/metrics"), purser.metrics() if purser else b""
        asked = requests(await cluster.get("/metrics"))
        profiling = asyncio.create_task(profile(cluster, scheduler, case, options.profile))
        took, times = await burst(cluster, case, "burst", options.pods)
        cpu = {name: round(1000 * (cpu_seconds(pid) - before[name]) / options.pods, 2) for name, pid in pids.items()}
        seen_after = scheduler.get("/metrics"), purser.metrics() if purser else b""
        asked = requests(await cluster.get("/metrics")) - asked
        await profiling
        steady = await at_a_rate(cluster, case, options.steady_rate, options.steady_s)
        books = await check_books(cluster) if purser else ""
        await cluster.clear()
    stages = parts(
        seen[0],
        seen_after[0],
        "scheduler_framework_extension_point_duration_seconds",
        ("extension_point",),
        options.pods,
    )
    return {
        "case": case.name,
        "books": books,
        "pods_per_s": round(options.pods / took, 1),
        "burst_p50_s": round(percentile(times, 50), 3),
        "burst_p99_s": round(percentile(times, 99), 3),
        "steady_p50_ms": round(1000 * percentile(steady, 50), 1),
        "steady_p99_ms": round(1000 * percentile(steady, 99), 1),
        "cpu_ms_per_pod": cpu,
        "requests_per_pod": {
            what: round(count / options.pods, 2) for what, count in asked.most_common() if count > options.pods / 50
        },
        "kube_scheduler_ms_per_pod": stages
        | parts(seen[0], seen_after[0], "scheduler_scheduling_algorithm_duration_seconds", (), options.pods),
        "purser_ms_per_pod": parts(
            seen[1], seen_after[1], "purser_scheduler_request_seconds", ("verb", "outcome"), options.pods
        )
        | parts(seen[1], seen_after[1], "purser_scheduler_stage_seconds", ("verb", "stage"), options.pods),
    }


async def warm_up(cluster: Cluster, programs: Programs, case: Case, options: Options) -> None:
    """Nobody's burst: etcd and the API server take more CPU for their first pods, which one case alone would pay."""
    scheduler = KubeScheduler(programs, cluster.plane, cluster.folder, case, qps=0)
    async with running(scheduler.process, scheduler.is_ready):
        await burst(cluster, case, "before", options.pods)
        await cluster.clear()


async def profile(cluster: Cluster, scheduler: KubeScheduler, case: Case, folder: Path | None) -> None:
    if folder is not None:
        await asyncio.sleep(1)
        found = await asyncio.gather(
            asyncio.to_thread(scheduler.get, "/debug/pprof/profile?seconds=6"),
            cluster.get("/debug/pprof/profile", seconds="6"),
        )
        for name, profile in zip(("kube-scheduler", "kube-apiserver"), found, strict=True):
            (folder / f"{case.name}.{name}.pprof").write_bytes(profile)


async def burst(cluster: Cluster, case: Case, phase: str, count: int) -> tuple[float, list[float]]:
    """All at once: seconds from the first creation to the last binding, and of each pod."""
    bodies = [pod(case, number, phase) for number in range(count)]
    names = [body["metadata"]["name"] for body in bodies]
    started = time.monotonic()
    await each_of(bodies, cluster.create)
    await cluster.all_bound(names, 120 + count / 5)
    took = max(map(cluster.bound.__getitem__, names)) - started
    return took, [cluster.bound[name] - cluster.created[name] for name in names]


async def at_a_rate(cluster: Cluster, case: Case, rate: float, seconds: float) -> list[float]:
    """Pods one after the other: seconds from creation to binding of each."""
    count = int(rate * seconds)
    bodies = [pod(case, number, "steady") for number in range(count)]
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number, body in enumerate(bodies):
            await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
            group.create_task(cluster.create(body))
    names = [body["metadata"]["name"] for body in bodies]
    await cluster.all_bound(names, 120 + count / 5)
    return [cluster.bound[name] - cluster.created[name] for name in names]


async def check_books(cluster: Cluster) -> str:
    """Read every grant back. Raises AssertionError where a GPU is overcommitted, or a pod has no grant that counts."""
    client = cluster.client
    cache = ClusterCache(await load_or_create_keys(client, DEFAULT_NAMESPACE))
    for node in (await client.list(NODES)).items:
        cache.put_node(node)
    found = [each for each in (await client.list(PODS, "default")).items if each.spec.node_name]
    for each in found:
        cache.put_pod(each)
    grants = list(cache.ledger.grants())
    assert not cache.bound_grants.untrusted, cache.bound_grants.untrusted
    assert len(grants) == len(found), f"{len(found)} pods are bound, {len(grants)} hold grants"
    overdrawn = [violation for node in cache.fleet.names() for violation in cache.ledger.violations(node)]
    assert not overdrawn, overdrawn
    return f"{len(grants)} grants on {len({grant.node for grant in grants})} nodes, no card overcommitted"


async def run(programs: Programs, arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    options = Options(arguments.pods, arguments.rate, arguments.seconds, arguments.profile, arguments.qps)
    plane = RealControlPlane(
        programs, folder, 0, {}, (), api_server="API server", controllers="controllers of workloads"
    )
    found = []
    async with plane, Client(ClusterConfig.load(plane.kubeconfig(ADMIN))) as client, asyncio.TaskGroup() as group:
        cluster = Cluster(client, plane, folder)
        await client.create(NAMESPACES, {"metadata": {"name": DEFAULT_NAMESPACE}})
        await each_of(nodes(arguments.nodes), lambda node: client.create(NODES.raw(), node))
        following = group.create_task(cluster.follow())
        purser = Purser(plane, folder)
        known = cases(purser.port)
        wanted = [each for each in known if each.name in (arguments.case or CASES)]
        await warm_up(cluster, programs, known[-1], options)
        for case in (each for each in wanted if each.has_purser):
            async with running(purser.of(case.options), purser.is_ready):
                found.append(await measure(cluster, programs, case, purser, options))
            say(found[-1])
        for case in (each for each in wanted if not each.has_purser):
            found.append(await measure(cluster, programs, case, None, options))
            say(found[-1])
        following.cancel()
    return found


def say(row: dict[str, Any]) -> None:
    print(json.dumps(row), file=sys.stderr, flush=True)


def table(rows: list[dict[str, Any]]) -> str:
    """As in docs/benchmarks.md."""
    names = sorted({name for row in rows for name in row["cpu_ms_per_pod"]})
    titles = ["case", "pods/s", "burst p50, p99 s", "steady p50, p99 ms", *(f"{name}, CPU ms a pod" for name in names)]
    lines = [titles, ["---"] * len(titles)]
    for row in rows:
        lines.append(
            [
                row["case"],
                str(row["pods_per_s"]),
                f"{row['burst_p50_s']:.1f}, {row['burst_p99_s']:.1f}",
                f"{row['steady_p50_ms']:.0f}, {row['steady_p99_ms']:.0f}",
                *(f"{row['cpu_ms_per_pod'][name]:.1f}" if name in row["cpu_ms_per_pod"] else "" for name in names),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def programs_of(folders: list[Path], folder: Path) -> Programs:
    """etcd, kube-apiserver and kube-scheduler out of several folders."""
    folder.mkdir()
    for name in (ETCD, API_SERVER, SCHEDULER):
        at = next((each / name for each in folders if (each / name).is_file()), None)
        if at is None:
            sys.exit(f"no {name} in {', '.join(map(str, folders)) or 'any folder: give --assets'}")
        (folder / name).symlink_to(at.absolute())
    return Programs.find(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, action="append", default=[], help="folder with programs; repeated")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1500, help="in the burst")
    parser.add_argument("--rate", type=float, default=15.0, help="pods a second at the steady rate")
    parser.add_argument("--seconds", type=float, default=20.0, help="for how long they come at the steady rate")
    parser.add_argument("--qps", type=int, default=50, help="kube-scheduler's limit on its own requests; 0: none")
    parser.add_argument("--case", action="append", choices=CASES, help="repeated; default: all")
    parser.add_argument("--json", type=Path, help="write what was measured there, too")
    parser.add_argument(
        "--profile", type=Path, help="folder for CPU profiles (pprof) of kube-scheduler and kube-apiserver"
    )
    arguments = parser.parse_args()
    if not arguments.assets and (named := os.environ.get(ASSETS_VARIABLE)):
        arguments.assets = [Path(named)]
    with tempfile.TemporaryDirectory(prefix="purser-scale-") as folder:
        rows = asyncio.run(run(programs_of(arguments.assets, Path(folder) / "bin"), arguments, Path(folder)))
    print(f"{arguments.nodes} nodes x {GPUS} cards, {arguments.pods} pods")
    print(table(rows))
    for books in (f"{row['case']}: {row['books']}" for row in rows if row["books"]):
        print(books)
    if arguments.json:
        arguments.json.write_text(json.dumps({"nodes": arguments.nodes, "pods": arguments.pods, "cases": rows}))


if __name__ == "__main__":
    main()
