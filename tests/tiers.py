"""How much of each rule is tried: `PURSER_TIER` names the tier. Every rule is tried in every tier that can show it.

fast: `make test`, while one works: few examples of each property, some cases of a table, the oldest and the newest of
what comes in many versions. gate: `.ci/run`: what has to hold before a change is taken. soak: by hand, for hours.
"""

import os
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")


class Tier(IntEnum):
    """From the shortest to the longest."""

    FAST = 0
    GATE = 1
    SOAK = 2


def _chosen(name: str) -> Tier:
    if name.upper() not in Tier.__members__:
        raise SystemExit(f"PURSER_TIER is {name!r}: say fast, gate or soak")
    return Tier[name.upper()]


TIER = _chosen(os.environ.get("PURSER_TIER") or "fast")
IS_LONG = TIER >= Tier.GATE
"""Whether more time may be taken than the fast tier has: more nodes, more kills, more seeds."""

_EXAMPLES = {Tier.FAST: 0.1, Tier.GATE: 1.0, Tier.SOAK: 50.0}
_FEWEST = 3


def examples(count: int, most: int = 1_000_000, **more: Any) -> settings:
    """Hypothesis' settings for a property that has ``count`` examples in the gate, and ``most`` in the soak tier: as
    many as take a minute or two, where an example is a history and not one call.

    No test asserts a time, for machines are busy.
    """
    return settings(max_examples=min(max(_FEWEST, round(count * _EXAMPLES[TIER])), most), deadline=None, **more)


def some(cases: Sequence[T], every: int) -> Sequence[T]:
    """All cases; in the fast tier one of so many, and the last one."""
    return cases if IS_LONG else [*cases[:-1:every], *cases[-1:]]


def set_up() -> None:
    """What holds for properties that ask for nothing: half of Hypothesis' default, for each run draws others."""
    settings.register_profile("purser", examples(50, suppress_health_check=[HealthCheck.too_slow]))
    settings.load_profile("purser")
