"""What must hold in every state; and where everybody has heard of everything."""

from collections import Counter
from collections.abc import Iterator

from purser.core.device.ids import uuid_of
from purser.core.model import Grant, GrantState
from tests.model.cluster import Binding, NodeState, Objects, Rule, SchedulerState, Size, State, View
from tests.model.parts import GPU_MIB, SHARE_MIB, Listed, is_live
from tests.model.world import World


def rules(world: World) -> Iterator[Rule]:
    """All of them."""
    yield from (Rule((name, "objects"), _of_node) for name in world.node_names)
    for name in world.scheduler_names:
        yield Rule((name, "objects"), _Scheduler(world).counts)
    if _is_alone(world.size):
        yield Rule(("objects",), _granted)
    for name in world.scheduler_names:
        yield from _at_rest(world, name)
    yield from (Rule((name, "objects"), _Agent(world).at_rest) for name in world.node_names)


def broken(world: World, state: State) -> str:
    """The first thing that does not hold; empty where all does."""
    for rule in rules(world):
        if all(world.read(state, each) for each in rule.when):
            for problem in rule.problems(*(world.read(state, each) for each in rule.reads)):
                return problem
    return ""


def _of_node(node: NodeState, objects: Objects) -> Iterator[str]:
    taken: Counter[str] = Counter()
    for each in node.listed:
        if not each.started:
            continue
        truth, now = objects.truth(each.uid), objects.pod(each.name)
        if now is not None and now.uid != each.uid and _is_of(objects.truth(now.uid), each):
            pass  # kubelet's list has names alone: the pod ends once kubelet hears that it was replaced
        elif truth is None:
            yield f"{each.uid} was started without a grant"
        elif not _is_of(truth, each):
            yield f"{each.uid} was started with {each.gpu} (id {each.id}), its grant is of {', '.join(truth.uuids)}"
        taken[each.gpu] += SHARE_MIB
    for held, _ in node.memory.book:
        if held != objects.truth(held.pod_uid):
            yield f"an agent's book has a grant for {held.pod_uid} that was never made"
    for gpu, amount in taken.items():
        if amount > GPU_MIB:
            yield f"started containers hold {amount} of {GPU_MIB} MiB of {gpu}"


def _is_alone(size: Size) -> bool:
    """Two of the faults together hide a grant from its scheduler: no answer came, and a user removed the grant."""
    hides = size.faults > 1 and size.allows("net") and size.allows("deface")
    return size.schedulers == 1 and not size.allows("scheduler") and not hides


def _granted(objects: Objects) -> Iterator[str]:
    """A scheduler by itself never grants too much, whatever becomes of its Bindings. Two of them may, and one that
    restarts while a Binding is on its way: agents refuse what is too much."""
    truths = (objects.truth(each.uid) for each in objects.pods if is_live(each))
    granted = Counter(gpu for truth in truths if truth is not None for gpu in truth.uuids)
    for gpu, count in granted.items():
        if count * SHARE_MIB > GPU_MIB:
            yield f"{gpu} was granted to {count} pods that do not fit on it"


class _Scheduler:
    def __init__(self, world: World) -> None:
        self._known = world.schedulers.known

    def counts(self, me: SchedulerState, objects: Objects) -> Iterator[str]:
        for held, progress in self._known[me.known].grants if me.known >= 0 else ():
            if progress is not GrantState.RESERVED and held != objects.truth(held.pod_uid):
                yield f"{me.name} counts a grant for {held.pod_uid} that was never made"

    def is_at_rest(self, me: SchedulerState, objects: Objects) -> bool:
        if me.known < 0:
            return False
        known = self._known[me.known]
        return known.heard == objects.pods and not known.unsettled

    def at_rest(self, me: SchedulerState, objects: Objects) -> Iterator[str]:
        counted = {held.pod_uid for held, _ in self._known[me.known].grants}
        live = {each.uid for each in objects.pods if is_live(each)}
        if counted - live:
            yield f"{me.name} has heard of everything and still counts {', '.join(sorted(counted - live))}"

    def knows_of(self, me: SchedulerState, running: frozenset[Listed]) -> Iterator[str]:
        known = self._known[me.known]
        counted = {held.pod_uid for held, _ in known.grants}
        for each in sorted(running):
            if each.uid not in counted and each.gpu not in known.closed:
                yield f"{me.name} takes {each.gpu} for free, which {each.uid} holds"


def _at_rest(world: World, name: str) -> Iterator[Rule]:
    scheduler = _Scheduler(world)
    rests = View((name, "objects"), scheduler.is_at_rest)
    is_quiet = View(("net",), _is_quiet)
    yield Rule((name, "objects"), scheduler.at_rest, (is_quiet, rests))
    for node in world.node_names:
        yield Rule((name, View((node, "objects"), _running)), scheduler.knows_of, (is_quiet, rests))


def _is_quiet(net: tuple[Binding, ...]) -> bool:
    return not net


def _running(node: NodeState, objects: Objects) -> frozenset[Listed]:
    """Containers whose pods run, as far as the API server knows."""
    running = {each.uid for each in objects.pods if each.phase == "Running"}
    return frozenset(each for each in node.listed if each.started and each.uid in running)


class _Agent:
    def __init__(self, world: World) -> None:
        self._agents = world.agents

    def at_rest(self, node: NodeState, objects: Objects) -> Iterator[str]:
        here = tuple(each for each in objects.pods if each.node == node.name)
        if not node.runs or node.memory.heard != here or node.admitting:
            return
        live = {each.uid for each in objects.pods if is_live(each)}
        end_sweep = self._agents.sweep(node.name, node.memory, objects.pods)
        odd = sorted({each.grant.pod_uid for each in end_sweep.book} - live)
        if odd:
            yield f"the agent of {node.name} has heard of everything and still counts {', '.join(odd)}"


def _is_of(grant: Grant | None, each: Listed) -> bool:
    """Whether a container has what this grant gives, by kubelet's books and by its environment."""
    return grant is not None and {each.gpu} == grant.uuids == {uuid_of(each.id)}
