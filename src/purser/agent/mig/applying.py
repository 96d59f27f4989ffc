"""Brings GPUs into a layout. What fails half-way is undone: a node must not be left with no GPU at all."""

from collections.abc import Callable, Mapping

from purser.agent.mig.hardware import Card, HardwareError, Layout, MigHardware


class WithdrawnError(Exception):
    """Nobody wants the layout any more; the message says which GPUs have it already."""


def differences(cards: tuple[Card, ...], wanted: Mapping[int, Layout]) -> dict[int, Layout]:
    """The GPUs that are to be changed, and what into."""
    return {card.index: wanted[card.index] for card in cards if wanted.get(card.index, card.layout) != card.layout}


def bring(hardware: MigHardware, wanted: Mapping[int, Layout], is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Change what differs, and see that it is so. Doing it twice changes nothing. ``is_wanted`` is asked before each
    GPU.

    Raises `HardwareError`: then the GPUs are as they were before, or the message says that they are not; and
    `WithdrawnError` between two GPUs: each of them is whole, and undoing would take as long again.
    """
    before = {card.index: card for card in hardware.cards()}
    changes = differences(tuple(before.values()), wanted)
    touched: list[int] = []
    try:
        for index, layout in changes.items():
            if not is_wanted():
                raise WithdrawnError(f"it was withdrawn; changed by then: {_listed(touched)}")
            touched.append(index)
            _bring_one(hardware, before[index], layout)
        _verify(hardware, changes)
    except HardwareError as error:
        raise HardwareError(
            f"{error}; {_undo(hardware, {index: before[index].layout for index in touched})}"
        ) from error


def _listed(indexes: list[int]) -> str:
    return ", ".join(f"GPU {index}" for index in indexes) or "no GPU"


def _bring_one(hardware: MigHardware, card: Card, layout: Layout) -> None:
    if card.layout.enabled and not layout.enabled:
        hardware.set_devices(card.index, ())
    if card.layout.enabled != layout.enabled:
        hardware.set_mode(card.index, layout.enabled)
    if layout.enabled:
        hardware.set_devices(card.index, layout.devices)


def _verify(hardware: MigHardware, wanted: Mapping[int, Layout]) -> None:
    """The driver's word that it was done is not enough: what is there now counts."""
    left = differences(hardware.cards(), wanted)
    for index, layout in left.items():
        raise HardwareError(f"GPU {index} did not become {describe(layout)}")


def _undo(hardware: MigHardware, former: Mapping[int, Layout]) -> str:
    try:
        now = {card.index: card for card in hardware.cards()}
        for index in differences(tuple(now.values()), former):
            _bring_one(hardware, now[index], former[index])
    except HardwareError as error:
        return f"the former layout could not be restored: {error}"
    return "the former layout is there again"


def describe(layout: Layout) -> str:
    """In words."""
    if not layout.enabled:
        return "without MIG"
    return ", ".join(layout.devices) if layout.devices else "MIG without devices"
