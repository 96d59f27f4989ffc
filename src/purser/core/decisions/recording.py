"""Notes of a scheduler's decisions, with what changed of the fleet in between.

The fleet's changes are not listened to: before a decision is noted, the nodes that changed since the last one are. So
nothing is missed, whoever changed it. A request waits for this, so that all that can be done later is left to
`purser.core.decisions.transcript`: comparing, counting, encoding.
"""

from purser import __version__
from purser.core.decisions.notes import ChangesNote, DecisionInputs, JudgedNote, NodeNote, Note, PlacedNote
from purser.core.decisions.records import LOG_FORMAT, ModelsKnown, Moment, PlanMade, PodBound, PodGone, SchedulingStart
from purser.core.fleet import Fleet
from purser.core.fleet.kubelet_snapshot import KubeletPods
from purser.core.placement import Evaluation, Evaluator, Placement, Refusal
from purser.core.placement.mix import Mix, MixSource

_NO_PODS = KubeletPods()


class Recording:
    """One file's notes. It ends with the file: the next one begins from nothing."""

    def __init__(self, fleet: Fleet, evaluator: Evaluator, mix: MixSource) -> None:
        self._fleet, self._evaluator, self._mix = fleet, evaluator, mix
        self._as_of = 0
        self._noted_mix: Mix | None = None
        self._there: set[str] = set()
        """Nodes that were noted and are not known to have gone."""
        self._names: tuple[str, ...] = ()
        self._moves = -1

    def start(self, at: float, one_in: int = 1, *, is_anonymous: bool = False) -> list[Note]:
        """The first of a file: all that decisions depend on. A plan that was made before counts no more."""
        self._evaluator.planner.forget()
        start = SchedulingStart(LOG_FORMAT, __version__, self._evaluator.policy, at, one_in, is_anonymous)
        return [start, ModelsKnown(self._evaluator.arrays.models), *self.changes(at)]

    def changes(self, at: float) -> list[Note]:
        """What may be different from what was noted last; empty: nothing."""
        return self._take_changes(at, is_moment=False)

    def planned(self, at: float) -> list[Note]:
        """A plan is made now."""
        return [*self.changes(at), PlanMade()]

    def bound(self, at: float, uid: str) -> list[Note]:
        """The API server has a pod's Binding."""
        return [*self._take_changes(at, is_moment=True), PodBound(uid)]

    def gone(self, at: float, uid: str) -> list[Note]:
        """A pod that was not bound waits no more."""
        return [*self._take_changes(at, is_moment=True), PodGone(uid)]

    def judged(self, at: float, asked: DecisionInputs, found: Evaluation, verb: str) -> list[Note]:
        """A pod was judged on nodes just now."""
        notes, arrays = self._take_changes(at, is_moment=True), self._evaluator.arrays
        if self._moves != arrays.moves:
            self._moves, self._names = arrays.moves, tuple(arrays.names)
        refusals = {} if found.fits else found.refusals
        row_fields = (self._names, arrays.order, found.asked, found.rows, found.scores)
        notes.append(JudgedNote(asked, verb, *row_fields, refusals, arrays.clock))
        return notes

    def placed(
        self, at: float, asked: DecisionInputs, node: str, found: Placement | Refusal, *, is_early: bool = False
    ) -> list[Note]:
        """A pod was given devices of a node just now, or found not to fit."""
        notes = self._take_changes(at, is_moment=True)
        notes.append(PlacedNote(asked, node, found, self._evaluator.arrays.clock, is_early))
        return notes

    def _take_changes(self, at: float, *, is_moment: bool) -> list[Note]:
        changes, mix = self._fleet.changes_since(self._as_of), self._mix.mix
        if changes.now == self._as_of and mix is self._noted_mix:
            return [Moment(at)] if is_moment else []
        self._as_of, self._noted_mix = changes.now, mix
        gone = [name for name in self._there if self._fleet.node(name) is None] if changes.has_removed_nodes else []
        self._there.difference_update(gone)
        self._there.update(changes.names)
        return [ChangesNote(at, is_moment, tuple(map(self._node, changes.names)), tuple(gone), mix)]

    def _node(self, name: str) -> NodeNote:
        fleet = self._fleet
        state, report = fleet.node(name), fleet.kubelet_report(name)
        assert state is not None, "each changed node is still in the fleet"
        pods = _NO_PODS if report is None else fleet.kubelet_pods(name)
        free, disputes, grants = fleet.free_resources(name), fleet.disputes(name), fleet.ledger.progress(name)
        return NodeNote(name, state.inventory, free, disputes, grants, report, pods)
