"""Purser's own policy, the default: FGD's measure of what is lost, and a plan of what the fleet is going to hold.

FGD looks at the next pod on one node. That is blind to four things that only the mix as a whole shows, and that this
policy adds, each as a table that `plan` makes once in a while:

1. Shares fill GPUs in patterns (`slices`): a share goes where it breaks none. Before all else.
2. Nodes are kept whole for pods that need whole ones (`reserve`), as long as there is room elsewhere.
3. CPU runs out before GPUs do (`loss_plain`): GPUs beyond what the node's CPU is enough for count as lost, and so does
   CPU that no pod can use, at its price in GPUs, for pods that want nothing else.
4. Models that some pods insist on are not for pods that could use others (`scarcity`).

What remains is FGD: the loss is a score in integers. Between equal scores, and on few nodes before that, the tightest
fit decides (`tightness`), then the first node: either fills nodes up.

Without any mix it is best fit. Everything but the tables depends on the node and the pod alone.
"""

from types import ModuleType

import numpy as np

from purser.core.fleet.arrays import FleetArrays
from purser.core.placement import kernels
from purser.core.placement.kernels import plain
from purser.core.placement.kernels.arguments import Floats, MixTables
from purser.core.placement.mix import MixSource
from purser.core.placement.policies import loss_plain
from purser.core.placement.policies.best_fit import BEST_FIT_GPUS, BestFitNodes
from purser.core.placement.policies.fragmentation import STEPS, fragmentation_change
from purser.core.placement.policies.pair import Pair
from purser.core.placement.policies.plan import Plan, plan
from purser.core.placement.policies.protocol import Gpus
from purser.core.placement.policies.reserve import adjust
from purser.core.placement.policies.tightness import tightness
from purser.core.placement.policies.topology import TopologyGpus
from purser.core.placement.shape import View

_UNTOLD = Pair(BestFitNodes(), BEST_FIT_GPUS)
_SEVERAL = TopologyGpus()
_CHANGE = 64
"""The plan is made anew when the number of nodes has changed by more than one of so many."""


class Purser:
    """A policy that chooses the node for the sake of the GPU."""

    steady = True

    def __init__(self, source: MixSource) -> None:
        self._source = source
        self._plan: Plan | None = None
        self._plans = 0
        self._fleet: FleetArrays | None = None
        self._nodes = 0
        self._mix_epoch = -1
        self._lost = (_Lost(), _Lost())
        """For pods without GPUs, and with some."""

    @property
    def epoch(self) -> int:
        """See `Steady.epoch`."""
        return self._source.epoch + self._plans

    def rate(self, view: View) -> tuple[Floats, Gpus]:
        """See `Policy.rate`."""
        if not self._source.mix.typical:
            return _UNTOLD.rate(view)
        made = self._current(view.fleet)
        prices = made.prices_for(view.shape)
        lost = self._lost[view.shape.gpu_count > 0].of_rows(view.fleet, made.mix, prices)
        before = lost[view.rows] - made.penalty(view.shape)[view.model]
        scores, gpus = _kernels().loss_scores(
            view.left,
            view.after,
            view.takes,
            view.fits,
            view.cpu_free_milli - view.shape.cpu_milli,
            view.model,
            before,
            view.shape.gpu_count,
            made.mix,
            prices,
            STEPS,
        )
        scores = scores + tightness(view, made.nodes)
        added = adjust(view, made.kept)
        return (scores if added is None else scores + added), gpus

    def score(self, view: View) -> Floats:
        """See `NodePolicy.score`. In its order, and within 0 to 100, so that it can be weighed against others: where a
        pattern of shares would be broken, or a node that is kept whole, it is near 0.
        """
        scores = self.rate(view)[0]
        found: Floats = 50 + 50 * scores / (np.abs(scores) + 100)
        return found

    def first(self, view: View) -> Gpus:
        """See `GpuPolicy.first`."""
        return self.rate(view)[1]

    def choose(self, view: View) -> tuple[int, ...]:
        """See `Policy.choose`. Several GPUs are well connected ones; without known links those with the least left."""
        if view.shape.gpu_count == 1:
            return (int(self.rate(view)[1][0]),)
        return _SEVERAL.choose(view)

    def why(self, view: View, gpus: tuple[int, ...]) -> str:
        """What speaks for and against these GPUs of a node, in a sentence: on a view of one row, which fits."""
        if not self._source.mix.typical:
            return "tightest fit, as no other pods are known yet"
        made = self._current(view.fleet)
        then, here = view.left.copy(), list(gpus)
        then[here] = view.after[here]
        cpu, model = view.cpu_free_milli, int(view.model[0])
        lost = [
            loss_plain.losses(left, free, view.model, made.mix, made.prices_for(view.shape))[0]
            for left, free in ((view.left, cpu), (then, cpu - view.shape.cpu_milli))
        ]
        said = [fragmentation_change(lost[1] - lost[0])]
        if len(gpus) == 1:
            broken = made.breaks_pattern(model, int(view.left[gpus[0], 0]), int(view.after[gpus[0], 0]))
            said.append(f"what is left of the GPU fits other shares{' badly' if broken else ''}")
        if made.penalty(view.shape)[model] > 0:
            said.append("uses a GPU model that other pods require")
        added = adjust(view, made.kept)
        if added is not None and added[0]:
            said.append("uses a node reserved for such pods" if added[0] > 0 else "breaks up a reserved node")
        return ", ".join(said)

    def _current(self, fleet: FleetArrays) -> Plan:
        """The plan, made anew where it is outdated."""
        fits = self._plan is not None and self._fits(self._plan, fleet)
        if self._plan is None or not fits or self._mix_epoch != self._source.epoch:
            self._plans += not fits  # where the mix is another, its own epoch says so
            self._plan = plan(fleet, self._source.mix)
            self._fleet, self._nodes, self._mix_epoch = fleet, len(fleet), self._source.epoch
            self._lost = (_Lost(), _Lost())
        return self._plan

    def _fits(self, made: Plan, fleet: FleetArrays) -> bool:
        """Whether the plan is for the models and, but for a few, the nodes that there are."""
        return (
            fleet is self._fleet
            and len(made.kept) == len(fleet.live)
            and made.fleet_models is fleet.models
            and abs(len(fleet) - self._nodes) * _CHANGE <= self._nodes
        )


class _Lost:
    """By row, what is lost now; of rows that changed it is computed anew."""

    def __init__(self) -> None:
        self._lost: Floats = np.zeros(0)
        self._as_of = 0

    def of_rows(self, fleet: FleetArrays, mix: MixTables, prices: loss_plain.Prices) -> Floats:
        """All of them; mix and prices are always the same."""
        if not len(self._lost):
            self._lost = np.zeros(len(fleet.live))
        if self._as_of < fleet.clock:
            rows = (fleet.changed_at > self._as_of).nonzero()[0]
            left = fleet.left_milli.take(rows, axis=1).astype(np.int64)
            model = fleet.node_model[rows].astype(np.int64)
            self._lost[rows] = _kernels().losses(left, fleet.cpu_free_milli[rows], model, mix, prices)
            self._as_of = fleet.clock
        return self._lost


def _kernels() -> ModuleType:
    if kernels.used is plain:
        return loss_plain
    from purser.core.placement.policies import loss_fast

    return loss_fast
