"""A history out of events, and out of the pods and nodes that are still there.

What the events of a pod say: kube-scheduler's ``FailedScheduling`` since when it waits and ``Scheduled`` when it was
bound, Purser's ``Granted`` what it asked for, kubelet's ``Started`` and ``Killing`` when it ran. Controllers say when
they created and deleted a pod, and a Job when it was completed; of containers that end by themselves
no event tells.
"""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from purser.adapters.nodes import allocatable
from purser.backtest.history import (
    MAX_FIRST_TRY_DELAY_S,
    MAX_WINDOW_S,
    History,
    HistoryNode,
    HistoryPod,
    NothingToReplay,
    Omissions,
    comparable_time,
    creation,
    history_of,
)
from purser.backtest.nodes import counted_node
from purser.backtest.objects import Dump, TimestampedEvent, TimestampedPod
from purser.backtest.obstacles import GATED_PODS, count_obstacles, is_gated
from purser.core.decoding import UnreadableError
from purser.core.fleet.facts import FleetNodeFacts
from purser.core.kubernetes.quantities import QuantityError, quantity_ceil
from purser.core.kubernetes.times import parsed
from purser.core.names import ASKED_ANNOTATION, GPU_RESOURCE
from purser.core.placement.asked import read_asked_shape
from purser.core.placement.shape import PodShape
from purser.core.pod.requests import EffectiveRequests
from purser.kube.objects import Node
from purser.kube.pods import is_terminal
from purser.kube.resources import key_of_ref
from purser.simulator.cluster import requests_of, simulated_node, simulated_pod

_ASSIGNED_PATTERN = re.compile(r"Successfully assigned \S+ to (\S+)")
_GRANTED_PATTERN = re.compile(r" o[fn] node ([^\s:;]+)")
"""``Granted GPU 3 on node n``; older schedulers wrote ``of node``, and their events may still be in a history."""
_CREATED = re.compile(r"(?:Created pod: |create Pod )(\S+)")
_DELETED = re.compile(r"(?:Deleted pod: |delete Pod )(\S+)")
_NANOSECONDS = re.compile(r"\.([0-9a-f]{16})$")
_STOPPING_PREFIX = "Stopping container"
"""How kubelet's message begins where the pod is to end; else it restarts the container."""

_CANCELLED_PREFIX = "Cancelling deletion"
"""How the message of TaintManagerEviction begins where the pod is to stay."""

_EVICTIONS = frozenset({"Evicted", "Preempted", "TaintManagerEviction"})
_GPU_PRODUCT, _GPU_MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"


@dataclass
class _ObservedPod:
    """One pod, as its events tell of it."""

    name: str
    created_s: float = math.inf
    tried_s: float = math.inf
    bound_s: float = math.inf
    granted_s: float = math.inf
    started_s: float = math.inf
    ended_s: float = -math.inf
    """The last container's."""
    evicted_s: float = math.inf
    node: str = ""
    shape: PodShape | None = None
    priority: int = 0
    is_listed: bool = False
    is_known_without: bool = False
    """Whether the pod itself is there, and asks for no GPU."""
    is_gated: bool = False

    @property
    def first_s(self) -> float:
        """When anything was heard of it; by kubelet, whose clock may be another one, where nobody else spoke."""
        first_s = min(self.tried_s, self.placed_s)
        return first_s if math.isfinite(first_s) else self.started_s

    @property
    def placed_s(self) -> float:
        """By kube-scheduler, which says the microsecond; by Purser, in whole seconds, where that is not known."""
        return self.bound_s if math.isfinite(self.bound_s) else self.granted_s


