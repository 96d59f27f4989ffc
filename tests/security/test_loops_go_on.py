"""What one turn of a background loop fails on ends no process: it is logged, counted, and the loop restarts after a
pause. Every loop of Purser runs in `ObjectFailures.keep_going`, or is in a table here that says why not."""

import ast
import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

import purser
from purser.agent import health, janitor, publisher, registration, remedies
from purser.agent import run as agent_run
from purser.agent.amounts import NodeAmounts
from purser.agent.disputes import DisputeWatch
from purser.agent.features.publishing import FeatureLabels
from purser.agent.instances.keeping import InstanceKeeper
from purser.agent.mig.worker import Worker
from purser.agent.monitoring.watching import GpuMonitoring
from purser.agent.mps.daemons import MpsDaemons
from purser.agent.sriov.watching import SriovPlugins
from purser.kube import failures as failures_module
from purser.kube.clock import SystemClock
from purser.kube.failures import ObjectFailures
from purser.lab.kubelet import node as kubelet_node
from purser.lab.kubelet.podworkers import PodWorkers
from purser.operator.observing import Observer
from purser.operator.observing import observer as observer_module
from purser.scheduler import run as scheduler_run
from purser.scheduler.extender import extender as extender_module
from purser.scheduler.extender.extender import KubeExtender
from tests.security.odd import Odd, forever
from tests.unit.kube.servers import client_of, eventually, listing, pod, running
from tests.unit.kube.test_informer import Script, informer_of
from tests.unit.scheduler.extender_world import replica, server

SRC = Path(purser.__file__).parent


def failures_of():
    failures, registry = ObjectFailures(), CollectorRegistry()
    failures.report_to(registry, SimpleNamespace(event=None))
    return failures, registry


def failed(registry, loop):
    return registry.get_sample_value("purser_loop_failures_total", {"loop": loop})


