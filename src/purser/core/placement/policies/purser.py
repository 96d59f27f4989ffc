"""Purser's own policy, the default: FGD's measure of what is lost, and a plan of what the fleet is going to hold.

FGD looks at the next pod on one node. That is blind to four things that only the mix as a whole shows, and that this
policy adds, each as a table that `plan` makes once in a while, in a scheduler before a decision needs it:

1. Shares fill GPUs in patterns (`slices`): a share goes where it breaks none. Before all else.
2. Nodes are kept whole for pods that need whole ones (`reserve`), as long as there is room elsewhere.
3. CPU runs out before GPUs do (`kernels`): GPUs beyond what the node's CPU is enough for count as lost, and so does
   CPU that no pod can use, at its price in GPUs, for pods that want nothing else.
4. Models that some pods retry_until_accepted on are not for pods that could use others (`scarcity`).

What remains is FGD: the loss is a score in integers. Between equal scores, and on few nodes before that, the tightest
fit decides (`tightness_bonus`), then the first node: either fills nodes up.

Without any mix it is best fit. Everything but the tables depends on the node and the pod alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from purser.core.fleet.arrays import FleetArrays
from purser.core.model import WHOLE_MILLI
from purser.core.placement import kernels
from purser.core.placement.kernels.arguments import Floats, Ints, MixTables, Prices
from purser.core.placement.kernels.plain import MIN_UNCOUNTED_CPU_MILLI
from purser.core.placement.mix import MixSource
from purser.core.placement.policies.best_fit import BEST_FIT_GPUS, BestFitNodes
from purser.core.placement.policies.fragmentation import STEPS
from purser.core.placement.policies.pair import NodeAndGpuPolicy
from purser.core.placement.policies.plan import PricePlan, plan
from purser.core.placement.policies.pros_and_cons import pros_and_cons
from purser.core.placement.policies.protocol import Gpus
from purser.core.placement.policies.reserve import NO_RESERVE
from purser.core.placement.policies.scale import MAX_CPU_MILLI, MAX_GPU_MILLI
from purser.core.placement.policies.scarcity import penalties
from purser.core.placement.policies.topology import TopologyGpus
from purser.core.placement.shape import PodShape, View
from purser.recent import Recent

_POLICY_WITHOUT_MIX = NodeAndGpuPolicy(BestFitNodes(), BEST_FIT_GPUS)
_MULTI_GPU_POLICY = TopologyGpus()
_MAX_SHAPES = 4096
"""Of which is known what they pay."""
_CHANGE_DIVISOR = 64
"""The plan is recomputed when the number of nodes has changed by more than one in this many."""


_TIE_BREAK_WEIGHT = 0.9
"""Less than a step of a score."""

_SMALL_FLEET_WEIGHT = 500.0
"""Of a score, over the number of nodes: as much as all else on five nodes, and nothing on 500. Over drawn fleets of 1
to 20 nodes pods wait 4 percent less (in GPU-hours) than without it, and as much is placed. On the 1213 nodes of openb a
weight of 10 would cost gpuspec33 2 points, and one of 30 nearly 5."""
_KEPT_TIER = 1e6
KEPT_NODE_SCORE = -_KEPT_TIER / 2
"""Nodes with lower scores are kept for other pods."""
_UNFIT_PENALTY = 1e15
"""Below all scores of rows that fit; those of others are infinitely low, with which one cannot reckon."""
_WEIGHT_PER_CPU = 5
"""A kept node is worth the more, the more CPU it is kept for; see `adjust`."""


class Planner:
    """Knows the plan for one fleet, and makes it again where the mix is another one or the nodes are. The policies of a
    fleet share it.
    """

    def __init__(self, source: MixSource) -> None:
        self.source = source
        self.is_used = False
        """Whether any policy looks things up in the plan."""
        self.on_plan: Callable[[], None] = lambda: None
        """Called before a plan is made, of the fleet and the mix as they are."""
        self._plan: PricePlan | None = None
        self._plans = 0
        self._fleet: FleetArrays | None = None
        self._mix_epoch = -1

    @property
    def epoch(self) -> int:
        """See `Steady.epoch`."""
        return self.source.epoch + self._plans

    def plan_for(self, fleet: FleetArrays) -> PricePlan:
        """The plan as it should now be: made again where it is outdated, in some milliseconds."""
        fits = self._plan is not None and self._is_up_to_date(self._plan, fleet)
        if self._plan is None or not fits or self._mix_epoch != self.source.epoch:
            self._plans += not fits  # where the mix is another, its own epoch says so
            self.on_plan()
            self._plan = plan(fleet, self.source.mix)
            self._fleet, self._mix_epoch = fleet, self.source.epoch
        return self._plan

    def forget(self) -> None:
        """Make it again when it is needed next, up to date or not."""
        self._plan = None

    def plan_ahead(self, fleet: FleetArrays) -> None:
        """Make it now where a policy uses it and it is not up to date, so that no decision waits for it."""
        if self.is_used and self.source.mix.typical:
            self.plan_for(fleet)

    def _is_up_to_date(self, made: PricePlan, fleet: FleetArrays) -> bool:
        """Whether the plan is for the models and, but for a few, the nodes that there are."""
        return (
            fleet is self._fleet
            and len(made.kept) == len(fleet.live)
            and made.fleet_models is fleet.models
            and abs(len(fleet) - made.nodes) * _CHANGE_DIVISOR <= made.nodes
        )


class Purser:
    """A policy that chooses the node for the sake of the GPU."""

    steady = True

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        planner.is_used = True
        self._made: PricePlan | None = None
        """That of which the following are."""
        self._lost = (_LossCache(), _LossCache())
        """For pods without GPUs, and with some."""
        self._penalties: Recent[PodShape, Floats] = Recent(_MAX_SHAPES)

    @property
    def epoch(self) -> int:
        """See `Steady.epoch`."""
        return self._planner.epoch

    def rate(self, view: View) -> tuple[Floats, Gpus]:
        """See `ArrayPolicy.rate`."""
        if not self._planner.source.mix.typical:
            return _POLICY_WITHOUT_MIX.rate(view)
        made = self._current_plan(view.fleet)
        prices, penalty = self._prices_and_penalty(made, view.shape)
        lost = self._lost[view.shape.gpu_count > 0].of_rows(view.fleet, made.mix, prices)
        before = lost[view.rows] - penalty[view.model]
        scores, gpus = kernels.used.loss_scores(
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
        scores = scores + tightness_bonus(view, made.nodes)
        added = adjust(view, kept_cpu(made, view.fleet))
        return (scores if added is None else scores + added), gpus

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`: in the order of `rate`, squeezed; where a pattern of shares would be broken, or
        a node that is kept whole, it is near 0.
        """
        scores = np.maximum(self.rate(view)[0], -_UNFIT_PENALTY)
        found: Floats = 50 + 50 * scores / (np.abs(scores) + 100)
        return found

    def first(self, view: View) -> Gpus:
        """See `ArrayGpuPolicy.first`."""
        return self.rate(view)[1]

    def choose(self, view: View) -> tuple[int, ...]:
        """See `ArrayPolicy.choose`. Several GPUs are well connected; without known links those with the least left."""
        if view.shape.gpu_count == 1:
            return (int(self.rate(view)[1][0]),)
        return _MULTI_GPU_POLICY.choose(view)

    def why(self, view: View, gpus: tuple[int, ...]) -> str:
        """See `ArrayPolicy.why`."""
        if not self._planner.source.mix.typical:
            return "tightest fit, because no other pods are known yet"
        made = self._current_plan(view.fleet)
        prices, penalty = self._prices_and_penalty(made, view.shape)
        return pros_and_cons(made, prices, penalty, adjust(view, kept_cpu(made, view.fleet)), view, gpus)

    def _current_plan(self, fleet: FleetArrays) -> PricePlan:
        """The plan; what was derived of another one is forgotten."""
        made = self._planner.plan_for(fleet)
        if made is not self._made:
            self._made, self._lost = made, (_LossCache(), _LossCache())
            self._penalties.clear()
        return made

    def _prices_and_penalty(self, made: PricePlan, shape: PodShape) -> tuple[Prices, Floats]:
        """By what pods of this shape are placed, and what they pay for scarce models."""
        prices = made.prices_with_gpus if shape.gpu_count else made.prices
        return prices, self._penalties.recall(shape, lambda: penalties(shape, made.models, made.gpus, made.scarce))


