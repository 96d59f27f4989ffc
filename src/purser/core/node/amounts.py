"""What a node lists beside its devices: how much of each amount that pods ask for in the book's words.

kube-scheduler asks each of its plugins whether an event could help a pod that waits, and counts what nodes list: a word
that no node lists never fits, whatever an extender says (``isSchedulableAfterNodeChange`` of ``noderesources`` heeds no
``ignoredByScheduler``). So agents list the totals as node-level extended resources, in the node's status.

The count must never refuse what Purser would place, and kubelet refuses at its start, one by one, the pods that go
beyond it. A node therefore lists what its usable GPUs have of which amounts can be had, and on top of that whatever its
pods ask for without holding as much of a usable GPU: pods on GPUs that are sick, cordoned or gone, and pods without a
grant. A pod that another scheduler placed, and that soon gets its grant out of the total, adds nothing: Volcano takes
the amount of ``volcano.sh/gpu-number`` for the number of GPUs, and would place pods on one more for that moment.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from purser.core.dialects import WORDS
from purser.core.kubernetes.quantities import MAX_VALUE, QuantityError, QuantityLike, quantity_ceil
from purser.core.ledger import Usage
from purser.core.model import ContainerKind, NodeInventory
from purser.core.pod.manifest import PodManifest

Amounts = dict[str, int]
"""By resource."""

AMOUNTS = tuple(sorted(WORDS))
"""The resources that a node with devices lists; ``nvidia.com/gpu`` is kubelet's to list."""


class Holder(msgspec.Struct, frozen=True):
    """A pod on the node that has not ended."""

    asks: Mapping[str, int]
    """As `asked_amounts` counts."""
    usage: Mapping[str, Usage] = {}
    """What it holds, by uuid of the device; nothing where no grant counts."""
    awaits: bool = False
    """Whether its grant is still to come."""


def listed_amounts(
    inventory: NodeInventory, holders: Iterable[Holder], units_mib: Mapping[str, int] = MappingProxyType({})
) -> Amounts:
    """What the node has to list; nothing where it has no devices and no pod asks for any.

    ``units_mib``: of words for memory that the cluster counts in other units than the usual, by resource.
    """
    usable = {
        device.uuid
        for device in inventory.devices
        if device.healthy and device.takes_amounts and device.uuid not in inventory.cordoned
    }
    pods = tuple(holders)
    found = {name: _listed(name, inventory, usable, pods, units_mib) for name in AMOUNTS}
    return found if inventory.devices else {name: amount for name, amount in found.items() if amount}


def _listed(
    name: str, inventory: NodeInventory, usable: set[str], pods: Iterable[Holder], units_mib: Mapping[str, int]
) -> int:
    word = WORDS[name]
    unit = units_mib.get(name, word.unit_mib)
    total = sum(word.of_device(device) // unit for device in inventory.devices if device.uuid in usable)
    asked = beyond = 0
    for pod in pods:
        asks = pod.asks.get(name, 0)
        holds = sum(word.of_usage(usage) // unit for uuid, usage in pod.usage.items() if uuid in usable)
        asked += asks
        beyond += 0 if pod.awaits else max(0, asks - holds)
    return min(max(total + beyond, asked), MAX_VALUE)  # a GPU that is overcommitted holds more than it has


def asked_amounts(spec: PodManifest) -> Amounts:
    """How much of `AMOUNTS` a pod asks for, as kube-scheduler and kubelet count: what runs together, at its peak.

    Sidecars count from their turn on, init containers one after the other (PodRequests in k8s.io/component-helpers). An
    amount that is not a quantity, which the API server does not let in, counts for nothing.
    """
    return {name: amount for name in AMOUNTS if (amount := _asked(spec, name))}


def _asked(spec: PodManifest, name: str) -> int:
    sidecars = apps = peak = 0
    for container in spec.containers:
        amount = _count(container.requests.get(name, container.limits.get(name)))
        if container.kind is ContainerKind.INIT:
            peak = max(peak, sidecars + amount)
        elif container.kind is ContainerKind.SIDECAR:
            sidecars += amount
        else:
            apps += amount
    return max(peak, sidecars + apps) + _count(spec.overhead.get(name))


def changed_amounts(wanted: Mapping[str, int], there: Mapping[str, QuantityLike]) -> dict[str, str | None]:
    """What must be written for a node's capacity to list ``wanted`` of `AMOUNTS`, and no others of them; None: to go.

    The API server spells quantities its own way (``16000`` becomes ``16k``): they are compared by value.
    """
    changes: dict[str, str | None] = {name: None for name in AMOUNTS if name in there and name not in wanted}
    for name, amount in wanted.items():
        if name not in there or _value(there[name]) != amount:
            changes[name] = str(amount)
    return changes


def _count(amount: QuantityLike | None) -> int:
    return 0 if amount is None else max(0, _value(amount) or 0)


def _value(amount: QuantityLike) -> int | None:
    try:
        return quantity_ceil(amount)
    except QuantityError:
        return None
