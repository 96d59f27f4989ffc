"""What the informers have yet to see of the operator's own writes.

A round that began before would find the world as it was, and write once more what is written already.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from purser.kube import meta_of
from purser.kube.racing import until

log = structlog.get_logger("purser.operator")

Key = tuple[str, str]
"""A resource's plural with its group, for another group may use the same plural; and an object's key."""
Check = Callable[[Any], bool]
"""Whether the object as it is known now, None where there is none, shows the effect."""


def at_least(version: str) -> Check:
    """The object is there in this version, or in a later one."""

    def shows(obj: Any) -> bool:
        known = meta_of(obj).resource_version if obj is not None else ""
        if known.isdigit() and version.isdigit():
            return int(known) >= int(version)
        return known == version

    return shows


def terminating(uid: str) -> Check:
    """The object of this uid was asked to go, or is gone."""

    def shows(obj: Any) -> bool:
        return obj is None or meta_of(obj).uid != uid or bool(meta_of(obj).deletion_timestamp)

    return shows


class Expectations:
    """Effects that are still to be seen; informers report objects here."""

    def __init__(self) -> None:
        self._open: dict[Key, Check] = {}
        self._met = asyncio.Event()
        self._met.set()

    def expect(self, key: Key, check: Check, known: object) -> None:
        """Wait for an effect; ``known`` is the object as the informer has it now."""
        if check(known):
            self._open.pop(key, None)
        else:
            self._open[key] = check
        self._update()

    def see(self, key: Key, known: object) -> None:
        """An informer has a new state of an object, None: it is gone."""
        check = self._open.get(key)
        if check is not None and check(known):
            del self._open[key]
            self._update()

    async def take_overdue(self, seconds: float) -> set[str]:
        """Wait until all were seen, or the time is up; returns the resources of those that were not. They are
        forgotten: the caller has to list these resources again.
        """
        if await until(self._met.wait(), asyncio.sleep(seconds)):
            return set()
        first = sorted(self._open)[:3]
        log.warning(
            "The operator's own writes were not observed in time; listing again", count=len(self._open), some=first
        )
        resources = {resource for resource, _ in self._open}
        self._open.clear()
        self._update()
        return resources

    def _update(self) -> None:
        if self._open:
            self._met.clear()
        else:
            self._met.set()
