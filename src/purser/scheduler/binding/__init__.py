"""A pod and its grant, written in one Binding.

- `Binder` (``binder``): decide once more, reserve, sign, post.
- `HamiPods` (``hami_pods``): pods that HAMi's scheduler placed on nodes of Purser's agents get a grant.
- ``unsettled``: what became of a Binding whose answer was lost.
- `DoubleGrants` (``double_grants``): what a change of leaders granted twice is taken off the later pod.
"""

from purser.scheduler.binding.binder import RESOLVE_PERIOD_S, Binder, BindError
from purser.scheduler.binding.double_grants import DoubleGrants
from purser.scheduler.binding.hami_pods import HamiPods

__all__ = [
    "RESOLVE_PERIOD_S",
    "BindError",
    "Binder",
    "DoubleGrants",
    "HamiPods",
]
