"""A history out of a scheduler's decision log.

Files follow one another, and each begins with the whole state: what was held before and is not in it has ended
meanwhile, and nodes that are not in it have gone. Of pods that wait a file says nothing until they are tried again.
When a pod was created stands in the decisions on it; a log of some pods alone has no such for the others.
"""

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from purser.backtest.dump import HistoryError
from purser.backtest.history import History, HistoryPod, NothingToReplay, Omissions, creation, history_of
from purser.backtest.logged_nodes import LoggedNodes
from purser.core.decisions import DecisionLogError, Reader
from purser.core.decisions.numbered import item_at
from purser.core.decisions.records import (
    FreeResourcesTaken,
    GrantReleased,
    GrantTaken,
    InventoryTaken,
    Moment,
    NodeGone,
    NodeSeen,
    NodesJudged,
    PodBound,
    PodGone,
    PodKey,
    PodPlaced,
    Record,
    RequestSeen,
    SchedulingStart,
)
from purser.core.decoding import brief
from purser.core.model import Grant, GrantState, NodeInventory, PodRequest
from purser.core.placement.asked import check_shape, held_shape
from purser.core.placement.policies import parse_policy
from purser.core.placement.shape import PodShape, shape_of
from purser.core.policy.settings import PolicySettings
from purser.core.wording import some

FORGOTTEN_S = 600.0
"""kube-scheduler tries a pod that waits again after five minutes at the latest, if nothing happens that may help it
(``podMaxInUnschedulablePodsDuration``). So one on which nothing was decided for twice as long is there no more."""

_FORGOTTEN = (
    f"waiting pods that were left out because they were not tried in the last {FORGOTTEN_S / 60:.0f} minutes "
    "of the log, and are assumed to be deleted"
)
_INCONSISTENT = "records that were left out because they are inconsistent with those before them"


@dataclass
class _LoggedPod:
    """One pod, as the log tells of it."""

    name: str
    created_s: float
    shape: PodShape | None = None
    node: str = ""
    bound_s: float = math.inf
    ended_s: float = math.inf
    gone_s: float = math.inf
    """When it was deleted, where that was before it was bound."""
    last_seen_s: float = -math.inf
    """When anything was last said of it."""
    is_decided: bool = False
    """Whether any decision on it is in the log."""


def history_of_logs(paths: Iterable[Path], omissions: Omissions) -> History:
    """The history of all files. Raises `HistoryError`, `NothingToReplay`."""
    listed = list(paths)
    started = sorted(((_start(path).at, path) for path in listed), key=lambda each: each[0])
    reader = _LogReader(omissions)
    for _, path in started:
        with path.open("rb") as file:
            reader.take(file, str(path))
    return reader.history(some([path.name for path in listed], "file"))


def _start(path: Path) -> SchedulingStart:
    try:
        with path.open("rb") as file:
            first = next(iter(Reader(file.read)), None)
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
    except DecisionLogError as error:
        raise HistoryError(f"{path}: {error}") from error
    if first is None:
        raise HistoryError(f"{path} is empty: the scheduler has not written its first record yet")
    if not isinstance(first, SchedulingStart):
        raise HistoryError(f"{path} is a log without timestamps, as written by a simulation: use a scheduler's logs")
    return first


