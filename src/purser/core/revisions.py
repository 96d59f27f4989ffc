"""What changed since when, for any number of readers: each remembers the revision that it has seen."""

from itertools import takewhile


class Revisions:
    """A number that grows with every change, and the names that changed last."""

    def __init__(self) -> None:
        self.now = 0
        self._changed_at: dict[str, int] = {}
        """In the order of the changes: what changes again moves to the end."""

    def changed(self, name: str) -> None:
        """Something of this name is not what it was."""
        self.now += 1
        self._changed_at.pop(name, None)
        self._changed_at[name] = self.now

    def forget(self, name: str) -> None:
        """It is gone, which is a change too; readers find out by what they hold."""
        self.now += 1
        self._changed_at.pop(name, None)

    def since(self, revision: int) -> list[str]:
        """What changed after this revision and is still there, the last change first."""
        newest = reversed(self._changed_at.items())
        return [name for name, _ in takewhile(lambda change: change[1] > revision, newest)]
