"""Taints of nodes, and the tolerations of pods: the rules of the API."""

from collections.abc import Collection, Iterable

import msgspec

REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
"""The effects that keep new pods away from a node; ``PreferNoSchedule`` does not."""


class Taint(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What keeps pods away from a node that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """As kubectl spells it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class PodToleration(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A taint that a pod puts up with."""

    key: str = ""
    """Empty: every key."""
    operator: str = ""
    """Empty: ``Equal``."""
    value: str = ""
    effect: str = ""
    """Empty: every effect."""

    def tolerates(self, taint: Taint) -> bool:
        """Whether it is about this taint. Of operators that are not known here (``Gt``) kube-scheduler judges."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator in ("", "Equal"):
            return self.key != "" and self.value == taint.value
        return self.key != "" or self.operator == "Exists"


CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""As kube-scheduler takes a cordon: pods may put up with it."""


def untolerated_taints(taints: Iterable[Taint], tolerations: Collection[PodToleration]) -> list[Taint]:
    """The taints that keep away a new pod with these tolerations, in the node's order."""
    return [
        taint
        for taint in taints
        if taint.effect in REPELLING_EFFECTS and not any(each.tolerates(taint) for each in tolerations)
    ]
