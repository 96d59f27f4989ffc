"""Pods that were refused, and which of too many to let go of: one namespace's do not push out another's."""

from collections import Counter
from collections.abc import MutableMapping
from typing import Generic, Protocol, TypeVar

from purser.core.model import PodRequest

MAX_WAITING = 128
"""Refused pods that are tried again. Among this many, a delay of single ones is acceptable."""


class RefusedRequest(Protocol):
    """A pod that was refused, with whatever is known of that."""

    @property
    def request(self) -> PodRequest:
        """What it asks for."""


RefusedT = TypeVar("RefusedT", bound=RefusedRequest)


class WaitingPods(Generic[RefusedT]):
    """Pods that are looked at again: of more than `MAX_WAITING` the most important (`keep_most_important`)."""

    def __init__(self) -> None:
        self._by_uid: dict[str, RefusedT] = {}

    def put(self, refused: RefusedT) -> None:
        """The pod was refused just now, be it once more."""
        self.pop(refused.request.uid)
        self._by_uid[refused.request.uid] = refused
        keep_most_important(self._by_uid, MAX_WAITING)

    def put_back(self, refused: RefusedT) -> None:
        """The pod has to be looked at again, unless it was refused once more meanwhile."""
        self._by_uid.setdefault(refused.request.uid, refused)

    def get(self, uid: str) -> RefusedT | None:
        """What is known of the pod."""
        return self._by_uid.get(uid)

    def renew(self, refused: RefusedT) -> None:
        """More is known of the pod, which was not refused anew: it keeps its place."""
        self._by_uid[refused.request.uid] = refused

    def pop(self, uid: str) -> RefusedT | None:
        """The pod need not be looked at again before it is refused again; what was known of it."""
        return self._by_uid.pop(uid, None)

    def clear(self) -> None:
        """None of them need be looked at again."""
        self._by_uid.clear()

    def by_importance(self) -> list[RefusedT]:
        """The most important first, then those that wait longest."""
        return sorted(self._by_uid.values(), key=lambda each: -each.request.priority)

    def __contains__(self, refused: RefusedT) -> bool:
        """Whether this is still the last that is known of its pod."""
        return self._by_uid.get(refused.request.uid) is refused


def keep_most_important(waiting: MutableMapping[str, RefusedT], most: int) -> None:
    """Let go of pods, in order of refusal by uid, until no more than ``most`` are left.

    The least important goes first; of equally important ones those of the namespace that has the most of them, so that
    a user with very many pods displaces only their own; of these the one that was refused first.
    """
    while len(waiting) > most:
        lowest = min(each.request.priority for each in waiting.values())
        lower = {uid: each.request.namespace for uid, each in waiting.items() if each.request.priority == lowest}
        [(crowded, _)] = Counter(lower.values()).most_common(1)
        del waiting[next(uid for uid, namespace in lower.items() if namespace == crowded)]
