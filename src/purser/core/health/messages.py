"""Messages about GPU health: one event for each change, and one node condition for all of a node's GPUs. Pure."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from purser.core.health.machine import GpuHealth
from purser.core.health.state import PREDICATES


class News(StrEnum):
    """What kind of change it is."""

    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"
    RECOVERED = "recovered"


class HealthNews(msgspec.Struct, frozen=True):
    """A change to be reported."""

    news: News
    words: str
    """What follows the GPU's name in a sentence."""


class HealthCondition(msgspec.Struct, frozen=True):
    """How a node's GPUs are, as its condition says it."""

    unhealthy: bool
    """Whether any GPU takes no pods; else some are degraded."""
    message: str


def news_of(before: GpuHealth, after: GpuHealth) -> HealthNews | None:
    """What has changed; None where the GPU is as last reported."""
    if (before.takes_pods, before.reason) == (after.takes_pods, after.reason):
        return None
    if not after.takes_pods:
        return HealthNews(News.UNHEALTHY, f"is unhealthy: {_explain_health(after)}")
    if not before.takes_pods:
        degraded = f"is open to new pods again, but is degraded: {_explain_health(after)}"
        return HealthNews(News.RECOVERED, degraded if after.reason else "is healthy again")
    if after.reason:
        return HealthNews(News.DEGRADED, f"is open to new pods, but is degraded: {_explain_health(after)}")
    return HealthNews(News.RECOVERED, "is no longer degraded")


def condition_of(gpus: Iterable[tuple[str, GpuHealth]]) -> HealthCondition | None:
    """The condition for a node's GPUs, by how people know them; None where all are healthy."""
    unhealthy = [(name, health) for name, health in gpus if health.reason]
    if not unhealthy:
        return None
    unhealthy.sort(key=lambda entry: entry[1].takes_pods)
    message = "; ".join(f"{name} {PREDICATES[health.state]}: {health.reason}" for name, health in unhealthy)
    return HealthCondition(not all(health.takes_pods for _, health in unhealthy), message)


def _explain_health(health: GpuHealth) -> str:
    cause = health.cause
    return "" if cause is None else f"{cause.words}. {cause.advice}".removesuffix(". ")
