"""Whether one device takes one container: a table of small checks, in HAMi's order, as the first one names why not.

The order is that of HAMi's ``Fit`` for NVIDIA. NUMA binding is not here: it concerns sets of devices (`choice`).
"""

from collections.abc import Callable

import msgspec

from purser.core.ledger import Usage
from purser.core.model import Device, DeviceRequest
from purser.core.placement.reasons import Reason
from purser.core.quota import UNLIMITED, Demand, Room


class Offer(msgspec.Struct, frozen=True):
    """One device against one container's request."""

    device: Device
    cordoned: bool
    disputed: str
    """Why it takes no new grants until its node's books agree; empty where they do."""
    used: Usage
    """By other pods over their whole lives, and by the containers of this pod that run beside this one."""
    request: DeviceRequest
    memory_mib: int
    """What the request comes to on this device."""
    idle_only: bool = False
    """Policy mutex: only devices that nobody uses."""
    room: Room = UNLIMITED
    """What the namespace's quota leaves for this container."""

    @property
    def cores_percent(self) -> int:
        """The request, at most one whole device."""
        return min(self.request.cores_percent, 100)

    @property
    def memory_free_mib(self) -> int:
        """What is left of the device's memory."""
        return self.device.memory_mib - self.used.memory_mib

    @property
    def cores_free_percent(self) -> int:
        """What is left of the device's compute."""
        return self.device.cores_percent - self.used.cores_percent


def refuses(offer: Offer) -> Reason | None:
    """The first reason why the device does not take the container, None when it does."""
    for reason, fails in CHECKS:
        if fails(offer):
            return reason
    return None


def names_model(word: str, model: str) -> bool:
    """Whether a word of a selector means a model: it is in the model's name, case aside; after ``=`` it is the name.

    HAMi registers each model of NVIDIA's with its vendor in front (``NVIDIA-Tesla T4``, ``NVIDIA-NVIDIA H20-3e``), and
    its users' selectors are written for that.
    """
    return word[1:] == model if word.startswith("=") else word.lower() in f"nvidia-{model}".lower()


def _is_unhealthy(offer: Offer) -> bool:
    return not offer.device.healthy


def _is_cordoned(offer: Offer) -> bool:
    return offer.cordoned


def _is_disputed(offer: Offer) -> bool:
    return bool(offer.disputed)


def _is_other_type(offer: Offer) -> bool:
    request = offer.request
    if request.modes_allowed and offer.device.mode not in request.modes_allowed:
        return True
    if not (request.models_allowed or request.models_denied):
        return False
    model = offer.device.model
    if any(names_model(word, model) for word in request.models_denied):
        return True
    return bool(request.models_allowed) and not any(names_model(word, model) for word in request.models_allowed)


def _is_other_uuid(offer: Offer) -> bool:
    request, uuid = offer.request, offer.device.uuid
    return uuid in request.uuids_denied or (bool(request.uuids_allowed) and uuid not in request.uuids_allowed)


def _has_no_slot(offer: Offer) -> bool:
    return offer.used.slots >= offer.device.slots


def _is_not_idle(offer: Offer) -> bool:
    return offer.idle_only and offer.used.slots > 0


def _exceeds_quota(offer: Offer) -> bool:
    return not offer.room.holds(Demand(offer.memory_mib, offer.cores_percent))


def _lacks_memory(offer: Offer) -> bool:
    return offer.memory_free_mib < offer.memory_mib


def _lacks_cores(offer: Offer) -> bool:
    return offer.cores_free_percent < offer.cores_percent


def _cannot_be_alone(offer: Offer) -> bool:
    return offer.request.is_whole and offer.used.slots > 0


def _has_no_compute(offer: Offer) -> bool:
    return offer.cores_percent == 0 and 0 < offer.device.cores_percent <= offer.used.cores_percent


def _is_held_alone(offer: Offer) -> bool:
    return offer.used.exclusive > 0


CHECKS: tuple[tuple[Reason, Callable[[Offer], bool]], ...] = (
    (Reason.NOT_HEALTHY, _is_unhealthy),
    (Reason.CORDONED, _is_cordoned),
    (Reason.DISPUTED, _is_disputed),
    (Reason.TYPE_MISMATCH, _is_other_type),
    (Reason.UUID_MISMATCH, _is_other_uuid),
    (Reason.SLOTS_EXHAUSTED, _has_no_slot),
    (Reason.EXCLUSIVE_CONFLICT, _is_not_idle),
    (Reason.QUOTA_NOT_FIT, _exceeds_quota),
    (Reason.INSUFFICIENT_MEMORY, _lacks_memory),
    (Reason.INSUFFICIENT_CORES, _lacks_cores),
    (Reason.EXCLUSIVE_CONFLICT, _cannot_be_alone),
    (Reason.CORES_EXHAUSTED, _has_no_compute),
    # Only reached where a device's compute is over-booked (more than 100 percent): elsewhere its compute is all taken.
    (Reason.EXCLUSIVE_CONFLICT, _is_held_alone),
)