class Clock:
    """Notes how long others sleep, and lets them."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


async def test_a_loop_that_fails_restarts_ever_later_and_ends_when_it_is_cancelled():
    failures, registry = failures_of()
    clock, turns = Clock(), []

    async def loop():
        turns.append(clock.now)
        if len(turns) == 12:
            clock.now += 1000
        if len(turns) == 14:
            raise asyncio.CancelledError
        raise KeyError

    with pytest.raises(asyncio.CancelledError):
        await failures.keep_going("x", loop, clock)
    assert clock.slept[0] <= 1
    assert all(0.5 * 2**number <= pause <= 2**number for number, pause in enumerate(clock.slept[:6]))
    assert 30 <= clock.slept[10] <= 60
    assert clock.slept[11] <= 1, "it went well for long"
    assert failed(registry, "x") == 13


# --- every loop


class Nothing:
    """To be awaited or not."""

    def __await__(self):
        return iter(())


AT_ONCE = {"synced", "served", "differs", "scan", "sweep", "stop", "leave", "close", "drain", "refresh", "set"}
AT_ONCE |= {"_let_go", "_combine", "_tell", "_find_policy_version"}


class StandIn:
    """In the place of an object and of all that it has: what it is asked to do goes on without end, but for what has
    its name in `AT_ONCE` and for one method, which ``odd`` is called for."""

    def __init__(self, failures, broken, odd, has=None):
        self.failures = self._failures = failures
        self.clock = self._clock = SystemClock()
        self._keep_going = failures.keep_going
        self.__dict__ |= has or {}
        self._of = failures, broken, odd

    def __getattr__(self, name):
        failures, broken, odd = self._of
        first, _, rest = broken.partition(".")
        if first == name and not rest:
            return odd
        if name in AT_ONCE:
            return lambda *_: Nothing()
        return StandIn(failures, rest if first == name else "", odd)

    def __call__(self, *_):
        return forever()

    def __iter__(self):
        return iter(())


def just(value):
    return lambda *_, **__: value


none = just({})


@asynccontextmanager
async def entered(value):
    yield value


def nothing(*_, **__):
    return entered(StandIn(ObjectFailures(), "", None))


NOT_SERVED = {"telemetry_app": just(None), "listening": nothing}


async def run_agent(part):
    await agent_run.Agent.run(part, asyncio.Event(), print)


async def run_monitor(part):
    await health.DeviceMonitor.run(part, asyncio.Event())


async def in_a_group(start, *arguments):
    async with asyncio.TaskGroup() as group:
        await start(*arguments, group.create_task)
        await forever()


async def start_parts(parts):
    await in_a_group(scheduler_run._start_parts, parts, parts)


async def start_keeper(client):
    await in_a_group(scheduler_run._start_keeper, None, client)


async def serve(client):
    """As far as to the certificate: all others have been started then."""
    settings = SimpleNamespace(host_name="h", server=client, memory_units={}, served_scheduler_names=())
    await scheduler_run._serve(settings, None, forever, print)


async def follow_if_served(observer):
    async with asyncio.TaskGroup() as group:
        Observer._follow_if_served(observer, group, SimpleNamespace(resource=SimpleNamespace(plural="things")))
        await forever()


async def observe(observer):
    await Observer.run(observer)


async def keep_a_daemon(daemons):
    MpsDaemons._keep(daemons, "GPU-1", wanted=True)
    try:
        await daemons._running["GPU-1"]
    finally:
        daemons._running["GPU-1"].cancel()


def is_set(*_):
    event = asyncio.Event()
    event.set()
    return event


def look_again(odd, *arguments):
    arguments[-1].set()
    return odd()


def set_once():
    left = [Nothing()]
    return SimpleNamespace(wait=lambda: left.pop() if left else forever(), clear=print)


def device_once():
    left = [(SimpleNamespace(resource="nvidia.com/gpu"),)]
    return SimpleNamespace(differs=lambda _: asyncio.sleep(0, left.pop()) if left else forever())


def to_serve(loop, odd, client):
    """Whatever the scheduler is made of beside the one loop."""
    others = ("DoubleGrants", "HamiAmounts", "HamiPods", "CapacityCounter", "InvariantWatch")
    made = {name: just(StandIn(ObjectFailures(), "", None)) for name in others}
    made |= {"Client": just(entered(client)), "EventRecorder": nothing, "warm_up": just(None), "_start_keeper": forever}
    made |= {
        "_make_parts": just(asyncio.sleep(0, StandIn(ObjectFailures(), "", None))),
        "_start_parts": just(Nothing()),
    }
    return NOT_SERVED | made | {loop: just(SimpleNamespace(run=odd))}


def run_of(name):
    """The run of what has this name in a module is odd."""
    return lambda odd, _: {name: just(SimpleNamespace(run=odd, served=just(Nothing())))}


class Row:
    """``run`` is given a stand-in whose method ``broken`` is odd; of ``module`` these names are replaced."""

    def __init__(self, loop, run, broken="", module=None, names=none, has=none):
        self.loop, self.run, self.broken, self.module, self.names, self.has = loop, run, broken, module, names, has


def rows(run, loops, *more):
    return [Row(loop, run, broken, *more) for loop, broken in loops.items()]


LOOPS = [
    *rows(
        run_agent,
        {
            "following the configuration": "_config.run",
            "GPU instances": "_keeper.run",
            "following GPU instances": "_follow_cuts",
            "CDI specifications": "_cdi.run",
            "kubelet's facts": "_facts.run",
            "disputes": "_dispute_events.run",
            "advertising": "_advertise_forever",
        },
        agent_run,
        just(NOT_SERVED),
    ),
    *rows(
        agent_run.Agent._serve_kubelet,
        {"sweeping": "_janitor.sweep", "registrations": "_registration.run", "invariants": "_invariants.run"},
    ),
    *rows(
        run_monitor,
        {
            "scanning": "scan",
            "judging Xids": "_judge_xids_forever",
            "probing": "_probe_forever",
            "looking for GPUs again": "_look_again_forever",
            "reloading": "_reload_forever",
            "following the configuration": "_follow_config_forever",
        },
        health,
        just({"XidListener": just(SimpleNamespace(stop=just(Nothing())))}),
    ),
    *rows(janitor.Janitor.run, {"learning": "_learn", "sweeping": "_sweep_forever", "letting go": "_let_go_forever"}),
    *rows(
        GpuMonitoring.run, {"measuring GPUs": "_measure_forever", "listing processes on GPUs": "_ask_kubelet_forever"}
    ),
    *rows(publisher.Publisher.run, {"publishing": "_publish_forever"}),
    *rows(NodeAmounts.run, {"counting amounts": "_count_forever"}),
    *rows(
        FeatureLabels.run,
        {"making labels": "_make_forever", "publishing labels": "_put_forever", "watching labels": "_outlet.watch"},
    ),
    *rows(SriovPlugins.run, {"SR-IOV pools": "_follow", "registrations of SR-IOV pools": "registration.run"}),
    *rows(remedies.RemedyWorker.run, {"following GPUs' health": "_follow", "remedies for GPUs": "_act_forever"}),
    *rows(Worker.run, {"answering": "_answer_forever"}),
    *rows(MpsDaemons.run, {"MPS daemons": "_follow"}),
    Row(
        "MPS daemon of GPU-1",
        keep_a_daemon,
        has=lambda odd: {
            "_daemons": {"GPU-1": SimpleNamespace(run=odd)},
            "_running": {"GPU-1": SimpleNamespace(done=just(True))},
        },
    ),
    Row(
        "GPU instances",
        InstanceKeeper.run,
        has=lambda odd: {
            "_changed": set_once(),
            "_gpus": {"GPU-1": SimpleNamespace(look=is_set())},
            "_tasks": {},
            "_users": SimpleNamespace(granted=dict, kept=just(None)),
            "_follow": odd,
        },
    ),
    Row(
        "registration",
        registration.PluginRegistrations.run,
        module=registration,
        names=run_of("PluginRegistration"),
        has=lambda _: {"_devices": device_once(), "_plugins": {}},
    ),
    *rows(
        start_parts,
        {"grant keys": "keys.run", "disruption budgets": "cache.budgets.follow"},
        scheduler_run,
        just({"Topologies": just(StandIn(ObjectFailures(), "", None))}),
    ),
    Row(
        "certificates",
        start_keeper,
        module=scheduler_run,
        names=lambda odd, _: {"_store": print, "_server_names": print} | run_of("CertificateKeeper")(odd, None),
    ),
    *(
        Row(loop, serve, module=scheduler_run, names=partial(to_serve, part))
        for loop, part in {"capacity": "CapacityCounter", "invariants": "InvariantWatch"}.items()
    ),
    *rows(KubeExtender.run, {"nominations": "_early_nominations.run"}),
    Row(
        "following things",
        follow_if_served,
        module=observer_module,
        names=lambda odd, _: {"follow_if_served": odd},
        has=lambda _: {"_served": set()},
    ),
    *(
        Row(
            loop,
            observe,
            broken,
            observer_module,
            lambda odd, _, is_looking=is_looking: {
                "Informer": just(StandIn(ObjectFailures(), "", None)),
                "budgets_resource": print,
                "_called": id,
                "look_again_and_again": partial(look_again, odd if is_looking else forever),
            },
            lambda _: {
                "_owned": dict.fromkeys(
                    (*observer_module.MONITORS, *observer_module.OWNED), StandIn(ObjectFailures(), "", None)
                ),
                "_follow": is_set,
                "_follow_if_served": is_set,
            },
        )
        for loop, broken, is_looking in (
            (observer_module.NODE_FEATURES, "", True),
            ("pods of nodes that are looked into", "_workloads.run", False),
        )
    ),
    *rows(kubelet_node.NodeReporter.run, {"node status": "_keep_reporting"}),
    Row("node lease", kubelet_node.NodeReporter.run, module=kubelet_node, names=lambda odd, _: {"keep_leases": odd}),
    *rows(PodWorkers.keep_freeing_cpus, {"CPU manager": "_free_cpus"}),
]


@pytest.mark.parametrize("row", LOOPS, ids=lambda row: row.loop)
async def test_a_loop_that_failed_goes_on_and_is_counted(monkeypatch, row):
    monkeypatch.setattr(failures_module, "RESTART_S", 0.001)
    failures, registry = failures_of()
    odd = Odd()
    part = StandIn(failures, row.broken, odd, row.has(odd))
    for name, value in row.names(odd, part).items():
        monkeypatch.setattr(row.module, name, value)
    async with running(row.run(part)) as (task,):
        await eventually(lambda: odd.went_well or task.done())
    assert failed(registry, row.loop) == 1


# --- no loop but these

STARTS = {"create_task", "spawn", "ensure_future"}
CALLED = re.compile("|".join((*STARTS, "keep_going")))


def scopes(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Calls, with the function that they are in, and its class."""
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from scopes(each, f"{scope}.{each.name}".strip("."))
        else:
            if isinstance(each, ast.Call):
                yield scope, each
            yield from scopes(each, scope)


