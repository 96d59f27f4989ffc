"""One who reads what changed of a fleet, for tests."""

from purser.core.fleet import Fleet
from purser.core.fleet.fleet import Changes


class Reader:
    """Has seen the fleet as it is."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._as_of = fleet, 0
        self.changes()

    def changes(self) -> Changes:
        """All that is different since the last time."""
        found = self._fleet.changes_since(self._as_of)
        self._as_of = found.now
        return found

    def changed(self) -> set[str]:
        """What changed since the last time."""
        return set(self.changes().names)
