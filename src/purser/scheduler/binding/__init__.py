"""A pod and its grant, written in one Binding.

- `Binder` (``binder``): decide once more, reserve, sign, post.
- `HamiPods` (``hami_pods``): pods that HAMi's scheduler placed on nodes of Purser's agents get a grant.
- `ServedPods` (``served_pods``): pods that other schedulers, such as Volcano's, place themselves get one as well; what
  both have in common is ``late_grants``.
- ``unsettled``: what became of a Binding whose answer was lost.
- `DoubleGrants` (``double_grants``): what a change of leaders granted twice is taken off the later pod.
"""

from purser.scheduler.binding.binder import RESOLVE_PERIOD_S, Binder, BindError
from purser.scheduler.binding.double_grants import DoubleGrants
from purser.scheduler.binding.hami_pods import HamiPods
from purser.scheduler.binding.served_pods import ServedPods

__all__ = [
    "RESOLVE_PERIOD_S",
    "BindError",
    "Binder",
    "DoubleGrants",
    "HamiPods",
    "ServedPods",
]