def last_of(callee: ast.expr) -> str:
    if isinstance(callee, ast.Attribute):
        return callee.attr
    return callee.id if isinstance(callee, ast.Name) else ""


@cache
def calls_in(path: Path) -> list[tuple[str, str, ast.Call]]:
    """Those of `CALLED` in a file, which is parsed only if one of these words is in it."""
    text = path.read_text()
    if not CALLED.search(text):
        return []
    calls = ((scope, last_of(call.func), call) for scope, call in scopes(ast.parse(text)))
    return [each for each in calls if CALLED.search(each[1])]


def calls(*rooms: str) -> Iterator[tuple[str, str, ast.Call]]:
    for path in sorted(path for room in rooms for path in (SRC / room).rglob("*.py")):
        yield from calls_in(path)


def name_of(loop: ast.expr) -> str:
    """As an expression that names in the table match."""
    if isinstance(loop, ast.JoinedStr):
        return "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in loop.values)
    return re.escape(loop.value if isinstance(loop, ast.Constant) else getattr(observer_module, ast.unparse(loop)))


def test_every_loop_is_in_the_table() -> None:
    found = Counter(name_of(call.args[0]) for _, name, call in calls("") if name.endswith("keep_going"))
    assert len(found) > 35
    assert found.total() == len(LOOPS)
    rows_of = {name: sum(bool(re.fullmatch(name, row.loop)) for row in LOOPS) for name in found}
    assert {name: sites for name, sites in found.items() if rows_of[name] < sites} == {}