class _LossCache:
    """By row, what is lost now; recomputed for rows that changed."""

    def __init__(self) -> None:
        self._lost: Floats = np.zeros(0)
        self._as_of = 0

    def of_rows(self, fleet: FleetArrays, mix: MixTables, prices: Prices) -> Floats:
        """All of them; mix and prices are always the same."""
        if not len(self._lost):
            self._lost = np.zeros(len(fleet.live))
        if self._as_of < fleet.clock:
            rows = (fleet.changed_at > self._as_of).nonzero()[0]
            left = fleet.left_milli.take(rows, axis=1).astype(np.int64)
            model = fleet.node_model[rows].astype(np.int64)
            self._lost[rows] = kernels.used.losses(left, fleet.cpu_free_milli[rows], model, mix, prices)
            self._as_of = fleet.clock
        return self._lost


def tightness_bonus(view: View, nodes: int) -> Floats:
    """What to add to the scores of rows in a fleet of so many nodes. Shares keep to their patterns, and CPU is not what
    nodes are kept free for: there it only decides between equals.
    """
    demand, count = view.demand, view.shape.gpu_count
    cpu = view.cpu_free_milli - view.shape.cpu_milli
    cpu_part = np.where(cpu >= MIN_UNCOUNTED_CPU_MILLI, 0.0, np.minimum(cpu / MAX_CPU_MILLI, 1.0))
    gpu_part = np.minimum((view.idle - demand) / MAX_GPU_MILLI, 1.0)
    is_whole = (demand == WHOLE_MILLI * count) & (count > 0)
    weight = np.where(is_whole, max(_SMALL_FLEET_WEIGHT / max(nodes, 1), _TIE_BREAK_WEIGHT), _TIE_BREAK_WEIGHT)
    found: Floats = weight * (1.0 - (cpu_part + gpu_part) / 2)
    return found


