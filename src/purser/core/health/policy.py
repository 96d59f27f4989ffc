"""Which Xids count: NVIDIA's catalogue, and over it the variables of NVIDIA's device plugin and DRA driver. Pure."""

import re
from collections.abc import Mapping

import msgspec

from purser.core.health.catalogue import Action, action_of
from purser.core.health.state import HealthState, after_action

DISABLE_VARIABLE = "DP_DISABLE_HEALTHCHECKS"
"""``all``, anything with ``xids`` in it, or a comma list of Xids: not to be watched."""

ENABLE_VARIABLE = "DP_ENABLE_HEALTHCHECKS"
"""The same words: to be watched, whatever the other variable and the catalogue say."""

IGNORE_VARIABLE = "ADDITIONAL_XIDS_TO_IGNORE"
"""That of NVIDIA's DRA driver, a comma list of Xids: as if `DISABLE_VARIABLE` named them."""


class XidPolicy(msgspec.Struct, frozen=True):
    """Which Xids make a GPU unhealthy.

    The most particular word wins: an Xid named in the enabled list, then one named in the disabled list, then
    "all enabled", then "all disabled", then the catalogue. So ``disable=all`` with ``enable=79`` watches 79 alone,
    which is what NVIDIA's device plugin documents and does not do.
    """

    all_disabled: bool = False
    disabled: frozenset[int] = frozenset()
    all_enabled: bool = False
    enabled: frozenset[int] = frozenset()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "XidPolicy":
        """The policy that these variables ask for; malformed entries in them count for nothing."""
        all_disabled, disabled = _parse(environment.get(DISABLE_VARIABLE, ""))
        all_enabled, enabled = _parse(environment.get(ENABLE_VARIABLE, ""))
        _, ignored = _parse(environment.get(IGNORE_VARIABLE, ""))
        return cls(all_disabled=all_disabled, disabled=disabled | ignored, all_enabled=all_enabled, enabled=enabled)

    def state_after(self, xid: int) -> HealthState:
        """What an Xid makes of a healthy GPU. One that was enabled against the catalogue makes it suspect."""
        state = after_action(action_of(xid))
        match self._chosen(xid):
            case False:
                return HealthState.HEALTHY
            case True if state.takes_pods:
                return HealthState.SUSPECT
        return state

    def concerns_programs(self, xid: int) -> bool:
        """Whether an Xid is an error of programs: the GPU stays healthy, and the pods that run on it get an event."""
        return action_of(xid) is Action.RESTART_APP and self._chosen(xid) is None

    def _chosen(self, xid: int) -> bool | None:
        """Whether people want it watched; None where they did not say."""
        if xid in self.enabled:
            return True
        if xid in self.disabled:
            return False
        if self.all_enabled or self.all_disabled:
            return self.all_enabled
        return None


def _parse(text: str) -> tuple[bool, frozenset[int]]:
    words = {word.strip() for word in text.lower().split(",")}
    is_all = "all" in words or any("xids" in word for word in words)
    return is_all, frozenset(int(word) for word in words if re.fullmatch(r"[0-9]{1,9}", word))
