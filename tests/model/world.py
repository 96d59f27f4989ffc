"""All that may happen in a cluster of one size."""

from collections.abc import Iterator
from typing import Any

from tests.model.agent import Agents
from tests.model.cluster import Move, NodeState, Objects, SchedulerState, Size, Source, State
from tests.model.moves_of_nodes import MovesOfNode
from tests.model.moves_of_schedulers import MovesOfNet, MovesOfScheduler
from tests.model.moves_of_users import moves_of_users
from tests.model.parts import PodVersion
from tests.model.scheduler import Knowledge, Schedulers

Step = tuple[str, State]
"""What happened, as a sentence; and what then is."""


class World:
    """A state has a value for each of ``columns``; each of ``moves`` reads some of them and changes some."""

    def __init__(self, size: Size, schedulers: type[Schedulers] = Schedulers, agents: type[Agents] = Agents) -> None:
        self.size = size
        self.node_names = tuple(f"node{i}" for i in range(size.nodes))
        self.scheduler_names = tuple(f"scheduler{i}" for i in range(size.schedulers))
        self.columns = ("objects", "net", "leads", "faults", *self.scheduler_names, *self.node_names)
        self.schedulers = schedulers(tuple((name, size.gpus) for name in self.node_names))
        self.agents = agents(size.gpus)
        self._schedulers = [
            MovesOfScheduler(each, size, self.node_names, self.schedulers) for each in self.scheduler_names
        ]
        self._nodes = [MovesOfNode(each, size, self.agents) for each in self.node_names]
        self.moves = tuple(self._moves())
        news = () if size.has_deletions else (*self._schedulers, *self._nodes)
        self.settled = tuple(each.settled() for each in news)

    def _moves(self) -> Iterator[Move]:
        for part in (*self._schedulers, *self._nodes):
            yield from part.moves()
        for sender in ("", *self.scheduler_names):
            for node in self.node_names:
                yield from MovesOfNet(sender, node, self.size, self.schedulers).moves()
        yield from moves_of_users(self.size)

    def first(self) -> State:
        """All pods wait, and everything runs and has heard of them."""
        pods = tuple(PodVersion(f"pod{i}", f"pod{i}.0") for i in range(self.size.pods))
        (number,) = self.schedulers.relisted(0, pods)
        schedulers = (SchedulerState(name, number) for name in self.scheduler_names)
        leads = frozenset(self.scheduler_names[:1])
        return Objects(pods), (), leads, self.size.faults, *schedulers, *map(NodeState, self.node_names)

    def steps(self, state: State) -> Iterator[Step]:
        """Whatever may happen next."""
        for move in self.moves:
            if all(self.read(state, each) for each in move.when):
                for text, changes in move.outcomes(*(self.read(state, each) for each in move.reads)):
                    yield text, self._changed(state, changes)

    def read(self, state: State, source: Source) -> Any:
        if isinstance(source, str):
            return state[self.columns.index(source)]
        return source.of(*(self.read(state, each) for each in source.reads))

    def opened(self, state: SchedulerState) -> tuple[str, Knowledge | None]:
        """What its number stands for."""
        return state.name, self.schedulers.known[state.known] if state.known >= 0 else None

    def _changed(self, state: State, changes: dict[str, Any]) -> State:
        return tuple(changes.get(name, value) for name, value in zip(self.columns, state, strict=True))
