"""Names of SR-IOV pools that agents need whether they serve any or not."""

from zlib import crc32

DEFAULT_PREFIX = "intel.com"
"""Of resources: the plugin's ``--resource-prefix``, unless it is given another."""

_MAX_SOCKET_NAME = 48


def socket_name(resource: str) -> str:
    """Of a pool's device plugin: ``intel.com_sriov_netdevice.sock``, as upstream; a long one ends in a checksum, for
    the path of a socket has 107 bytes at the most."""
    name = resource.replace("/", "_")
    if len(name) > _MAX_SOCKET_NAME:
        name = f"{name[: _MAX_SOCKET_NAME - 9]}-{crc32(name.encode()):08x}"
    return f"{name}.sock"