STARTED_OTHERWISE = {
    "informers, which list again after a failure": """
        Publisher.run: self.nodes.run
        Worker.run: self._nodes.run
        Agent.run: self._pods.pods.run
        Agent.run: self._pods.key_maps.run
        Topologies.run: self._definitions.run
        _start_parts: informer.run
        Observer._follow: informer.run
        LeaseFollower.run: self._informer.run
    """,
    "parts, which start their loops by keep_going": """
        Agent.run: self._monitor.run
        Agent.run: self._mps.run
        Agent.run: self._publisher.run
        Agent.run: self._amounts.run
        Agent.run: self._features.run
        Agent.run: self._monitoring.run
        Agent.run: self._remedies.run
        Agent.run: self._sriov.run
        Agent.run: self._serve_kubelet
        Agent._serve_kubelet: self._janitor.run
        _start_parts: parts.extender.run
        observing: observer.run
        _serve: observer.run
        _both: observer.run
    """,
    "inside a loop that keep_going runs": """
        InstanceKeeper.run: work
        KubeletFacts.run: self._watch
        KubeletFacts.run: self._follow_own
        KubeletFacts.run: self._read_forever
        PluginRegistration._once: self._sockets_change
        PluginRegistration._once: self._stream_lost
        MpsDaemon._watch: ended
        MpsServers.watch: ended
        EarlyNominations.run: self._write
        follow_if_served: informer.run
        Workloads._follow: informer.run
    """,
    "loops that catch what each object or turn fails on": """
        Agent.run: self._disputes.run
        Janitor.run: self._release_forever
        Topologies.run: self._follow
        _register: registration.run
        _start_parts: parts.follower.run
        _lead: elector.run
        _both: elector.run
        EventRecorder.__aenter__: self.run
    """,
    "workers of a queue, which try again": """
        _serve: DoubleGrants.run
        _serve: HamiAmounts.run
        _serve: HamiPods.run
        _serve: ServedPods.run
        _start_missed_pods: missed.run
        run_workers: _work
    """,
    "loops over parts of their own": """
        _start_parts: Topologies.run
    """,
    "loops that set an event, no more": """
        NodeAmounts.run: self._follow
        Publisher.run: self._follow
    """,
    "what ends": """
        Agent.run: self._wake_keeper
        Binder.bind: self._bind
        LeadershipGate.wait_open: self._reopen
        AccessControl.verdict: self._review
        StatePage.current: self._make
        _serve: asyncio.to_thread
        _side_by_side: one
        Observer._follow: note
        until: work
        until: end
        WorkQueue.add_after: self._add_later
    """,
}


