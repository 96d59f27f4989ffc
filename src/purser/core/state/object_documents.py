"""The documents on one pod, and on the events about one object."""

import msgspec

from purser.core.state.documents import STATE_VERSION


class StateStep(msgspec.Struct, frozen=True, gc=False):
    """What a pod has come to on its way from its creation to running containers."""

    name: str
    time: str
    """RFC 3339, whole seconds."""
    seconds: int
    """Since the step before; 0 for the first."""


class PodDetails(msgspec.Struct, frozen=True):
    """What the state leaves out of a pod: `GET /v1/namespaces/NAMESPACE/pods/NAME`."""

    name: str
    uid: str
    steps: tuple[StateStep, ...]
    """In the order of their times."""
    api_version: str = STATE_VERSION


class StateEvent(msgspec.Struct, frozen=True, gc=False):
    """An event."""

    reason: str
    message: str
    type: str
    """``Normal`` or ``Warning``."""
    count: int
    seen_at: str
    """When it was seen last, RFC 3339."""
    component: str
    """Who recorded it."""


class StateEvents(msgspec.Struct, frozen=True):
    """The last events about an object, the last at the end: `GET /v1/namespaces/NAMESPACE/events`."""

    events: tuple[StateEvent, ...]
    api_version: str = STATE_VERSION
