"""Purser with one rule broken each: what the exploration must find, or it shows nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from purser.agent.allocation.admission import ContainerTurn, Resolution
from purser.agent.allocation.arbiter import Arbiter
from purser.agent.allocation.book import BookedContainer, BookedPod
from purser.agent.kubelet.pod_resources import ListedPod
from purser.core.grant.signing import read
from purser.core.model import Grant
from tests.model.agent import Agents, Answer, MemoryBook
from tests.model.cluster import Size
from tests.model.parts import PodVersion
from tests.model.scheduler import Machine, Schedulers
from tests.model.world import World


def first_of_equal_size(
    ask: Any, listing: Iterable[ListedPod], grants: Mapping[str, Grant], served: Mapping[str, frozenset[str]]
) -> Resolution:
    """As device plugins do that look for a pending pod that asks for as much."""
    waiting = [grants[each.key] for each in listing if each.key in grants and each.lacks_devices]
    turns = tuple(ContainerTurn(each, each.containers[0]) for each in waiting)
    return Resolution(turns[0] if turns else None, turns, turns)


def any_grant_counts(annotations: Mapping[str, str], *, pod_uid: str, node: str, keys: object) -> Grant | None:
    """Signed, and for this node; for which pod is not asked."""
    found = read(annotations)
    return None if found is None or found.node != node else msgspec.structs.replace(found, pod_uid=pod_uid)


class ForgetfulMachine(Machine):
    """It counts what it granted itself."""

    def hear(self, name: str, version: PodVersion | None) -> None:
        super().hear(name, version)
        if version is not None and version.node and version.uid not in self._own:
            self.cache.ledger.release(version.uid)

    def reserve(self, grant: Grant) -> None:
        super().reserve(grant)
        self._own.add(grant.pod_uid)

    def __init__(self, nodes: tuple[tuple[str, int], ...]) -> None:
        self._own: set[str] = set()
        super().__init__(nodes)


class CredulousMachine(Machine):
    """A pod without a grant holds nothing."""

    def hear(self, name: str, version: PodVersion | None) -> None:
        super().hear(name, version)
        if version is not None and version.node and version.grant is None:
            self.cache.ledger.release(version.uid)


class HastyMachine(Machine):
    """A Binding without an answer was not carried out."""

    def answered(self, grant: Grant, outcome: str, now: PodVersion | None) -> None:
        if outcome == "lost":
            self.cache.ledger.release(grant.pod_uid)
        else:
            super().answered(grant, outcome, now)


class ObedientBook(MemoryBook):
    """What the scheduler granted has room."""

    def allocate(self, grant: Grant, container: str, given: BookedContainer) -> None:
        self._adopt(BookedPod(grant, {container: given}))


def _schedulers(machine: type[Machine]) -> Callable[[tuple[tuple[str, int], ...]], Schedulers]:
    return lambda nodes: Schedulers(nodes, machine)


class ObedientAgents(Agents):
    book_class = ObedientBook


class ForgetfulAgents(Agents):
    learns = False


class TrustingAgents(Agents):
    """PreStartContainer is not asked."""

    def may_start(self, *asks: Any) -> tuple[Answer, ...]:
        return tuple(each._replace(why="") for each in super().may_start(*asks))


class Variant(NamedTuple):
    """One rule broken."""

    name: str
    size: Size
    schedulers: Any = Schedulers
    agents: type[Agents] = Agents
    patches: tuple[tuple[str, Any], ...] = ()

    @contextmanager
    def world(self) -> Iterator[World]:
        """While it is broken."""
        with ExitStack() as stack:
            for target, broken in self.patches:
                stack.enter_context(patch(target, broken))
            yield World(self.size, self.schedulers, self.agents)


VARIANTS = (
    Variant(
        "the agent serves the first pending pod of equal size, and PreStartContainer is not asked",
        Size(kinds=frozenset({"agent"})),
        agents=TrustingAgents,
        patches=(("purser.agent.allocation.resolver.resolve", first_of_equal_size),),
    ),
    Variant(
        "a scheduler that starts does not count what others granted",
        Size(pods=2, gpus=1, faults=1, kinds=frozenset({"scheduler"})),
        schedulers=_schedulers(ForgetfulMachine),
    ),
    Variant(
        "an agent that starts knows nothing, and does not ask kubelet",
        Size(pods=2, gpus=1, schedulers=2, faults=2, kinds=frozenset({"lease", "agent"})),
        agents=ForgetfulAgents,
        patches=((f"{Arbiter.__module__}.Arbiter._adopt", lambda self, found, grants: None),),
    ),
    Variant(
        "a grant counts for whichever pod carries it",
        Size(faults=1, kinds=frozenset({"deface"})),
        patches=(
            ("purser.scheduler.cache.bound_grants.verify", any_grant_counts),
            ("purser.core.grant.signing.verify", any_grant_counts),
        ),
    ),
    Variant(
        "a pod whose grant was removed is taken to hold nothing",
        Size(pods=1, gpus=1, faults=1, kinds=frozenset({"deface"})),
        schedulers=_schedulers(CredulousMachine),
    ),
    Variant(
        "a Binding without an answer is taken to have failed",
        Size(gpus=1, faults=1, kinds=frozenset({"net"})),
        schedulers=_schedulers(HastyMachine),
    ),
    Variant(
        "the agent takes the scheduler's word that there is room",
        Size(gpus=1, schedulers=2, faults=1, kinds=frozenset({"lease"})),
        agents=ObedientAgents,
    ),
    Variant(
        "PreStartContainer is not asked",
        Size(faults=2, kinds=frozenset({"ids"})),
        agents=TrustingAgents,
    ),
)
