"""A history out of a Prometheus that scrapes kube-state-metrics.

Pods are known by amounts alone: what annotations say (models, UUIDs, policies) is in no metric. A pod that was deleted
has ended when it was last seen, on the mean half a scrape later. GPUs of a node are Purser's metrics of devices where
there are any, else what kubelet lists and what feature discovery's labels say, where kube-state-metrics exports them.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from purser.backtest.history import History, HistoryNode, HistoryPod, Omissions, history_of
from purser.backtest.nodes import counted_node
from purser.core.device.ids import MAX_SLOTS
from purser.core.dialects import RESOURCES, DialectError, parse
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.fleet.free_resources import MANY, FreeResources
from purser.core.kubernetes.quantities import QuantityError
from purser.core.model import ContainerKind
from purser.core.names import GPU_RESOURCE
from purser.core.placement.shape import PodShape, shape_of
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.vendors.catalogue import BY_RESOURCE, FAMILY_NAMES
from purser.usage import Prometheus

CHUNK_S = 6 * 3600
"""Of one query: Prometheus looks at 50 million samples at most, which are those of some ten thousand pods."""

MAX_SERIES = 2_000_000
"""Of all answers together."""

_SEEN_STEP_S = 60
_RESOURCES = {re.sub(r"[^a-zA-Z0-9_]", "_", name): name for name in sorted({*RESOURCES, *BY_RESOURCE})}
"""By kube-state-metrics' spelling of them."""

_GPU = "|".join(_RESOURCES)
_BY_POD = "namespace, pod, uid"
_MIB = 1 << 20

Labels = Mapping[str, str]
Tick = Callable[[str], None]


@dataclass
class _SeenPod:
    """One pod, as metrics tell of it."""

    name: str
    node: str = ""
    created_s: float = math.inf
    bound_s: float = math.inf
    started_s: float = math.inf
    completed_s: float = math.inf
    seen_s: float = -math.inf
    amounts: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """By container and resource."""


@dataclass
class _SeenNode:
    """One node, the same way."""

    created_s: float = -math.inf
    seen_s: float = -math.inf
    allocatable: dict[str, float] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)
    model: str = ""
    memory_mib: int = 0
    devices: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Model and MiB by uuid."""


async def history_of_metrics(
    prometheus: Prometheus,
    window_s: float,
    end_s: float,
    selector: str,
    omissions: Omissions,
    tick: Tick = lambda _: None,
) -> History:
    """The history of the ``window_s`` seconds up to ``end_s``, a unix time. ``selector``: label matchers of this
    cluster's series. Raises `PrometheusError`, `NothingToReplay`."""
    asked = _MetricsReader(prometheus, selector)
    begin_s = end_s - window_s
    for until_s, span_s in _split_window(begin_s, end_s):
        tick(f"reading metrics: {(until_s - span_s - begin_s) / window_s:.0%}")
        await asked.chunk(until_s, span_s)
    await asked.finish(end_s)
    # Subqueries look once a minute, and not at the very end.
    begin_s = max(begin_s, asked.first_s - _SEEN_STEP_S)
    end_s = min(end_s, asked.last_s + asked.scrape_s + _SEEN_STEP_S)
    pods = [pod for each in asked.pods.values() if (pod := _pod(each, end_s, asked.scrape_s, omissions)) is not None]
    nodes = [_history_node(name, node, end_s) for name, node in asked.nodes.items()]
    notes = [
        f"metrics cover only {(end_s - begin_s) / 3600:.1f} of the {window_s / 3600:.1f} hours requested; only that "
        "period is replayed"
    ] * (end_s - begin_s < 0.99 * window_s)
    notes += [
        "metrics record only the amounts that pods requested, not other requirements such as GPU models, so "
        "pods are placed wherever there is room"
    ]
    return history_of("kube-state-metrics", begin_s, end_s, nodes, pods, omissions, notes)


