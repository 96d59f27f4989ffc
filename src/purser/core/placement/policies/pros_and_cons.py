"""What speaks for and against a placement, in words: the end of the event `Granted`."""

from purser.core.model import WHOLE_MILLI
from purser.core.placement.kernels import plain
from purser.core.placement.kernels.arguments import Floats, Ints, Prices
from purser.core.placement.kernels.plain import REGRET_MILLI
from purser.core.placement.policies.plan import PricePlan
from purser.core.placement.shape import View


def pros_and_cons(
    made: PricePlan, prices: Prices, penalty: Floats, reserved: Floats | None, view: View, gpus: tuple[int, ...]
) -> str:
    """A sentence on these GPUs of a node, by the tables of Purser's own policy: of a view of one row, which fits.

    ``prices`` and ``penalty`` are the pod's; ``reserved``: what kept nodes add to its score, None for nothing.
    """
    then, here = view.left.copy(), list(gpus)
    then[here] = view.after[here]
    cpu, model = view.cpu_free_milli, int(view.model[0])
    lost = [
        plain.losses(left, free, view.model, made.mix, prices)[0]
        for left, free in ((view.left, cpu), (then, cpu - view.shape.cpu_milli))
    ]
    clauses = [fragmentation_change(lost[1] - lost[0])]
    if len(gpus) == 1:
        before, after = int(view.left[gpus[0], 0]), int(view.after[gpus[0], 0])
        if after > 0:
            is_broken = _breaks_pattern(prices.values[model], before, after)
            clauses.append(f"leaves the rest of the GPU {'poorly' if is_broken else 'well'} suited to other shares")
        elif before < WHOLE_MILLI:
            clauses.append("uses all that is left of the GPU")
    if penalty[model] > 0:
        clauses.append("uses a GPU model that other pods require")
    if reserved is not None and reserved[0]:
        clauses.append(
            "uses a node that the policy keeps for this kind of pod"
            if reserved[0] > 0
            else "uses a node that the policy keeps for other kinds of pods"
        )
    return ", ".join(clauses)


def fragmentation_change(milli: float) -> str:
    """How much more, in thousandths of a GPU, is idle and of no use to the pods to expect; in words."""
    if abs(milli) < 5:
        return "leaves fragmentation unchanged"
    return f"{'raises' if milli > 0 else 'lowers'} fragmentation by {abs(milli) / 1000:.2f} GPUs"


def _breaks_pattern(worth: Ints, left: int, after: int) -> bool:
    """Whether a share loses more of a GPU's worth here than it would of an idle GPU's."""
    of_idle = int(worth[WHOLE_MILLI] - worth[WHOLE_MILLI - (left - after)])
    return int(worth[left] - worth[after]) - of_idle >= REGRET_MILLI
