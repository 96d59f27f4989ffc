"""The lock that a vendor's device plugin expects on its node while a pod waits for its devices (HAMi's ``nodelock``).

Kubelet does not tell a plugin for which pod it asks; the plugin finds the pod by the lock, serves it, and removes the
lock. So such pods come to a node one after the other.
"""

import msgspec

from purser.core.kubernetes.times import parsed, spelled
from purser.core.vendors.family import NodeLock


class LockHolder(msgspec.Struct, frozen=True):
    """Whose a lock is; both empty where it names no pod."""

    namespace: str = ""
    pod: str = ""


def lock_text(lock: NodeLock, now_s: float, owner: LockHolder) -> str:
    """What a lock of this pod says."""
    return f"{spelled(now_s)},{owner.namespace},{owner.pod}" if lock.names_pod else spelled(now_s)


def lock_holder(lock: NodeLock, text: str | None, now_s: float) -> LockHolder | None:
    """Whose a node's lock is; None: it is nobody's, it is too old, or it makes no sense."""
    time, _, owner = (text or "").partition(",")
    since = parsed(time)
    if since is None or now_s - since >= lock.seconds:
        return None
    namespace, _, pod = owner.partition(",")
    return LockHolder(namespace, pod)