def history_of_dump(dump: Dump, source: str, omissions: Omissions) -> History:
    """What the objects tell. Raises `NothingToReplay`."""
    notes: list[str] = []
    events, begin_s, end_s = _date_events(dump.events, omissions)
    seen, controllers = _ObservedPods(omissions), _Controllers()
    gone_s: dict[str, float] = {}
    for event, first_s, last_s in events:
        kind = event.involved_object.kind
        if kind == "Pod":
            seen.take(event, first_s, last_s)
        elif kind == "Node" and event.reason in ("RemovingNode", "DeletingNode"):
            gone_s[event.involved_object.name] = first_s
        else:
            controllers.take(event, first_s)
    others = seen.take_pods(dump.pods, notes)
    begin_s, end_s = _replay_window(begin_s, end_s, dump.pods)
    controllers.complete(seen.pods.values())
    _correct_clocks(seen.pods.values(), omissions)
    pods = {
        uid: pod
        for uid, each in seen.pods.items()
        if (pod := _pod(each, dump.lists_pods, begin_s, omissions)) is not None
    }
    there = {uid for uid, pod in pods.items() if pod.ended_s > begin_s and pod.created_s < end_s}
    count_obstacles((pod for pod in dump.pods if pod.metadata.uid in there), omissions)
    nodes = [
        HistoryNode(
            facts,
            _default_if_none(parsed(node.metadata.creation_timestamp), -math.inf),
            gone_s.get(facts.name, math.inf),
        )
        for node in dump.nodes
        if (facts := _facts(node, others[node.metadata.name], notes)) is not None
    ]
    return history_of(source, begin_s, end_s, nodes, list(pods.values()), omissions, notes)


def _date_events(
    events: Iterable[TimestampedEvent], omissions: Omissions
) -> tuple[list[tuple[TimestampedEvent, float, float]], float, float]:
    """Events with their times, the first one first; and since when, and until when, they are complete.

    The API server keeps an event for an hour after it was last seen, so since the oldest of these times all are there.
    """
    found = []
    for event in events:
        times = _times(event)
        if times is None:
            omissions.add("events without a time, which were left out", key_of_ref(event.involved_object))
        else:
            found.append((event, *times))
    if not found:
        return [], math.inf, -math.inf
    middle = statistics.median(last_s for *_, last_s in found)
    near = [each for each in found if all(abs(time_s - middle) < MAX_WINDOW_S / 2 for time_s in each[1:])]
    for event, _, last_s in found:
        if abs(last_s - middle) >= MAX_WINDOW_S / 2:
            omissions.add(
                "events that were left out because their time is far from that of all others",
                key_of_ref(event.involved_object),
            )
    near.sort(key=lambda each: each[1])
    last = [last_s for *_, last_s in near]
    return near, min(last, default=math.inf), max(last, default=-math.inf)


def _times(event: TimestampedEvent) -> tuple[float, float] | None:
    exactly_s = _time_in_name(event)
    first = [] if exactly_s is None else [exactly_s]
    first += [time_s for text in (event.event_time, event.first_timestamp) if (time_s := parsed(text)) is not None]
    texts = ("" if event.series is None else event.series.last_observed_time, event.last_timestamp)
    last = [time_s for text in texts if (time_s := parsed(text)) is not None]
    if not first and not last:
        return None
    return (first or last)[0], max(first[:1] + last)


def _time_in_name(event: TimestampedEvent) -> float | None:
    """The time in an event's name, where it is of the second that the event says: client-go, and so kubelet, names
    events by the object and the nanosecond of their first time (``GenerateEventName``)."""
    found, said_s = _NANOSECONDS.search(event.metadata.name), parsed(event.first_timestamp)
    if found is None or said_s is None:
        return None
    named_s = int(found[1], 16) / 1e9
    return named_s if math.floor(named_s) == said_s else None


