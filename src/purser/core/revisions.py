"""What changed since a reader last looked, for any number of readers: each keeps one revision number."""

from itertools import takewhile
from typing import NamedTuple


class Changes(NamedTuple):
    """What is not as a reader saw it."""

    now: int
    """The revision to ask from the next time."""
    names: list[str]
    """What changed, or came, and is there: the last change first."""
    some_are_gone: bool
    """Whether other names have gone. Which is not kept: whoever holds names looks which of them are still there."""


class Revisions:
    """A number that grows with every change, and the names that changed last."""

    def __init__(self) -> None:
        self.now = 0
        self._gone_at = 0
        self._changed_at: dict[str, int] = {}
        """In the order of the changes: what changes again moves to the end."""

    def changed(self, name: str) -> None:
        """Something of this name is not what it was."""
        self.now += 1
        self._changed_at.pop(name, None)
        self._changed_at[name] = self.now

    def forget(self, name: str) -> None:
        """It is gone."""
        self.now += 1
        self._gone_at = self.now
        self._changed_at.pop(name, None)

    def changes_since(self, revision: int) -> Changes:
        """What happened after this revision; after 0: all that is there."""
        newest = reversed(self._changed_at.items())
        names = [name for name, _ in takewhile(lambda change: change[1] > revision, newest)]
        return Changes(self.now, names, self._gone_at > revision)
