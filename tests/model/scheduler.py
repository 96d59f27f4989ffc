"""A scheduler's steps by its own code: `ClusterCache` hears of pods, `Binder` and `UnsettledBindings` settle Bindings.

What it knows is a function of what happened to it. States name a history by a number: histories that lead to the same
knowledge have one number, that of the first.
"""

import asyncio
from itertools import permutations
from typing import Any, NamedTuple

from purser.core.ledger import LedgerError
from purser.core.model import Grant, GrantState
from purser.kube.errors import ConflictError, NotFoundError, ServerError
from purser.kube.failures import ObjectFailures
from purser.kube.resources import PODS
from purser.kube.store import StaticStore
from purser.scheduler.binding.binder import Binder, BindError
from purser.scheduler.cache.cache import ClusterCache
from purser.scheduler.extender_api import ExtenderBindingArgs
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.placement import Reservations
from tests.model.parts import KEY, PodVersion, inventory, pod

LOOP = asyncio.new_event_loop()
METRICS, FAILURES = SchedulerMetrics(), ObjectFailures()
LATE_S = 1000.0


class Keys:
    """The scheduler's own."""

    public = (KEY.public_key(),)


class Held(NamedTuple):
    """What a scheduler counts."""

    grant: Grant
    state: GrantState


class Knowledge(NamedTuple):
    """What decides over a scheduler's next steps, and what must hold."""

    heard: tuple[PodVersion, ...]
    grants: tuple[Held, ...]
    verified: tuple[str, ...]
    untrusted: tuple[str, ...]
    ungranted: tuple[str, ...]
    unsettled: tuple[Grant, ...]
    closed: tuple[str, ...]
    """GPUs that take no new grants."""

    def granted(self, uid: str) -> Held | None:
        return next((each for each in self.grants if each.grant.pod_uid == uid), None)

    def of(self, name: str) -> PodVersion | None:
        return next((each for each in self.heard if each.name == name), None)


class ApiStub:
    """Answers as the step says."""

    failures = FAILURES

    def __init__(self) -> None:
        self.now: PodVersion | None = None
        self.answer: Exception | None = None

    async def get(self, *_: object) -> Any:
        if self.now is None:
            raise NotFoundError(404, "NotFound", "gone")
        return pod(self.now)

    async def bind(self, *_: object) -> None:
        if self.answer is not None:
            raise self.answer


class StubClock:
    late = 0.0

    def monotonic(self) -> float:
        return self.late


class Machine:
    """One process."""

    def __init__(self, nodes: tuple[tuple[str, int], ...]) -> None:
        self.clock, self.api = StubClock(), ApiStub()
        self.heard: dict[str, PodVersion] = {}
        self.cache = ClusterCache(Keys(), METRICS, self.clock)
        self.store = StaticStore(PODS, (), FAILURES)
        self.cache._pods = self.store
        for name, gpus in nodes:
            self.cache.fleet.set_inventory(inventory(name, gpus))
        reservations = Reservations(self.cache, None)
        self.binder = Binder(self.api, self.cache, Keys(), reservations, None, None)

    def hear(self, name: str, version: PodVersion | None) -> None:
        before = self.store.store.get(f"ns/{name}")
        if before is not None and (version is None or version.uid != before.metadata.uid):
            self.store.store.remove(f"ns/{name}")
            self.cache.remove_pod(before)
        self.heard.pop(name, None)
        if version is not None:
            self.heard[name] = version
            self.store.store.put(pod(version))
            self.cache.put_pod(pod(version))

    def reserve(self, grant: Grant) -> None:
        self.cache.ledger.reserve(grant)

    def answered(self, grant: Grant, outcome: str, now: PodVersion | None) -> None:
        """The end of `Binder._post_grant`: the Binding was carried out (ok), refused, or nobody knows (lost)."""
        errors = {"ok": None, "refused": ConflictError(409, "Conflict", ""), "lost": ServerError(500, "", "")}
        self.api.now, self.api.answer = now, errors[outcome]
        args = ExtenderBindingArgs(grant.pod, "ns", grant.pod_uid, grant.node)
        try:
            LOOP.run_until_complete(self.binder._post(args, {}, grant))
        except BindError:
            return
        self.binder._unsettled.confirm(grant)

    def resolve(self, uid: str, now: PodVersion | None, late: bool) -> None:
        self.api.now, self.clock.late = now, LATE_S if late else 0.0
        LOOP.run_until_complete(self.binder._unsettled.resolve(uid))
        self.clock.late = 0.0

    def knowledge(self) -> Knowledge:
        cache, ledger = self.cache, self.cache.ledger
        closed = (each.device.uuid for node in cache.fleet for each in node.devices if each.disputed)
        return Knowledge(
            tuple(sorted(self.heard.values(), key=lambda each: each.name)),
            tuple(
                sorted((Held(g, ledger.state(g.pod_uid)) for g in ledger.grants()), key=lambda each: each.grant.pod_uid)
            ),
            tuple(sorted(cache.bound_grants._verified)),
            tuple(sorted(cache.bound_grants._untrusted)),
            tuple(sorted(cache.bound_grants._ungranted)),
            tuple(sorted(self.binder._unsettled.grants(), key=lambda each: each.pod_uid)),
            tuple(sorted(closed)),
        )


class Schedulers:
    """All that schedulers may know, by number; a new process knows nothing: 0."""

    def __init__(self, nodes: tuple[tuple[str, int], ...], machine: type[Machine] = Machine) -> None:
        self._nodes, self._machine = nodes, machine
        self._histories: list[tuple[tuple[object, ...], ...]] = [()]
        self.known: list[Knowledge] = [machine(nodes).knowledge()]
        self._numbers = {self.known[0]: 0}
        self._steps: dict[tuple[int, tuple[object, ...]], int | None] = {}
        self._relisted: dict[tuple[int, tuple[PodVersion, ...]], frozenset[int]] = {}

    def step(self, number: int, *event: object) -> int | None:
        """The number after an event; None where the scheduler refuses it."""
        found = self._steps.get((number, event), -1)
        if found == -1:
            found = self._steps[number, event] = self._make(number, event)
        return found

    def heard(self, number: int, name: str, version: PodVersion | None) -> int:
        if self.known[number].of(name) == version:
            return number
        found = self.step(number, "hear", name, version)
        assert found is not None
        return found

    def relisted(self, number: int, pods: tuple[PodVersion, ...]) -> frozenset[int]:
        """After it has heard of all pods: a list has them in any order, and which comes first may decide."""
        key = (number, pods)
        if key not in self._relisted:
            by_name = {each.name: each for each in pods}
            known = self.known[number]
            names = {*by_name, *(each.name for each in known.heard)}
            news = sorted(each for each in names if known.of(each) != by_name.get(each))
            self._relisted[key] = frozenset(self._in_turn(number, order, by_name) for order in permutations(news))
        return self._relisted[key]

    def _in_turn(self, number: int, names: tuple[str, ...], pods: dict[str, PodVersion]) -> int:
        for name in names:
            number = self.heard(number, name, pods.get(name))
        return number

    def _make(self, number: int, event: tuple[object, ...]) -> int | None:
        machine = self._machine(self._nodes)
        history = (*self._histories[number], event)
        for what, *facts in history:
            try:
                getattr(machine, what)(*facts)
            except LedgerError:
                return None
        known = machine.knowledge()
        if known not in self._numbers:
            self._numbers[known] = len(self.known)
            self.known.append(known)
            self._histories.append(history)
        return self._numbers[known]
