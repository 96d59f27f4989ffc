"""What must never be, not for a moment: looked for in the watch stream, where polling would miss it."""

import asyncio
from types import TracebackType
from typing import Self

from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.informer import Informer
from purser.kube.resources import Raw, key_of
from purser.lab.scenario.describe import with_fields
from purser.lab.scenario.matching import MAX_NAMED_OBJECTS, difference
from purser.lab.scenario.objects import find_kind, has_name
from purser.lab.scenario.spec import NeverRule


class NeverRules:
    """The rules `never` of a scenario. An async context manager: the watches end with it."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._rules: list[_WatchedRule] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def begin(self, never: NeverRule) -> None:
        """Watch from now on; returns once what is there is known. Raises `ScenarioError`."""
        resource = find_kind(never.kind, "never.kind")
        informer = Informer(self._client, resource, (never.namespace or None) if resource.namespaced else None)
        rule = _WatchedRule(never, self._clock)
        informer.add_handler(rule.see, lambda _, new: rule.see(new), rule.miss)
        self._rules.append(rule)
        self._tasks.append(asyncio.create_task(informer.run()))
        await informer.synced()

    def broken(self) -> str:
        """What was, and must never have been; empty: nothing."""
        for rule in self._rules:
            rule.look()
        return next((rule.problem for rule in self._rules if rule.problem), "")


class _WatchedRule:
    def __init__(self, never: NeverRule, clock: Clock) -> None:
        self.problem = ""
        self._never = never
        self._clock = clock
        self._now: dict[str, float] = {}
        """Keys of what is so now, and since when; of what went or was asked to, where that is what may not be."""

    def see(self, obj: Raw) -> None:
        """An object is there, or changed."""
        is_so = has_name(obj, self._never.names) and not difference(self._never.match, obj)
        if self._never.deleted:
            is_so = is_so and bool(obj["metadata"].get("deletionTimestamp"))
        if is_so:
            self._note(obj)
        elif not self._never.deleted:
            self._is_over(obj)

    def miss(self, obj: Raw) -> None:
        """An object is gone."""
        if not self._never.deleted:
            self._is_over(obj)
        elif has_name(obj, self._never.names) and not difference(self._never.match, obj):
            self._note(obj)

    def look(self) -> None:
        """Whether too many are so, by now for too long."""
        long = sorted(key for key, since in self._now.items() if self._time_left_s(since) <= 0)
        if len(long) > self._never.more_than and not self.problem:
            names, kind = ", ".join(long[:MAX_NAMED_OBJECTS]), self._never.kind
            what = " removed" if self._never.deleted else with_fields(self._never.match)
            after = f" for {self._never.longer_than_s:g} s" if self._never.longer_than_s else ""
            self.problem = f"{len(long)} {kind}{what}{after}, but the limit is {self._never.more_than}: {names}"

    def _note(self, obj: Raw) -> None:
        self._now.setdefault(key_of(obj), self._clock.monotonic())
        self.look()

    def _is_over(self, obj: Raw) -> None:
        self.look()
        self._now.pop(key_of(obj), None)

    def _time_left_s(self, since: float) -> float:
        return since + self._never.longer_than_s - self._clock.monotonic()