def _split_window(begin_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    """The end and the length of each."""
    at_s = begin_s
    while at_s < end_s:
        span_s = min(CHUNK_S, end_s - at_s)
        at_s += span_s
        yield at_s, span_s


class _MetricsReader:
    """What all answers together say."""

    def __init__(self, prometheus: Prometheus, selector: str) -> None:
        self._prometheus = prometheus
        self._only = f"{{{selector}}}" if selector else ""
        self._more = f", {selector}" if selector else ""
        self.pods: dict[str, _SeenPod] = {}
        self.nodes: dict[str, _SeenNode] = defaultdict(_SeenNode)
        self.scrape_s = 0.0
        """Between two scrapes."""
        self.first_s = math.inf
        """When there were metrics first."""
        self._series = 0

    async def chunk(self, until_s: float, span_s: float) -> None:
        """A part of the time."""
        over = f"[{math.ceil(span_s)}s]"
        requests = "kube_pod_container_resource_requests"
        has_gpus = f'max by ({_BY_POD}) (max_over_time({requests}{{resource=~"{_GPU}"{self._more}}}{over}))'

        async def of_pods(expression: str) -> list[tuple[Labels, float]]:
            return await self._ask(f"{expression} and on ({_BY_POD}) {has_gpus}", until_s)

        for resources in (_GPU, "cpu|memory"):
            found = f'max_over_time({requests}{{resource=~"{resources}"{self._more}}}{over})'
            for labels, value in await of_pods(f"max by ({_BY_POD}, container, resource, node) ({found})"):
                pod = self._pod(labels)
                pod.node = labels.get("node") or pod.node
                pod.amounts[labels.get("container", "")][labels.get("resource", "")] = value
        for labels, value in await of_pods(f"max by ({_BY_POD}) (max_over_time(kube_pod_created{self._only}{over}))"):
            self._pod(labels).created_s = value
        for metric, name in (
            ("kube_pod_status_scheduled_time", "bound_s"),
            ("kube_pod_start_time", "started_s"),
            ("kube_pod_completion_time", "completed_s"),
        ):
            for labels, value in await of_pods(f"max by ({_BY_POD}) (max_over_time({metric}{self._only}{over}))"):
                setattr(self._pod(labels), name, value)
        seen = f"max_over_time(timestamp(kube_pod_info{self._only})[{math.ceil(span_s)}s:{_SEEN_STEP_S}s])"
        for labels, value in await of_pods(f"max by ({_BY_POD}) ({seen})"):
            pod = self._pod(labels)
            pod.seen_s = max(pod.seen_s, value)
        await self._nodes(until_s, over, math.ceil(span_s))

    async def _nodes(self, until_s: float, over: str, span_s: int) -> None:
        allocatable = f'kube_node_status_allocatable{{resource=~"cpu|memory|pods|{_GPU}"{self._more}}}'
        for labels, value in await self._ask(f"max by (node, resource) (max_over_time({allocatable}{over}))", until_s):
            self._node(labels).allocatable[labels.get("resource", "")] = value
        words = "label_nvidia_com_gpu_product, label_nvidia_com_gpu_memory"
        query = f"max by (node, {words}) (max_over_time(kube_node_labels{self._only}{over}))"
        for labels, _ in await self._ask(query, until_s):
            node = self._node(labels)
            node.model = labels.get("label_nvidia_com_gpu_product") or node.model
            node.memory_mib = _parse_number(labels.get("label_nvidia_com_gpu_memory", "")) or node.memory_mib
        created = f"max by (node) (max_over_time(kube_node_created{self._only}{over}))"
        for labels, value in await self._ask(created, until_s):
            self._node(labels).created_s = value
        seen = f"max_over_time(timestamp(kube_node_info{self._only})[{span_s}s:{_SEEN_STEP_S}s])"
        for labels, value in await self._ask(f"max by (node) ({seen})", until_s):
            node = self._node(labels)
            node.seen_s = max(node.seen_s, value)
        devices = (
            f"max by (node, uuid, model) (max_over_time(purser_device_info{self._only}{over})) * on (node, uuid) "
            f"group_left () max by (node, uuid) (max_over_time(purser_device_memory_bytes{self._only}{over}))"
        )
        for labels, value in await self._ask(devices, until_s):
            mib = int(value) // _MIB if value < MANY * _MIB else 0
            self._node(labels).devices[labels.get("uuid", "")] = labels.get("model", ""), mib
        await self._scrapes(until_s, over, span_s)

    async def _scrapes(self, until_s: float, over: str, span_s: int) -> None:
        """When there were metrics first, and how long it is between two scrapes."""
        times = f"timestamp(kube_node_info{self._only})[{span_s}s:{_SEEN_STEP_S}s]"
        first = [value for _, value in await self._ask(f"min(min_over_time({times}))", until_s)]
        last = [value for _, value in await self._ask(f"max(max_over_time({times}))", until_s)]
        number = await self._ask(f"max(count_over_time(kube_node_info{self._only}{over}))", until_s)
        for (_, count), first_s, last_s in zip(number, first, last, strict=False):
            self.first_s = min(self.first_s, first_s)
            if count > 1 and last_s > first_s:
                self.scrape_s = min(self.scrape_s or math.inf, (last_s - first_s) / (count - 1))

    async def finish(self, end_s: float) -> None:
        """What pods without GPUs had of nodes at the end."""
        requests = "kube_pod_container_resource_requests"
        others = (
            f'sum by (node, resource) ({requests}{{resource=~"cpu|memory"{self._more}}}'
            f' unless on ({_BY_POD}) {requests}{{resource=~"{_GPU}"{self._more}}})'
        )
        for labels, value in await self._ask(others, end_s):
            if labels.get("node") in self.nodes:
                self._node(labels).taken[labels.get("resource", "")] = value

    async def _ask(self, expression: str, at_s: float) -> list[tuple[Labels, float]]:
        """Finite values alone. Raises `PrometheusError`."""
        found = await self._prometheus.ask(expression, at_s)
        self._series += len(found)
        if self._series > MAX_SERIES:
            raise HistoryTooLarge(
                f"there are more than {MAX_SERIES} series in the requested period: use a shorter --since"
            )
        return [(labels, value) for labels, value in found if math.isfinite(value)]

    @property
    def last_s(self) -> float:
        """When there were metrics last."""
        return max((node.seen_s for node in self.nodes.values()), default=-math.inf)

    def _pod(self, labels: Labels) -> _SeenPod:
        name = f"{labels.get('namespace', '')}/{labels.get('pod', '')}"
        return self.pods.setdefault(labels.get("uid") or name, _SeenPod(name))

    def _node(self, labels: Labels) -> _SeenNode:
        return self.nodes[labels.get("node", "")]


class HistoryTooLarge(ValueError):
    """A source with more than is read of one; the message says what to do."""


def _pod(seen: _SeenPod, end_s: float, scrape_s: float, omissions: Omissions) -> HistoryPod | None:
    if math.isinf(seen.created_s):
        omissions.add("pods without a metric for their creation time, which were left out", seen.name)
        return None
    shape = _shape(seen, omissions)
    if shape is None:
        return None
    bound_s = seen.bound_s if math.isfinite(seen.bound_s) else seen.started_s
    ended_s = seen.completed_s
    if math.isinf(ended_s) and math.isinf(seen.seen_s):
        omissions.add("pods that were left out because kube_pod_info does not cover them", seen.name)
        return None
    if math.isinf(ended_s) and seen.seen_s < end_s - 2 * (scrape_s + _SEEN_STEP_S):
        ended_s = seen.seen_s + scrape_s / 2
    return HistoryPod(seen.name, shape, seen.created_s, seen.node, bound_s, ended_s)


def _shape(seen: _SeenPod, omissions: Omissions) -> PodShape | None:
    containers = tuple(
        ContainerSpec(
            name,
            ContainerKind.APP,
            limits={_RESOURCES[word]: str(_clamp(value)) for word, value in found.items() if word in _RESOURCES},
            requests={
                "cpu": f"{_clamp(1000 * found.get('cpu', 0))}m",
                "memory": str(_clamp(found.get("memory", 0), MANY * _MIB)),
            },
        )
        for name, found in sorted(seen.amounts.items())
    )
    namespace, _, name = seen.name.partition("/")
    manifest = PodManifest("", namespace, name, {}, containers, families=frozenset(FAMILY_NAMES))
    try:
        request = parse(manifest)
    except (DialectError, QuantityError) as error:
        omissions.add("pods with invalid requests, which were left out", f"{seen.name}: {' '.join(str(error).split())}")
        return None
    if request is None:  # zero GPUs
        return None
    shape = shape_of(request)
    if shape is None:
        omissions.add("pods with GPUs in several containers, which were left out", seen.name)
    return shape


def _history_node(name: str, node: _SeenNode, end_s: float) -> HistoryNode:
    gone = node.seen_s < end_s - 5 * _SEEN_STEP_S
    return HistoryNode(_facts(name, node), node.created_s, node.seen_s if gone else math.inf)


def _facts(name: str, node: _SeenNode) -> FleetNodeFacts:
    free = FreeResources(
        _free_amount(node, "cpu", 1000),
        _free_amount(node, "memory", 1 / _MIB),
        _clamp(node.allocatable.get("pods", MANY)),
    )
    gpus = _clamp(node.allocatable.get("nvidia_com_gpu", 0))
    if not node.devices:
        return counted_node(name, gpus, node.model, node.memory_mib, free)
    found = tuple(
        GpuFacts(model, mib, MAX_SLOTS, resource=GPU_RESOURCE) for _, (model, mib) in sorted(node.devices.items())
    )
    return FleetNodeFacts(name, found, free.cpu_free_milli, free.memory_free_mib, free.pods_free)


def _free_amount(node: _SeenNode, resource: str, unit: float) -> int:
    if resource not in node.allocatable:
        return MANY
    return _clamp(unit * (node.allocatable[resource] - node.taken.get(resource, 0.0)))


def _clamp(value: float, most: int = MANY) -> int:
    return int(max(0.0, min(value, float(most))))


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
