"""GPU-hours by namespace, which add up to the GPUs' hours in the cluster.

A GPU that exists for an hour is one GPU-hour. A share counts by the part of the GPU's memory that it holds, used or
not. Everything is sampled at the same times, so that granted and ungranted hours add up to the total.
"""

import math
from collections.abc import Mapping

import msgspec

from purser.usage.prometheus import Prometheus

MAX_STEPS = 2000
"""Number of samples: more cost Prometheus more than they improve the result."""

MIN_STEP_S = 60
_MIN_FULL_COVERAGE = 0.99
"""Part of the time from which on nothing is said of gaps: a scrape may be late, and the last step is not over."""

MAX_AMOUNT = 1e12
"""GPUs, times samples: anybody whose metrics are scraped can claim more, and sums of those have no result."""

_HOUR_S = 3600

GPUS = "max by (model, state) (purser_cluster_gpus{selector})"
_GPUS_OF_MODEL = f"sum by (model) ({GPUS})"
GRANTED = (
    "sum by (namespace) (max by (namespace, model, policy) (purser_cluster_granted_memory_bytes{selector})"
    f" * on (model) group_left () {_GPUS_OF_MODEL}"
    " / on (model) group_left () (max by (model) (purser_cluster_memory_bytes{selector}) > 0))"
)
MEMORY_EACH = "(max by (node, uuid) (purser_device_memory_bytes{selector}) > 0)"
"""Some GPUs report no memory. A division by zero would make a namespace's whole sum useless."""
_BY_CONTAINER = "max by (node, uuid, namespace, pod, container)"
_USED_QUERY = (
    f"sum by (namespace) ({_BY_CONTAINER} (purser_container_memory_used_bytes{{selector}})"
    f" / on (node, uuid) group_left () {MEMORY_EACH})"
)
BUSY_EACH = f"{_BY_CONTAINER} (purser_container_utilization_ratio{{selector}})"
BUSY = f"sum by (namespace) ({BUSY_EACH})"
_FOREIGN = (
    'sum(max by (node, uuid) (purser_device_memory_owner_bytes{{owner="foreign"{more}}})'
    f" / on (node, uuid) {MEMORY_EACH})"
)


class NamespaceUsage(msgspec.Struct, frozen=True):
    """One namespace's GPU-hours."""

    namespace: str
    granted: float
    """By part of the GPU's memory."""
    used: float
    """The part of the GPU's memory that its processes had."""
    busy: float
    """Of compute that its processes used."""


class UsageReport(msgspec.Struct, frozen=True):
    """GPU-hours of a window of time."""

    window_s: float
    """How long that time is, in seconds."""
    covered_s: float
    """For how much of it there are metrics."""
    total: float
    """All GPUs while they were there, healthy or not."""
    foreign: float
    """The part of GPUs' memory that processes of no pod had."""
    namespaces: tuple[NamespaceUsage, ...]
    """Those that were granted or used anything, most first."""

    @property
    def granted(self) -> float:
        """By all namespaces."""
        return math.fsum(each.granted for each in self.namespaces)

    @property
    def gap(self) -> str:
        """That hours are missing because metrics are, in a clause; empty: there are metrics of the whole time."""
        if self.covered_s >= _MIN_FULL_COVERAGE * self.window_s:
            return ""
        covered = f"{100 * self.covered_s / self.window_s:.0f}%"
        return f"metrics cover only {covered} of that time, so the hours cover only that part"

    @property
    def not_granted(self) -> float:
        """Ungranted hours: with the granted ones they are the total."""
        return self.total - self.granted


async def read_usage(prometheus: Prometheus, window_s: float, end_s: float, selector: str = "") -> UsageReport:
    """The usage of the ``window_s`` seconds up to ``end_s``, a unix time.

    ``selector``: label matchers of this cluster's series where the Prometheus has several clusters', as
    ``cluster="a"``. Raises `PrometheusError`.
    """
    step_s = max(MIN_STEP_S, math.ceil(window_s / MAX_STEPS / MIN_STEP_S) * MIN_STEP_S)
    hours = step_s / _HOUR_S

    async def over_time(function: str, expression: str) -> dict[str, float]:
        query = f"{function}(({selected(expression, selector)})[{round(window_s)}s:{step_s}s])"
        return _by_namespace(await prometheus.ask(query, end_s))

    total = await over_time("sum_over_time", f"sum({GPUS})")
    steps = await over_time("count_over_time", f"sum({GPUS})")
    granted = await over_time("sum_over_time", GRANTED)
    used = await over_time("sum_over_time", _USED_QUERY)
    busy = await over_time("sum_over_time", BUSY)
    foreign = await over_time("sum_over_time", _FOREIGN)
    namespaces = (
        NamespaceUsage(name, *(hours * amounts.get(name, 0.0) for amounts in (granted, used, busy)))
        for name in sorted(granted.keys() | used.keys() | busy.keys())
    )
    return UsageReport(
        window_s=window_s,
        covered_s=min(window_s, step_s * sum(steps.values())),
        total=hours * sum(total.values()),
        foreign=hours * sum(foreign.values()),
        namespaces=tuple(sorted(namespaces, key=lambda each: -each.granted)),
    )


def selected(expression: str, selector: str) -> str:
    """One of the expressions above, of one cluster's series."""
    only, more = (f"{{{selector}}}", f", {selector}") if selector else ("", "")
    return expression.format(selector=only, more=more)


def _by_namespace(answer: list[tuple[Mapping[str, str], float]]) -> dict[str, float]:
    return {labels.get("namespace", ""): value for labels, value in answer if is_amount(value)}


def is_amount(value: float, most: float = MAX_AMOUNT) -> bool:
    """Whether a value of Prometheus can be a number of GPUs, or a sum of some: NaN, for example, is none."""
    return 0 <= value <= most
