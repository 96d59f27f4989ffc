"""Brings cards into a layout. What fails half-way is undone: a node must not be left with no GPU at all."""

from collections.abc import Mapping

from purser.agent.mig.hardware import Card, HardwareError, Layout, MigHardware


def differences(cards: tuple[Card, ...], wanted: Mapping[int, Layout]) -> dict[int, Layout]:
    """The cards that are to be changed, and what into."""
    return {card.index: wanted[card.index] for card in cards if wanted.get(card.index, card.layout) != card.layout}


def bring(hardware: MigHardware, wanted: Mapping[int, Layout]) -> None:
    """Change what differs, and see that it is so. Doing it twice changes nothing.

    Raises `HardwareError`: then the cards are as they were before, or the message says that they are not.
    """
    before = {card.index: card for card in hardware.cards()}
    changes = differences(tuple(before.values()), wanted)
    touched: list[int] = []
    try:
        for index, layout in changes.items():
            touched.append(index)
            _bring_one(hardware, before[index], layout)
        _verify(hardware, changes)
    except HardwareError as error:
        raise HardwareError(
            f"{error}; {_undo(hardware, {index: before[index].layout for index in touched})}"
        ) from error


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
