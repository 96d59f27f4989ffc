"""The fleet after some steps of a plan: each is decided as the scheduler would, and can be taken back."""

from collections.abc import Iterable, Sequence
from itertools import compress

import msgspec

from purser.core.fleet import FreeResources
from purser.core.model import Grant, GrantState, NodeInventory
from purser.core.placement import Evaluation, Evaluator, Refusal, best, to_grant
from purser.core.planning.model import LOST_POD_PRICE, MOVED_POD_PRICE, WAITING_POD_PRICE, Occupancy, PlanStep, Room
from purser.core.pod.requests import EffectiveRequests


class _UndoRecord(msgspec.Struct, frozen=True):
    """What a step changed."""

    step: PlanStep
    grant: Grant
    state: GrantState
    free: tuple[tuple[str, FreeResources], ...]
    """Nodes as they were, the last change first."""
    landed: Grant | None


class Rehearsal:
    """Evicts pods from a fleet whose rooms are cordoned; `close` leaves the fleet as it was.

    Of a pod whose eviction lands nowhere nothing is left: it waits, and asks nobody to leave.
    """

    def __init__(self, occupancy: Occupancy, evaluator: Evaluator) -> None:
        self._occupancy = occupancy
        self._fleet = occupancy.fleet
        self._evaluator = evaluator
        self._names = self._fleet.names()
        self._done: list[_UndoRecord] = []
        self._inventories: dict[str, NodeInventory] = {}
        self._down: dict[str, int] = {}
        """By budget, how many of its pods wait."""
        self._known: dict[PlanStep, Grant | None] = {}
        """What each step's replacement was given."""
        self.decisions = 0
        """How many times the scheduler's decision was asked for."""

    def close(self) -> None:
        """Take everything back."""
        self.restore_state((), ())

    def restore_state(self, rooms: Iterable[Room], steps: Sequence[PlanStep]) -> None:
        """The fleet with these rooms cordoned, after these steps of an earlier `evict` from the same rooms."""
        self._cordon(rooms)
        known = list(steps)
        while [before.step for before in self._done] != known[: len(self._done)]:
            self._undo()
        for step in known[len(self._done) :]:
            self._replay_step(step)

    def evict(self, uid: str) -> PlanStep | None:
        """Evict a pod and place its replacement; None where its budget lets nobody go. The fleet is as after it."""
        pod = self._occupancy.pods[uid]
        if pod.budget and self._occupancy.allowed.get(pod.budget, 0) - self._down.get(pod.budget, 0) < 1:
            return None
        grant, state = self._release_grant(uid)
        asked = pod.request
        free = [(grant.node, self._fleet.free_resources(grant.node))]
        self._give(grant.node, asked.cpu_milli, asked.memory_mib, -1)
        landed = self._place(uid) if pod.returns else None
        price = LOST_POD_PRICE if not pod.returns else WAITING_POD_PRICE if landed is None else MOVED_POD_PRICE
        to, to_gpus = ("", ()) if landed is None else (landed.node, _gpus(landed))
        step = PlanStep(uid, asked.key, grant.node, _gpus(grant), price, to, to_gpus, pod.returns)
        self._place_replacement(_UndoRecord(step, grant, state, tuple(free), landed))
        return step

    def has_place(self, uid: str) -> bool:
        """Whether another pod like this one would find a place now."""
        return self._place(uid) is not None

    def holders(self, rooms: Iterable[Room]) -> set[str]:
        """The uids of the pods that still hold something of these rooms."""
        ledger = self._fleet.ledger
        return {
            grant.pod_uid
            for room in rooms
            for grant in ledger.grants(room.node)
            if not ledger.held(grant.pod_uid).keys().isdisjoint(room.uuids)
        }

    # --- placing

    def _place(self, uid: str) -> Grant | None:
        pod = self._occupancy.pods[uid]
        self.decisions += 1
        found = self._evaluator.evaluate(pod.request, self._names)
        suits = [pod.nodes is None or name in pod.nodes for name in found.fits]
        kept = [good and self._has_room(name, uid) for name, good in zip(found.fits, suits, strict=True)]
        name = best(Evaluation(list(compress(found.fits, kept)), found.scores[kept], {}))
        node = None if name is None else self._fleet.node(name)
        if name is None or node is None:
            return None
        placed = self._evaluator.place(name, pod.request)
        return None if isinstance(placed, Refusal) else to_grant(placed, pod.request, node.inventory)

    def _has_room(self, name: str, uid: str) -> bool:
        """Of CPU, memory and pods, which kube-scheduler counts."""
        free, asked = self._fleet.free_resources(name), self._occupancy.pods[uid].request
        enough = free.cpu_free_milli >= asked.cpu_milli and free.memory_free_mib >= asked.memory_mib
        return enough and free.pods_free >= 1

    # --- changing and taking back

    def _cordon(self, rooms: Iterable[Room]) -> None:
        wanted = {room.node: room.uuids for room in rooms}
        if any(self._newly_cordoned(name) != wanted.get(name) for name in wanted.keys() | self._inventories.keys()):
            while self._done:
                self._undo()
        for name in [name for name in self._inventories if name not in wanted]:
            self._fleet.set_inventory(self._inventories.pop(name))
        for name, uuids in wanted.items():
            if self._newly_cordoned(name) != uuids:
                node = self._fleet.node(name)
                assert node is not None, "GPUs can be freed only on nodes of the fleet"
                before = self._inventories.setdefault(name, node.inventory)
                self._fleet.set_inventory(msgspec.structs.replace(before, cordoned=(*before.cordoned, *uuids)))

    def _newly_cordoned(self, name: str) -> tuple[str, ...] | None:
        before, node = self._inventories.get(name), self._fleet.node(name)
        return None if before is None or node is None else node.inventory.cordoned[len(before.cordoned) :]

    def _replay_step(self, step: PlanStep) -> None:
        known = self._known[step]
        grant, state = self._release_grant(step.uid)
        asked = self._occupancy.pods[step.uid].request
        free = ((grant.node, self._fleet.free_resources(grant.node)),)
        self._give(grant.node, asked.cpu_milli, asked.memory_mib, -1)
        self._place_replacement(_UndoRecord(step, grant, state, free, known))

    def _place_replacement(self, before: _UndoRecord) -> None:
        """The replacement takes its place."""
        landed, pod = before.landed, self._occupancy.pods[before.step.uid]
        if landed is not None:
            asked = pod.request
            before = msgspec.structs.replace(
                before, free=((landed.node, self._fleet.free_resources(landed.node)), *before.free)
            )
            self._give(landed.node, asked.cpu_milli, asked.memory_mib, 1)
            self._fleet.ledger.adopt(landed)
        elif pod.budget:
            self._down[pod.budget] = self._down.get(pod.budget, 0) + 1
        self._known[before.step] = landed
        self._done.append(before)

    def _undo(self) -> None:
        before = self._done.pop()
        pod = self._occupancy.pods[before.step.uid]
        if before.landed is not None:
            self._fleet.ledger.release(before.step.uid)
        elif pod.budget:
            self._down[pod.budget] -= 1
        self._fleet.ledger.adopt(before.grant, before.state)
        for name, free in before.free:
            self._fleet.set_free_resources(name, free)

    def _release_grant(self, uid: str) -> tuple[Grant, GrantState]:
        ledger = self._fleet.ledger
        state, grant = ledger.state(uid), ledger.release(uid)
        assert grant is not None and state is not None, "only pods with grants can be evicted"
        return grant, state

    def _give(self, name: str, cpu_milli: int, memory_mib: int, pods: int) -> None:
        """A pod comes (1) or goes (-1)."""
        taken = EffectiveRequests(pods * cpu_milli, pods * memory_mib)
        self._fleet.set_free_resources(name, self._fleet.free_resources(name).less(taken, pods))


def _gpus(grant: Grant) -> tuple[str, ...]:
    return tuple(dict.fromkeys(uuid for part in grant.containers for uuid in part.uuids))
