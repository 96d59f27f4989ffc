"""A node from its start through some pods, each one predicted and then enforced."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from purser.core.model import GpuPolicy, PodRequest
from purser.core.placement import Placement, Reason, Refusal, place, to_grant
from purser.core.policy.settings import PolicySettings

from .agent import Coming
from .matrix import Enforced, Predicted
from .node import LiveNode
from .pods import requesting_pod
from .search import any_grant, keeps_all_promises

PODS = 10
"""That come to one node."""

MOST_ORDERED = 2
"""Pods on their way among which all orders are tried."""

_POLICIES = (
    PolicySettings(),
    PolicySettings(gpu=(GpuPolicy.BINPACK,)),
    PolicySettings(gpu=(GpuPolicy.SPREAD,)),
    PolicySettings(gpu=(GpuPolicy.NUMA,)),
    PolicySettings(gpu=(GpuPolicy.TOPOLOGY_AWARE,)),
)

Cell = tuple[Predicted, Enforced]


class Mistake(NamedTuple):
    """A prediction that did not come true."""

    cell: Cell
    what: str


class Trial:
    """One node."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._rng = Random(seed)
        self.live = LiveNode(self._rng)
        self._policy = self._rng.choice(_POLICIES)
        self.cells: Counter[Cell] = Counter()
        self.mistakes: list[Mistake] = []
        self.wrong_cards = False
        """Grant other cards than were chosen for kubelet: as if nothing were known of it."""

    def run(self) -> None:
        """All its pods."""
        for _ in range(PODS):
            for coming in self.live.pass_time():
                self._note((Predicted.FITS, Enforced.REFUSED), f"{coming.uid} was refused when its turn came")
            self.predict(self.next_request())

    def next_request(self) -> PodRequest:
        """The pod that comes next."""
        return requesting_pod(self._rng, self.live.next_uid(), self.live.wishes)

    def predict(self, request: PodRequest) -> None:
        """One prediction, held against what kubelet does; one that fits is bound as often as not."""
        known = self.live.known
        verdict = place(replace(known, kubelet=None) if self.wrong_cards else known, request, self._policy)
        if isinstance(verdict, Refusal):
            self._refused(request, verdict)
            return
        self._fits(request, verdict)
        if self._rng.random() < 0.7:
            self.live.bind(request, verdict)

    def _fits(self, request: PodRequest, placement: Placement) -> None:
        assert request.kubelet_pod is not None
        new = Coming(request.kubelet_pod, to_grant(placement, request, self.live.inventory))
        bound = [*self.live.coming, new]
        kept = all(keeps_all_promises(self.live, order, new) for order in self._orders(bound))
        cell = Predicted.FITS, Enforced.ADMITTED if kept else Enforced.REFUSED
        self._note(cell, "" if kept else f"{new} with {self.live.coming} before it")

    def _orders(self, bound: list[Coming]) -> Iterator[list[Coming]]:
        yield bound
        if len(bound) > 1:
            yield self._rng.sample(bound, len(bound))

    def _refused(self, request: PodRequest, refusal: Refusal) -> None:
        row = _row(refusal)
        if len(self.live.coming) > MOST_ORDERED:
            self._note((row, Enforced.UNTRIED), "")
            return
        grant = any_grant(self.live, request, self._policy)
        what = "" if grant is None else f"{request} would have been taken with {grant}, but: {refusal.message}"
        self._note((row, Enforced.REFUSED if grant is None else Enforced.ADMITTED), what)

    def _note(self, cell: Cell, what: str) -> None:
        self.cells[cell] += 1
        if what:
            self.mistakes.append(Mistake(cell, f"node {self.seed}, prediction {self.cells.total()}: {what}"))


def _row(refusal: Refusal) -> Predicted:
    by_reason = {Reason.KUBELET_WOULD_REJECT: Predicted.REFUSED, Reason.KUBELET_ADMISSION_PENDING: Predicted.BUSY}
    return by_reason.get(refusal.counts[0][0], Predicted.NO_ROOM)
