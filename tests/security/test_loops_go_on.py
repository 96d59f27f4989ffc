"""A failure in one turn of a background loop ends no process: it is logged and counted, and the loop restarts after a
pause. Every loop of Purser is started by `ObjectFailures.keep_going`, or is in a table here that says why not."""

import ast
import asyncio
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

import purser
from purser.agent.reporting.disputes import DisputeWatch
from purser.kube.failures import ObjectFailures
from purser.scheduler.extender import extender as extender_module
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
        _serve: parts.extender.run
        observing: observer.run
        _serve: observer.run
        _run_observer_and_elector: observer.run
    """,
    "inside a loop that keep_going runs": """
        InstanceManager.run: work
        KubeletFacts.run: self._watch
        KubeletFacts.run: self._follow_own_devices
        KubeletFacts.run: self._read_forever
        PluginRegistration._serve_until_lost: self._wait_for_socket_change
        PluginRegistration._serve_until_lost: self._stream_lost
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
        _run_observer_and_elector: elector.run
        EventRecorder.__aenter__: self.run
    """,
    "workers of a queue, which try again": """
        _serve: DoubleGrants.run
        _serve: HamiAmounts.run
        _serve: HamiPods.run
        _serve: HeldGpus.run
        _serve: QuotaUsage.run
        _serve: served_pods.run
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
        Agent.run: self._wake_instance_manager
        Binder.bind: self._bind
        LeadershipGate.wait_until_open: self._reopen
        AccessControl.verdict: self._review
        SharedValue.current: self._remake
        StatePage._groups: in_order
        SharedAnswer.__init__: asking
        _serve: asyncio.to_thread
        _run_concurrently: one
        Observer._follow: note
        _start_parts: parts.extender.read_ahead
        until: work
        while_there: work
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
