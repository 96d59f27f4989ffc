"""The questions of an admission, and its outcome.

An admission is a generator. It yields a `PreferredAllocation` or an `Allocate`, is sent the answer, and returns an
`AdmissionOutcome`. Each question carries the state so far: what it says is what kubelet's PodResources lists meanwhile.
Callers with real plugins wrap the answers in `AnswerWithDevices`, because device lists change while plugins are asked.
"""

from collections.abc import Callable, Generator, Iterable
from enum import StrEnum

import msgspec

from purser.core.kubelet.state import ContainerKey, DeviceManagerState, KubeletState


class PreferredAllocation(msgspec.Struct, frozen=True):
    """A GetPreferredAllocation call; answered by device ids in the plugin's order of preference."""

    container: ContainerKey
    resource: str
    available: frozenset[str]
    """Those of ``must_include`` are in it."""
    must_include: frozenset[str]
    size: int
    state: KubeletState


class Allocate(msgspec.Struct, frozen=True):
    """An Allocate call for one container and resource; answered by the serialized ContainerAllocateResponse."""

    container: ContainerKey
    resource: str
    device_ids: frozenset[str]
    state: KubeletState


class FailedAnswer(msgspec.Struct, frozen=True):
    """The answer when the call failed."""

    message: str
    """As kubelet prints the error."""
    is_empty_response: bool = False
    """The plugin answered an Allocate with no container in it: kubelet then leaves the devices counted as taken."""


PlainAnswer = tuple[str, ...] | bytes | FailedAnswer


class AnswerWithDevices(msgspec.Struct, frozen=True):
    """An answer, and what plugins reported meanwhile: the admission continues with that."""

    answer: PlainAnswer
    devices: DeviceManagerState
    """The device manager's state as it is now; of it only the half counts that plugins change."""


Ask = PreferredAllocation | Allocate
Answer = PlainAnswer | AnswerWithDevices


class ResourceManager(StrEnum):
    """Which of kubelet's managers refused."""

    TOPOLOGY = "topology manager"
    DEVICE = "device manager"
    CPU = "CPU manager"
    MEMORY = "memory manager"


class Rejection(msgspec.Struct, frozen=True):
    """The pod fails; kubelet does not try again."""

    manager: ResourceManager
    container: str
    """Empty where the pod as a whole was refused (scope pod)."""
    reason: str
    """status.reason, such as ``TopologyAffinityError``."""
    message: str
    """kubelet's, without the prefix that its version puts before it in status.message."""


class AdmissionOutcome(msgspec.Struct, frozen=True):
    """How an admission ended."""

    state: KubeletState
    """What the node is left with. kubelet rolls nothing back: a refused pod keeps what it was given until kubelet
    counts again."""
    refusal: Rejection | None = None


Admission = Generator[Ask, Answer, AdmissionOutcome]

Choose = Callable[[PreferredAllocation], Iterable[str]]


def finish(admission: Admission, choose: Choose) -> AdmissionOutcome:
    """Run an admission to its end without any plugin: ``choose`` prefers devices, every Allocate succeeds."""
    try:
        ask = next(admission)
        while True:
            ask = admission.send(tuple(choose(ask)) if isinstance(ask, PreferredAllocation) else b"")
    except StopIteration as end:
        outcome: AdmissionOutcome = end.value
        return outcome
