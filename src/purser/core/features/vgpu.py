"""Whether a PCI device is a vGPU, and its host driver's version, from its vendor-specific capability.

Layout: capability id 9, next, length; then ``VF``, then records of id, length and data, of which record 0 holds the
host driver's version and branch, ten bytes each (facts of NVIDIA's feature discovery, internal/vgpu).
"""

import msgspec

from purser.core.features.values import LabelTrouble

CONFIG_BYTES = 256
"""Of a configuration space: what is read of it without CAP_SYS_ADMIN is shorter."""

_STATUS, _HAS_CAPABILITIES, _CAPABILITIES_POINTER = 0x06, 0x10, 0x34
_VENDOR_SPECIFIC, _END_OF_CHAIN = 0x09, 0xFF
_SIGNATURE = b"VF"
_FIRST_RECORD, _VERSION_RECORD, _TEXT_BYTES = 5, 0, 10


class VgpuHost(msgspec.Struct, frozen=True):
    """The driver of the hypervisor's host."""

    version: str
    branch: str


def vgpu_host(config: bytes) -> VgpuHost | None:
    """The host of a vGPU; None: the device is none.

    Raises:
        LabelTrouble: the configuration space, or the host's driver in it, cannot be read.
    """
    if len(config) < CONFIG_BYTES:
        raise LabelTrouble("PCI configuration space cannot be read in full: the agent needs CAP_SYS_ADMIN")
    capability = _vendor_specific(config)
    if capability[3:_FIRST_RECORD] != _SIGNATURE:
        return None
    at = _FIRST_RECORD
    while at + 1 < len(capability) and capability[at] != _VERSION_RECORD:
        at += max(capability[at + 1], 1)
    version, branch = (capability[at + 2 + skipped :][:_TEXT_BYTES] for skipped in (0, _TEXT_BYTES))
    if len(branch) < _TEXT_BYTES:
        raise LabelTrouble("a vGPU's PCI configuration space does not name the host's driver")
    return VgpuHost(_text(version), _text(branch))


def _vendor_specific(config: bytes) -> bytes:
    """Empty: there is none."""
    at = config[_CAPABILITIES_POINTER] if config[_STATUS] & _HAS_CAPABILITIES else 0
    visited = set[int]()
    while at and at not in visited and at + 2 < len(config) and config[at] != _END_OF_CHAIN:
        if config[at] == _VENDOR_SPECIFIC:
            return config[at : at + config[at + 2]]
        visited.add(at)
        at = config[at + 1]
    return b""


def _text(field: bytes) -> str:
    return field.strip(b"\0").decode("latin-1")