def kept_cpu(made: PricePlan, fleet: FleetArrays) -> Ints:
    """By row, what the plan keeps; nothing of a row to which another node has come since."""
    if fleet.last_came_at <= made.clock and len(made.kept) == len(fleet.live):
        return made.kept
    kept = np.full(len(fleet.live), NO_RESERVE, np.int64)
    kept[: len(made.kept)] = made.kept
    found: Ints = np.where(fleet.came_at <= made.clock, kept, NO_RESERVE)
    return found


def adjust(view: View, kept: Ints) -> "np.ndarray[Any, np.dtype[np.float64]] | None":
    """What to add to the scores of rows, None for nothing.

    A kept node that is whole comes after all others for a pod that would break it: its GPUs, or the CPU beside them. A
    pod that takes a node whole goes first to one kept for its like, and last to one kept for more than a quarter more
    CPU than it wants.
    """
    needs = kept[view.rows]
    if (needs == NO_RESERVE).all():
        return None
    gpus, cpu, shape = view.fleet.gpu_count[view.rows], view.cpu_free_milli, view.shape
    whole = (needs != NO_RESERVE) & (cpu >= needs) & (view.idle == WHOLE_MILLI * gpus.astype(np.int64))
    if not shape.gpu_count:
        return np.where(whole & (cpu - shape.cpu_milli < needs), -_KEPT_TIER - _WEIGHT_PER_CPU * needs, 0.0)
    mine = whole & (gpus == shape.gpu_count)
    suits = np.where(4 * needs <= 5 * shape.cpu_milli, _KEPT_TIER, -_KEPT_TIER)
    added = np.where(whole & ~mine, -_KEPT_TIER - _WEIGHT_PER_CPU * needs, 0.0)
    return np.where(mine & (needs >= shape.cpu_milli), suits, added)