def started(work: ast.expr) -> str:
    """What runs, without the arguments of what makes it."""
    callee = work.func if isinstance(work, ast.Call) else work
    if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Call):
        return f"{ast.unparse(callee.value.func)}.{callee.attr}"
    return ast.unparse(callee)


def test_no_background_loop_is_started_without_going_on() -> None:
    starts = {
        f"{scope}: {started(call.args[0])}"
        for scope, name, call in calls("agent", "scheduler", "operator", "kube")
        if name in STARTS
    }
    others = {each for each in starts if not each.endswith("keep_going")}
    assert len(starts) > len(others)
    assert others == {line.strip() for lines in STARTED_OTHERWISE.values() for line in lines.strip().splitlines()}


# --- loops that catch what they fail on themselves


async def test_what_the_extender_fails_on_takes_no_turn_of_the_rest(monkeypatch):
    monkeypatch.setattr(extender_module, "RESOLVE_PERIOD_S", 0.01)
    done = []

    async def fails():
        raise ZeroDivisionError

    async def works():
        done.append("looked")

    async with server() as api, replica(api) as world:
        extender = world.extender
        monkeypatch.setattr(extender._binder, "resolve", fails)
        monkeypatch.setattr(extender, "_follow_leadership", fails)
        monkeypatch.setattr(extender._cache.disputes, "tick", lambda: 1 // 0)
        monkeypatch.setattr(extender, "retry_refused", works)
        monkeypatch.setattr(extender._cache, "grants_by_state", lambda: done.append("counted") or {})
        async with running(extender.run()):
            await eventually(lambda: done.count("looked") > 2 and done.count("counted") > 2)


async def test_an_informer_relists_after_what_it_cannot_handle(monkeypatch):
    script = Script(listing([pod("a")], 5), listing([pod("b", 8)], 9))
    async with client_of(script.handle) as client:
        registry = CollectorRegistry()
        client.failures.report_to(registry, SimpleNamespace(event=None))
        informer = informer_of(client)
        take, taken = informer._take, []

        def fails_once(items, unreadable):
            taken.append([each.metadata.name for each in items])
            if len(taken) == 1:
                raise ZeroDivisionError
            take(items, unreadable)

        monkeypatch.setattr(informer, "_take", fails_once)
        async with running(informer.run()):
            await informer.synced()
    assert (taken, list(informer.store)) == ([["a"], ["b"]], ["ns/b"])
    assert failed(registry, "informer of pods") == 1


async def test_what_the_comparison_of_ledgers_fails_on_is_counted(monkeypatch):
    failures, registry = failures_of()
    informer = SimpleNamespace(add_handler=lambda **_: None, synced=lambda: asyncio.sleep(0), failures=failures)
    pods = SimpleNamespace(pods=informer, key_maps=informer)
    watch = DisputeWatch("n", pods, None, None, dict, Clock())
    turns = []

    async def look():
        turns.append(1)
        return 1 // 0

    monkeypatch.setattr(watch, "look", look)
    async with running(watch.run()):
        await eventually(lambda: len(turns) > 1)
    assert failed(registry, "comparing records") >= 1