class _LogReader:
    """What all files together say."""

    def __init__(self, omissions: Omissions) -> None:
        self._omissions = omissions
        self._pods: dict[str, _LoggedPod] = {}
        self._nodes = LoggedNodes()
        self._held: dict[str, dict[str, PodShape | None]] = {}
        """By node, what pods hold there now."""
        self._begin_s = self._now_s = math.inf
        self._policy = ""
        self._names: list[str] = []
        self._requests: list[PodRequest] = []
        self._before: set[str] | None = None
        """While a file's first records are read: who held GPUs before, and was not named yet."""

    def take(self, file: BinaryIO, name: str) -> None:
        """The next file, as far as it can be read."""
        reader = Reader(file.read)
        try:
            for record in reader:
                try:
                    self._apply(record)
                except (ValueError, OverflowError) as error:
                    problem = f"record {reader.number} of {name}: {brief(error)}"
                    self._omissions.add(_INCONSISTENT, problem)
        except DecisionLogError as error:
            self._omissions.add("logs that cannot be read to the end, replayed up to that point", f"{name}: {error}")
        self._end_of_state()

    def _apply(self, record: Record) -> None:
        match record:
            case SchedulingStart():
                self._begin(record)
            case Moment():
                self._advance_clock(record.at)
            case NodeSeen():
                self._names.append(record.name)
            case InventoryTaken():
                self._add_node(self._node(record.node), record.inventory)
            case FreeResourcesTaken():
                name = self._node(record.node)
                self._nodes.set_free(name, record.free, self._held.get(name, {}).values())
            case NodeGone():
                self._remove_node(self._node(record.node))
            case RequestSeen():
                self._requests.append(record.request)
            case GrantTaken():
                self._take_grant(self._node(record.node), record.grant, record.state)
            case GrantReleased():
                self._release(self._node(record.node), record.pod_uid)
            case NodesJudged():
                self._note_decision(record.pod, self._request(record.request))
            case PodPlaced():
                pod = self._note_decision(record.pod, self._request(record.request))
                grant = Grant(record.pod.uid, record.pod.namespace, record.pod.name, "", record.containers)
                if pod.shape is None and record.containers:
                    pod.shape = _check_valid_shape(held_shape(grant, 0, 0))
            case PodBound() if record.pod_uid in self._pods:
                self._bind(self._pods[record.pod_uid])
            case PodGone() if record.pod_uid in self._pods:
                self._pods[record.pod_uid].gone_s = self._now_s

    def _begin(self, start: SchedulingStart) -> None:
        if not math.isfinite(start.at):
            raise ValueError("the record has no timestamp")
        if math.isinf(self._begin_s):
            self._begin_s = self._now_s = start.at
            self._policy = _policy_text(start.policy)
        self._now_s = max(self._now_s, start.at)
        self._names, self._requests = [], []
        self._before = {uid for held in self._held.values() for uid in held}
        self._nodes.begin_state()
        self._moments = 0
        self._began_s = start.at

    def _advance_clock(self, at_s: float) -> None:
        """Where the machine's clock went backwards, time stands still."""
        if not math.isfinite(at_s):
            raise ValueError("the record has no timestamp")
        self._moments += 1
        if self._moments > 1:
            self._end_of_state()
        self._now_s = max(self._now_s, at_s)

    def _end_of_state(self) -> None:
        """A file's first records are read: who is not in them has ended, and went at the latest when it began."""
        for uid in self._before or ():
            for held in self._held.values():
                held.pop(uid, None)
            self._end(uid)
        self._before = None
        for name in self._nodes.end_state():
            self._remove_node(name)

    def _add_node(self, name: str, inventory: NodeInventory) -> None:
        is_first = self._before is not None and self._now_s == self._begin_s
        self._nodes.add(name, inventory, self._now_s, -math.inf if is_first else self._now_s)

    def _remove_node(self, name: str) -> None:
        """Its pods have ended, unless it comes again with them."""
        self._nodes.remove(name, self._now_s)
        for uid in self._held.pop(name, {}):
            self._end(uid)

    def _take_grant(self, name: str, grant: Grant, state: GrantState) -> None:
        pod = self._pods.get(grant.pod_uid)
        if pod is None:
            pod = self._pods[grant.pod_uid] = _LoggedPod(f"{grant.namespace}/{grant.pod}", self._now_s)
        pod.shape = pod.shape or _check_valid_shape(held_shape(grant, 0, 0))
        pod.last_seen_s = self._now_s
        self._held.get(pod.node, {}).pop(grant.pod_uid, None)
        pod.node, pod.ended_s = name, math.inf
        self._held.setdefault(name, {})[grant.pod_uid] = pod.shape
        if self._before is not None:
            self._before.discard(grant.pod_uid)
        if state not in (GrantState.RESERVED, GrantState.RELEASED):
            self._bind(pod)

    def _bind(self, pod: _LoggedPod) -> None:
        pod.bound_s = min(pod.bound_s, self._now_s)

    def _release(self, name: str, uid: str) -> None:
        """The pod may hold GPUs of another node by now."""
        if uid in (held := self._held.get(name, {})):
            del held[uid]
            self._end(uid)

    def _end(self, uid: str) -> None:
        """One that was never bound waits again."""
        if (pod := self._pods.get(uid)) is None:
            return
        pod.last_seen_s = self._now_s
        if math.isfinite(pod.bound_s):
            pod.ended_s = self._now_s
        else:
            pod.node = ""

    def _note_decision(self, key: PodKey, request: PodRequest) -> _LoggedPod:
        pod = self._pods.get(key.uid)
        if pod is None:
            pod = self._pods[key.uid] = _LoggedPod(f"{key.namespace}/{key.name}", self._now_s)
        pod.last_seen_s = self._now_s
        if not pod.is_decided:
            pod.is_decided = True
            pod.created_s = creation(key.created, self._now_s) if key.created > 0 else self._now_s
            shape = shape_of(request)
            pod.shape = pod.shape if shape is None else _check_valid_shape(shape)
        return pod

    def _node(self, number: int) -> str:
        return item_at(self._names, number, "node")

    def _request(self, number: int) -> PodRequest:
        return item_at(self._requests, number, "request")

    def history(self, source: str) -> History:
        """All of it."""
        if math.isinf(self._begin_s):
            raise NothingToReplay("no log begins with a record that has a timestamp")
        pods = [pod for each in self._pods.values() if (pod := self._history_pod(each)) is not None]
        found = history_of(source, self._begin_s, self._now_s, self._nodes.history(), pods, self._omissions, [])
        return msgspec.structs.replace(found, policy=self._policy)

    def _history_pod(self, pod: _LoggedPod) -> HistoryPod | None:
        if pod.shape is None:
            what = "waiting pods that were left out because they have requirements other than amounts"
            self._omissions.add(what, pod.name)
            return None
        if not pod.is_decided and pod.bound_s > self._begin_s:
            self._omissions.add("pods without a decision in the log, assumed not to have waited", pod.name)
        waits = math.isinf(pod.bound_s)
        if waits and math.isinf(pod.gone_s) and pod.last_seen_s < self._now_s - FORGOTTEN_S:
            self._omissions.add(_FORGOTTEN, pod.name)
            return None
        return HistoryPod(
            pod.name, pod.shape, pod.created_s, pod.node, pod.bound_s, pod.gone_s if waits else pod.ended_s
        )


def _policy_text(settings: PolicySettings) -> str:
    """The policies of pods that name none, as `parse_policy` reads them; of several for GPUs the first that chooses by
    itself. Empty: there is none."""
    for words in (*(f"{settings.node}/{gpu}" for gpu in settings.gpu if gpu != settings.node), settings.node):
        with contextlib.suppress(ValueError):
            parse_policy(words)
            return words
    return ""


def _check_valid_shape(shape: PodShape) -> PodShape:
    check_shape(shape, "a pod in the log")
    return shape
