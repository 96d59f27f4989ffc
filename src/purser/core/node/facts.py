"""Facts of a node that Purser's discovery publishes in an annotation."""

from functools import lru_cache

import msgspec

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node.annotations import NodeMessage


class PciGpu(msgspec.Struct, frozen=True):
    """A display controller (PCI class 03) of NVIDIA (vendor 10de)."""

    device: str
    """PCI device id, four hexadecimal digits."""
    subsystem: str = ""
    """PCI subsystem device id, which distinguishes GPUs that share a device id. Empty: unknown."""


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


_FACTS = NodeMessage(NodeFacts, NODE_FACTS_ANNOTATION)


@lru_cache(maxsize=256)  # equal nodes have equal texts, and a round asks for them many times
def decode_facts(text: str | None) -> NodeFacts | None:
    """The facts of an annotation; None where there are none, or none that can be read: they are rewritten."""
    return _FACTS.read(text)