class _ObservedPods:
    """Pods by uid."""

    def __init__(self, omissions: Omissions) -> None:
        self.pods: dict[str, _ObservedPod] = {}
        self._omissions = omissions

    def take(self, event: TimestampedEvent, first_s: float, last_s: float) -> None:
        about = event.involved_object
        if not about.uid:
            self._omissions.add("events without the UID of their pod, which were left out", key_of_ref(about))
            return
        pod = self.pods.setdefault(about.uid, _ObservedPod(key_of_ref(about)))
        match event.reason:
            case "FailedScheduling":
                pod.tried_s = min(pod.tried_s, first_s)
            case "Scheduled":
                if (found := _ASSIGNED_PATTERN.match(event.message)) is not None:
                    pod.bound_s, pod.node = min(pod.bound_s, first_s), found[1]
            case "Granted":
                pod.granted_s = min(pod.granted_s, first_s)
                if not pod.node and (found := _GRANTED_PATTERN.search(event.message)) is not None:
                    pod.node = found[1]
                self._set_request(pod, event.metadata.annotations.get(ASKED_ANNOTATION))
            case "Started":
                pod.started_s = min(pod.started_s, first_s)
            case "Killing" if event.message.startswith(_STOPPING_PREFIX):
                pod.ended_s = max(pod.ended_s, last_s)
            case reason if reason in _EVICTIONS and not event.message.startswith(_CANCELLED_PREFIX):
                pod.evicted_s = min(pod.evicted_s, first_s)

    def _set_request(self, pod: _ObservedPod, text: str | None) -> None:
        if text is None:
            return
        try:
            pod.shape = read_asked_shape(text)
        except UnreadableError as error:
            self._omissions.add("Granted events with invalid requests, which were ignored", f"{pod.name}: {error}")

    def take_pods(
        self, pods: Iterable[TimestampedPod], notes: list[str]
    ) -> "defaultdict[str, list[EffectiveRequests]]":
        """The pods that are listed; what those without GPUs ask for, by node."""
        others: defaultdict[str, list[EffectiveRequests]] = defaultdict(list)
        for each in pods:
            simulated = simulated_pod(each, notes)
            pod = self.pods.setdefault(
                each.metadata.uid, _ObservedPod(f"{each.metadata.namespace}/{each.metadata.name}")
            )
            pod.is_listed, pod.priority = True, each.spec.priority
            if simulated is None:
                pod.is_known_without = pod.shape is None
                if each.spec.node_name and not is_terminal(each):
                    others[each.spec.node_name].append(requests_of(each, notes))
                continue
            if is_gated(each):
                pod.is_gated = True
                self._omissions.add(GATED_PODS, pod.name)
            pod.shape = simulated.shape
            pod.created_s = _default_if_none(parsed(each.metadata.creation_timestamp), math.inf)
            pod.node = each.spec.node_name or pod.node
            if pod.node:
                pod.bound_s = min(pod.bound_s, _bound(each))
            if is_terminal(each):
                pod.ended_s = max(pod.ended_s, _ended(each))
        return others


def _bound(pod: TimestampedPod) -> float:
    conditions = [each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "True"]
    times = [parsed(each.last_transition_time) for each in conditions]
    return _default_if_none(next(iter(times), None), _default_if_none(parsed(pod.status.start_time), math.inf))


def _ended(pod: TimestampedPod) -> float:
    ends = [parsed(each.state.terminated.finished_at) for each in pod.status.container_statuses]
    ready = [parsed(each.last_transition_time) for each in pod.status.conditions if each.type == "Ready"]
    return max((end for end in ends or ready if end is not None), default=-math.inf)


class _Controllers:
    """What Jobs, ReplicaSets and the like say of their pods, which they know by name alone."""

    def __init__(self) -> None:
        self._created: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        self._deleted: defaultdict[str, list[float]] = defaultdict(list)
        self._completed: dict[str, float] = {}

    def take(self, event: TimestampedEvent, first_s: float) -> None:
        about = event.involved_object
        if event.reason == "SuccessfulCreate" and (found := _CREATED.match(event.message)):
            self._created[f"{about.namespace}/{found[1]}"].append((first_s, about.uid))
        elif event.reason == "SuccessfulDelete" and (found := _DELETED.match(event.message)):
            self._deleted[f"{about.namespace}/{found[1]}"].append(first_s)
        elif event.reason == "Completed" and about.kind == "Job":
            self._completed[about.uid] = first_s

    def complete(self, pods: Iterable[_ObservedPod]) -> None:
        """Give each pod what was said of the pod of its name at that time."""
        by_name: defaultdict[str, list[_ObservedPod]] = defaultdict(list)
        for pod in pods:
            by_name[pod.name].append(pod)
        for name, namesakes in by_name.items():
            namesakes.sort(key=lambda pod: pod.first_s)
            nexts = [pod.first_s for pod in namesakes[1:]] + [math.inf]
            for pod, next_s in zip(namesakes, nexts, strict=True):
                self._complete(pod, self._created[name], self._deleted[name], next_s)

    def _complete(
        self, pod: _ObservedPod, created: list[tuple[float, str]], deleted: list[float], next_s: float
    ) -> None:
        owner = [each for each in created if each[0] <= pod.first_s + MAX_FIRST_TRY_DELAY_S]
        if owner and math.isinf(pod.created_s):
            pod.created_s = max(owner)[0]
        ends = [time_s for time_s in deleted if pod.first_s <= time_s <= next_s + MAX_FIRST_TRY_DELAY_S]
        if owner and (done := self._completed.get(max(owner)[1])) is not None:
            ends.append(done)
        if math.isinf(pod.ended_s) and ends:
            pod.ended_s = min(ends)


