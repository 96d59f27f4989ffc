"""The values that a state of the cluster is made of, and which of them a step reads."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from purser.core.model import Grant
from tests.model.agent import Memory
from tests.model.parts import Booked, Listed, PodVersion

ALL = frozenset({"scheduler", "lease", "net", "agent", "kubelet", "ids", "away", "delete", "replace", "deface"})
WITHOUT_AWAY, WITHOUT_REPLACE = ALL - {"away"}, ALL - {"replace"}
"""An agent that the API server does not answer takes a pod for the one that had its name before: see
docs/correctness.md."""


class Size(NamedTuple):
    """What there is, and how much may go wrong in one history."""

    nodes: int = 1
    gpus: int = 2
    pods: int = 2
    schedulers: int = 1
    faults: int = 1
    kinds: frozenset[str] = ALL
    """Of faults."""

    def allows(self, kind: str) -> bool:
        return self.faults > 0 and kind in self.kinds

    @property
    def has_deletions(self) -> bool:
        """Then no news is heard at once: it would hide something, with two leaders."""
        return self.allows("delete") or self.allows("replace")

    def users_may_act(self, faults: int) -> bool:
        """While so many faults are left."""
        return faults > 0 and (self.has_deletions or "deface" in self.kinds)


class Objects(NamedTuple):
    """What the API server has."""

    pods: tuple[PodVersion, ...]
    truths: tuple[Grant, ...] = ()
    """Of every pod that was ever bound: what no part of Purser reads."""

    def pod(self, name: str) -> PodVersion | None:
        return next((each for each in self.pods if each.name == name), None)

    def truth(self, uid: str) -> Grant | None:
        return next((each for each in self.truths if each.pod_uid == uid), None)

    def has_ended(self, entry: Listed) -> bool:
        now = self.pod(entry.name)
        return now is None or now.uid != entry.uid or now.phase == "Failed"

    def put(self, now: PodVersion) -> "Objects":
        others = (each for each in self.pods if each.name != now.name)
        return self._replace(pods=tuple(sorted((*others, now), key=lambda each: each.name)))

    def without(self, name: str) -> "Objects":
        return self._replace(pods=tuple(each for each in self.pods if each.name != name))

    def granted(self, new: Grant) -> "Objects":
        return self._replace(truths=tuple(sorted({*self.truths, new}, key=lambda each: each.pod_uid)))


class Binding(NamedTuple):
    """On its way to the API server."""

    grant: Grant
    sender: str
    """The scheduler that waits for the answer; empty: nobody does."""


class SchedulerState(NamedTuple):
    name: str
    known: int
    """By `Schedulers`; -1: it does not run."""


class NodeState(NamedTuple):
    name: str
    runs: bool = True
    """The agent."""
    memory: Memory = Memory()
    disk: tuple[Booked, ...] = ()
    listed: tuple[Listed, ...] = ()
    """kubelet's."""
    admitting: str = ""
    """The uid of the pod under admission; empty: none."""

    def remembers(self, memory: Memory) -> "NodeState":
        """And has written its book down."""
        return self._replace(memory=memory.while_listed(self.listed), disk=memory.book)


State = tuple[Any, ...]
"""The values of all columns: see `World.columns`."""

Outcome = tuple[str, dict[str, Any]]
"""What happened, as a sentence; and the columns that changed."""


class View(NamedTuple):
    """What of some columns a step depends on."""

    reads: tuple["Source", ...]
    of: Callable[..., Hashable]


Source = str | View


class Move(NamedTuple):
    """A kind of step: a function of what it reads, of nothing else in the state."""

    reads: tuple[Source, ...]
    outcomes: Callable[..., Iterable[Outcome]]
    when: tuple[Source, ...] = ()
    """All of these hold, or it does not happen. Looked at first, for what is read is then looked at seldom."""


class Settled(NamedTuple):
    """What a column becomes at once, by steps that might as well be later: see "How it is checked"."""

    column: str
    reads: tuple[Source, ...]
    of: Callable[..., Any]


class Rule(NamedTuple):
    """What must hold: says what does not."""

    reads: tuple[Source, ...]
    problems: Callable[..., Iterator[str]]
    when: tuple[Source, ...] = ()


def is_last(version: PodVersion | None, *, users_may_act: bool) -> bool:
    """Whether a pod stays as it is for good: what has failed or is gone does, and what runs unless a user acts."""
    return version is None or version.phase == "Failed" or (version.phase == "Running" and not users_may_act)


def told(version: PodVersion | None) -> str:
    if version is None:
        return "gone"
    carries = "no grant" if version.grant is None else f"a grant of {', '.join(version.grant.uuids)}"
    return f"{version.uid}, on {version.node or 'no node'}, {carries}, {version.phase}"


def in_order(net: Iterable[Binding]) -> tuple[Binding, ...]:
    return tuple(sorted(net, key=lambda each: (each.grant.pod_uid, sorted(each.grant.uuids), each.sender)))
