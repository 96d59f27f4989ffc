"""The documents that list what the state has, some at a time."""

import msgspec

from purser.core.state.documents import STATE_VERSION, StateGrant, StateNode, StateWaiting


class NodeList(msgspec.Struct, frozen=True):
    """Nodes by name: `GET /v1/nodes`."""

    items: tuple[StateNode, ...]
    continue_: str = msgspec.field(name="continue")
    """What the next request has to name; empty: there is nothing else."""
    notes: tuple[str, ...] = ()
    """What could not be read, or is not told."""
    api_version: str = STATE_VERSION


class GrantList(msgspec.Struct, frozen=True):
    """Pods that hold GPUs, by namespace and name: `GET /v1/grants`."""

    items: tuple[StateGrant, ...]
    continue_: str = msgspec.field(name="continue")
    """What the next request has to name; empty: there is nothing else."""
    notes: tuple[str, ...] = ()
    """What could not be read, or is not told."""
    api_version: str = STATE_VERSION


class WaitingList(msgspec.Struct, frozen=True):
    """Pods that wait, by namespace and name: `GET /v1/waiting`."""

    items: tuple[StateWaiting, ...]
    continue_: str = msgspec.field(name="continue")
    """What the next request has to name; empty: there is nothing else."""
    notes: tuple[str, ...] = ()
    """What could not be read, or is not told."""
    api_version: str = STATE_VERSION