def _replay_window(begin_s: float, end_s: float, pods: Iterable[TimestampedPod]) -> tuple[float, float]:
    """Events say since when all is known; without any, the oldest pod does."""
    created = [time_s for pod in pods if (time_s := parsed(pod.metadata.creation_timestamp)) is not None]
    if math.isinf(begin_s):
        if not created:
            raise NothingToReplay("the history has neither events nor pods with timestamps")
        begin_s = max(min(created), max(created) - MAX_WINDOW_S / 2)
        ends = [end for pod in pods if math.isfinite(end := max(_ended(pod), -math.inf))]
        end_s = max([*created, *(each for each in ends if each < max(created) + MAX_WINDOW_S / 2)])
    return begin_s, end_s


def _correct_clocks(pods: Iterable[_ObservedPod], omissions: Omissions) -> None:
    """No pod starts before it is bound: where a node says so, its clock is behind by as much at least."""
    behind: defaultdict[str, float] = defaultdict(float)
    for pod in pods:
        if pod.node and math.isfinite(pod.started_s) and math.isfinite(pod.bound_s):
            behind[pod.node] = max(behind[pod.node], pod.bound_s - pod.started_s)
    for pod in pods:
        pod.ended_s += behind[pod.node] if behind[pod.node] > MAX_FIRST_TRY_DELAY_S else 0.0
    for node, seconds in behind.items():
        if seconds > MAX_FIRST_TRY_DELAY_S:
            omissions.add("nodes whose clock is slow and whose times were corrected", f"{node}: {seconds:.0f} s")


def _pod(seen: _ObservedPod, lists_pods: bool, begin_s: float, omissions: Omissions) -> HistoryPod | None:
    if seen.is_known_without or seen.is_gated:
        return None
    if seen.shape is None:
        if not seen.is_listed and math.isfinite(min(seen.bound_s, seen.started_s)):
            omissions.add(
                "deleted pods that were left out because no event records their requests, mostly pods without GPUs",
                seen.name,
            )
        elif not seen.is_listed and math.isfinite(seen.tried_s):
            omissions.add(
                "waiting pods that were left out because neither the list of pods nor any event has their requests",
                seen.name,
            )
        return None
    bound_s = seen.placed_s
    ended_s = comparable_time(seen.ended_s if math.isfinite(seen.ended_s) else seen.evicted_s, bound_s)
    if math.isinf(ended_s) and not seen.is_listed:
        if lists_pods:
            omissions.add("deleted pods that were left out because no event records when they ended", seen.name)
            return None
        omissions.add("pods without an event that records their end, replayed as still running", seen.name)
    return HistoryPod(seen.name, seen.shape, _created(seen, begin_s), seen.node, bound_s, ended_s, seen.priority)


def _created(seen: _ObservedPod, begin_s: float) -> float:
    """The time of the object or its controller; the first attempt, where that is its exact time, or all there is."""
    first_s = seen.first_s
    if math.isinf(seen.created_s):
        return first_s if math.isfinite(first_s) else begin_s
    return creation(seen.created_s, first_s)


def _facts(node: Node, others: list[EffectiveRequests], notes: list[str]) -> FleetNodeFacts | None:
    problems: list[str] = []
    facts = simulated_node(node, others, problems)
    if facts is None:
        facts = _listed(node, others)
    if facts is None:
        notes.extend(problems)
    return facts


def _listed(node: Node, others: list[EffectiveRequests]) -> FleetNodeFacts | None:
    """A node without an inventory, of NVIDIA's device plugin: by what kubelet lists, and by feature discovery's labels;
    None without GPUs."""
    amounts, labels = node.status.allocatable, node.metadata.labels
    try:
        gpus = quantity_ceil(amounts.get(GPU_RESOURCE, 0))
        memory_mib = quantity_ceil(labels.get(_GPU_MEMORY, 0))
        free = allocatable(node).less(sum(others, EffectiveRequests()), len(others))
    except QuantityError:
        return None
    name = node.metadata.name
    return counted_node(name, gpus, labels.get(_GPU_PRODUCT, ""), memory_mib, free) if gpus > 0 else None


def _default_if_none(value: float | None, other: float) -> float:
    return other if value is None else value
