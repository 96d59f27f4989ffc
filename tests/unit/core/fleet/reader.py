"""One who reads what changed of a fleet, for tests."""

from purser.core.fleet import Fleet


class Reader:
    """Has seen the fleet as it is."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._as_of, self._departures = fleet, fleet.revision, fleet.departures

    def changed(self) -> set[str]:
        """What changed since the last time."""
        found = set(self._fleet.changed_since(self._as_of))
        self._as_of = self._fleet.revision
        return found

    def departed(self) -> int:
        """How many nodes have gone since the last time."""
        before, self._departures = self._departures, self._fleet.departures
        return self._departures - before
