"""What an agent and its kubelet do."""

from collections.abc import Iterator

from purser.core.device.ids import uuid_of
from tests.model.agent import Agents, Answer, Memory
from tests.model.cluster import Move, NodeState, Objects, Outcome, Settled, Size, is_last, told
from tests.model.parts import SLOTS, Listed, PodVersion, is_live


class MovesOfNode:
    """One node's."""

    def __init__(self, name: str, size: Size, agents: Agents) -> None:
        self._name, self._size, self._agents = name, size, agents

    def moves(self) -> Iterator[Move]:
        reads = (self._name, "objects", "faults")
        yield Move(reads, self._agent)
        yield Move(reads, self._kubelet)

    def settled(self) -> Settled:
        """The agent hears at once of what is the last of a pod."""
        return Settled(self._name, (self._name, "objects", "faults"), self._settles)

    def _settles(self, node: NodeState, objects: Objects, faults: int) -> NodeState:
        if not node.runs:
            return node
        memory, users_may_act = node.memory, self._size.users_may_act(faults)
        here = {each.name: each for each in objects.pods if each.node == self._name}
        for pod in sorted({*here, *(each.name for each in memory.heard)}):
            if pod in here and is_last(here[pod], users_may_act=users_may_act):
                memory = heard(memory, pod, here.get(pod))
        return node if memory == node.memory else node.remembers(memory)

    # --- the agent

    def _agent(self, node: NodeState, objects: Objects, faults: int) -> Iterator[Outcome]:
        name = self._name
        if not node.runs:
            memory = self._agents.start(name, node.disk, objects.pods, node.listed)
            yield f"the agent of {name} starts", {name: node.remembers(memory)._replace(runs=True)}
            return
        here = {each.name: each for each in objects.pods if each.node == name}
        for pod in sorted({*here, *(each.name for each in node.memory.heard)}):
            memory = heard(node.memory, pod, here.get(pod))
            if memory != node.memory:
                yield f"the agent of {name} hears of {pod}: {told(here.get(pod))}", {name: node.remembers(memory)}
        end_sweep = self._agents.sweep(name, node.memory, objects.pods)
        if end_sweep != node.memory:
            yield f"the agent of {name} asks which pods of its book have ended", {name: node.remembers(end_sweep)}
        if faults and self._size.allows("agent"):
            fallen, paid = node._replace(runs=False, memory=Memory()), {"faults": faults - 1}
            yield f"the agent of {name} crashes", {name: fallen, **paid}
            if node.disk:
                wiped = {name: fallen._replace(disk=()), **paid}
                yield f"the agent of {name} crashes, and its checkpoint is gone", wiped

    # --- kubelet

    def _kubelet(self, node: NodeState, objects: Objects, faults: int) -> Iterator[Outcome]:
        name = self._name
        listed = {each.uid for each in node.listed}
        for pod in objects.pods:
            if pod.node == name and pod.phase == "Pending" and pod.uid not in listed and not node.admitting:
                if any(each.name == pod.name or each.uid in pod.after for each in node.listed):
                    continue  # of the end of these kubelet hears first
                after = node._replace(listed=_with(node.listed, Listed(pod.name, pod.uid)), admitting=pod.uid)
                yield f"kubelet of {name} begins to admit {pod.name}", {name: after}
        for entry in node.listed:
            now = objects.pod(entry.name)
            if entry.uid == node.admitting:
                yield from self._admits(node, objects, faults, entry)
            elif now is None or objects.has_ended(entry):
                listed = _without(node.listed, entry)
                gone = node._replace(listed=listed, memory=node.memory.while_listed(listed))
                yield f"kubelet of {name} hears of the end of {entry.name}", {name: gone}
            elif entry.id and not entry.started:
                if node.runs:
                    yield from self._starts(node, objects, entry)
            elif now.phase == "Pending":
                phase, word = ("Failed", "failed") if entry.rejected else ("Running", "runs")
                reported = {"objects": objects.put(now._replace(phase=phase))}
                yield f"kubelet of {name} reports that {entry.name} {word}", reported
        if faults and node.admitting and self._size.allows("kubelet"):
            kept = tuple(each for each in node.listed if each.uid != node.admitting)
            forgot = node._replace(listed=kept, admitting="")
            yield f"kubelet of {name} restarts", {name: forgot, "faults": faults - 1}

    def _starts(self, node: NodeState, objects: Objects, entry: Listed) -> Iterator[Outcome]:
        for answer in self._agents.may_start(self._name, node.memory, objects.pods, node.listed, entry.id):
            entry_now = entry._replace(started=not answer.why)
            after = node.remembers(answer.after)._replace(listed=_with(_without(node.listed, entry), entry_now))
            if after != node:
                said = f"and may not: {answer.why}" if answer.why else "and it starts"
                yield f"kubelet of {self._name} asks whether {entry.name} may start, {said}", {self._name: after}

    def _admits(self, node: NodeState, objects: Objects, faults: int, entry: Listed) -> Iterator[Outcome]:
        name, others = self._name, _without(node.listed, entry)
        rejected = node._replace(listed=_with(others, entry._replace(rejected=True)), admitting="")
        free = self._free(others)
        if not node.runs or not free:
            why = "no id is free" if node.runs else "no agent answers"
            yield f"kubelet of {name} rejects {entry.name}: {why}", {name: rejected}
            return
        for chosen, pods, how in self._ways_to_ask(objects, faults, free):
            for answer in self._agents.allocate(name, node.memory, pods, node.listed, free, chosen):
                yield from self._answered(rejected, entry, answer, faults, how)

    def _free(self, others: tuple[Listed, ...]) -> tuple[str, ...]:
        taken = {each.id for each in others}
        ids = (f"{self._name}-gpu{i}::{slot}" for i in range(self._size.gpus) for slot in range(SLOTS))
        return tuple(each for each in ids if each not in taken)

    def _ways_to_ask(
        self, objects: Objects, faults: int, free: tuple[str, ...]
    ) -> Iterator[tuple[str, tuple[PodVersion, ...] | None, str]]:
        """The id that kubelet takes, empty where it takes what the agent prefers; what the API server answers."""
        yield "", objects.pods, ""
        if faults and self._size.allows("ids"):
            firsts = {uuid_of(each): each for each in reversed(free)}
            for each in sorted(firsts.values()):
                yield each, objects.pods, f", for {each} whatever the agent prefers"
        if faults and self._size.allows("away"):
            yield "", None, ", while the API server does not answer"

    def _answered(self, rejected: NodeState, entry: Listed, answer: Answer, faults: int, how: str) -> Iterator[Outcome]:
        name, asked = self._name, f"kubelet of {self._name} asks for {entry.name}{how}"
        paid = {"faults": faults - 1} if how else {}
        if not answer.gpu:
            after = rejected.remembers(answer.after)
            yield f"{asked}, and is refused: {answer.why}", {name: after, **paid}
            return
        others = tuple(each for each in rejected.listed if each.uid != entry.uid)
        given = _with(others, entry._replace(id=answer.id, gpu=answer.gpu))
        yield (
            f"{asked}, and is given {answer.gpu}",
            {name: rejected.remembers(answer.after)._replace(listed=given), **paid},
        )
        if faults and not how and self._size.allows("agent"):
            for disk, when in ((rejected.disk, "before"), (answer.after.book, "after")):
                fallen = rejected._replace(runs=False, memory=Memory(), disk=disk)
                text = f"{asked}; the agent crashes {when} it wrote its checkpoint, and kubelet rejects the pod"
                yield text, {name: fallen, "faults": faults - 1}


def heard(memory: Memory, pod: str, now: PodVersion | None) -> Memory:
    """What an agent knows once it has heard of this version of a pod."""
    before = next((each for each in memory.heard if each.name == pod), None)
    if before == now:
        return memory
    kept = [each for each in memory.heard if each.name != pod]
    known = kept if now is None else [*kept, now]
    ended = {each.uid for each in (before,) if each and (now is None or now.uid != each.uid)}
    ended |= {now.uid} if now is not None and not is_live(now) else set()
    return memory.freed(ended)._replace(heard=tuple(sorted(known, key=lambda each: each.name)))


def _with(listed: tuple[Listed, ...], entry: Listed) -> tuple[Listed, ...]:
    """kubelet lists pods by nothing in particular."""
    return tuple(sorted((*listed, entry)))


def _without(listed: tuple[Listed, ...], entry: Listed) -> tuple[Listed, ...]:
    return tuple(each for each in listed if each != entry)
