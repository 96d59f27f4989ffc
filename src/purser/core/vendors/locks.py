"""The lock that a vendor's device plugin expects on its node while a pod waits for its devices (HAMi's ``nodelock``).

Kubelet does not tell a plugin for which pod it asks; the plugin finds the pod by the lock, serves it, and removes the
lock. So such pods come to a node one after the other.
"""

import re

import msgspec

from purser.core.kubernetes.times import parsed, spelled
from purser.core.vendors.family import NodeLock

_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)
"""Of a namespace or a pod."""


class LockHolder(msgspec.Struct, frozen=True):
    """Whose a lock is; both empty where it names no pod."""

    namespace: str = ""
    pod: str = ""


class HeldLock(msgspec.Struct, frozen=True):
    """A lock that counts."""

    holder: LockHolder
    age_s: float


def lock_text(lock: NodeLock, now_s: float, owner: LockHolder) -> str:
    """What a lock of this pod says."""
    return f"{spelled(now_s)},{owner.namespace},{owner.pod}" if lock.names_pod else spelled(now_s)


def read_lock(lock: NodeLock, text: str | None, now_s: float) -> HeldLock | None:
    """What a node's lock says; None: there is none, it is too old, or it makes no sense. It is from the future where
    clocks differ, but not by more than a lock counts."""
    time, _, owner = (text or "").partition(",")
    since = parsed(time)
    if since is None or abs(now_s - since) >= lock.seconds:
        return None
    namespace, _, pod = owner.partition(",")
    if owner and not (_NAME.fullmatch(namespace) and _NAME.fullmatch(pod)):
        return None
    return HeldLock(LockHolder(namespace, pod), now_s - since)
