"""What stands for the names of pods, namespaces and nodes in a log: themselves, or hashes with a key.

Equal names have equal hashes as long as the key is the same, so that what a namespace used can still be summed up.
UIDs stay, they are numbers that Kubernetes drew; so do names of containers and uuids and models of GPUs.
"""

import hashlib
from collections.abc import Mapping

from msgspec.structs import replace

from purser.core.model import Grant, NodeInventory
from purser.recent import Recent

_MAX_NAMES = 1 << 15
_HASH_BYTES = 8


class LoggedNames:
    """As the log has them."""

    def __init__(self, key: bytes | None = None) -> None:
        """``key``: of the hashes, at most 64 bytes; None: names stand for themselves."""
        self._key = key
        self._known: Recent[tuple[str, str], str] = Recent(_MAX_NAMES)

    @property
    def are_hashed(self) -> bool:
        """Whether they are not the names themselves."""
        return self._key is not None

    def node(self, name: str) -> str:
        """For a node's name."""
        return self._logged("node", name)

    def namespace(self, name: str) -> str:
        """For a namespace's name."""
        return self._logged("namespace", name)

    def pod(self, name: str) -> str:
        """For a pod's name."""
        return self._logged("pod", name)

    def inventory(self, inventory: NodeInventory) -> NodeInventory:
        """A node's inventory under its logged name."""
        return inventory if self._key is None else replace(inventory, node=self.node(inventory.node))

    def grant(self, grant: Grant) -> Grant:
        """A grant, its pod under its logged name, without its node."""
        return replace(grant, node="", namespace=self.namespace(grant.namespace), pod=self.pod(grant.pod))

    def disputes(self, disputes: Mapping[str, str]) -> Mapping[str, str]:
        """Why GPUs are disputed, in sentences that name pods; left out where names are hashed."""
        return dict(disputes) if self._key is None else dict.fromkeys(disputes, "disputed")

    def _logged(self, kind: str, name: str) -> str:
        key = self._key
        if key is None or not name:
            return name
        return self._known.recall((kind, name), lambda: f"{kind}-{_hash(key, kind, name)}")


def _hash(key: bytes, kind: str, name: str) -> str:
    return hashlib.blake2b(f"{kind}/{name}".encode(), digest_size=_HASH_BYTES, key=key).hexdigest()
