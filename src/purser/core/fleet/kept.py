"""What is kept of a node for pods that have no grant yet."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from purser.core.ledger import NO_USAGE, Usage, pod_usage
from purser.core.model import Grant
from purser.core.sriov.pairs import TakenDevices, taken_by_grants


class NominatedUsage(msgspec.Struct, frozen=True):
    """As much of one node as the pods that are nominated to it will have."""

    usage: Mapping[str, Usage] = {}
    """Of its devices, by uuid."""
    pools: TakenDevices = {}
    """Of its SR-IOV pools."""

    def __bool__(self) -> bool:
        return bool(self.usage or self.pools)

    def __add__(self, other: "NominatedUsage") -> "NominatedUsage":
        uuids = dict.fromkeys((*self.usage, *other.usage))
        usage = {uuid: self.usage.get(uuid, NO_USAGE) + other.usage.get(uuid, NO_USAGE) for uuid in uuids}
        return NominatedUsage(usage, dict(Counter(self.pools) + Counter(other.pools)))


NO_NOMINATED_USAGE = NominatedUsage()
"""Most decisions are made beside nothing: it is compared by identity."""


def nominated_usage(grant: Grant) -> NominatedUsage:
    """What a pod will have by this grant."""
    return NominatedUsage(pod_usage(grant), taken_by_grants([grant]))
