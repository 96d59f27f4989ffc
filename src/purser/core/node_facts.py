"""What the operator and the parts of it that run on nodes tell one another through annotations of the node."""

from typing import TypeVar

import msgspec

MAX_BYTES = 16 * 1024
"""Of one annotation: more is not read."""


class PciGpu(msgspec.Struct, frozen=True):
    """A display controller (PCI class 03) of NVIDIA (vendor 10de)."""

    device: str
    """PCI device id, four hexadecimal digits."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is, as Purser's discovery saw it."""

    os_id: str = ""
    """ID of /etc/os-release: ``ubuntu``."""
    os_version: str = ""
    """VERSION_ID of it: ``22.04``."""
    gpus: tuple[PciGpu, ...] = ()
    """Ordered by PCI address."""
    distribution: str = ""
    """``k3s``, ``rke2``, ``k0s`` or ``microk8s``, by its files on the host; empty: none of these."""


class MigRequest(msgspec.Struct, frozen=True):
    """A layout that a node's MIG worker is to apply now."""

    profile: str
    attempt: str
    """Tells this request from others for the same profile."""
    check_only: bool = False
    """Nothing is changed: the result tells whether there is anything to change."""


class MigResult(msgspec.Struct, frozen=True):
    """What became of it."""

    profile: str
    attempt: str
    error: str = ""
    """In one sentence; empty: it is applied."""
    differs: bool = False
    """Of a request that only checks: the node's GPUs have another layout."""


T = TypeVar("T")
Told = NodeFacts | MigRequest | MigResult


def encode(told: Told) -> str:
    """As it stands in the annotation; equal values are equal texts."""
    return msgspec.json.encode(told, order="deterministic").decode()


def decode_facts(text: str | None) -> NodeFacts | None:
    """The facts of an annotation; None where there are none, or none that can be read: they are written anew."""
    return _decode(text, NodeFacts)


def decode_request(text: str | None) -> MigRequest | None:
    """The request of an annotation; None where there is none that can be read."""
    return _decode(text, MigRequest)


def decode_result(text: str | None) -> MigResult | None:
    """The result of an annotation; None where there is none that can be read."""
    return _decode(text, MigResult)


def _decode(text: str | None, kind: type[T]) -> T | None:
    if not text or len(text) > MAX_BYTES:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return None
