"""A log of either kind, record by record."""

from purser.core.decisions.framing import Reader
from purser.core.decisions.records import DecisionDifference, Record, SchedulingStart, SimulationStart
from purser.core.decisions.scheduling import SchedulingReplay
from purser.core.decisions.simulation import SimulationReplay
from purser.core.decoding import brief
from purser.core.placement.policies import parse_policy


class Replayer:
    """Makes decisions again: by the log's own policy, or by another one."""

    def __init__(self, policy: str | None = None) -> None:
        """Raises ValueError for a policy that there is none of."""
        if policy is not None:
            parse_policy(policy)
        self._policy = policy
        self._log: SimulationReplay | SchedulingReplay | None = None
        self._before = 0

    @property
    def decisions(self) -> int:
        """So many were made again, over all files."""
        return self._before + (0 if self._log is None else self._log.decisions)

    def take(self, reader: Reader, record: Record) -> DecisionDifference | None:
        """The next record of a file; what is different, where it is a decision.

        Raises `DecisionLogError` for a record that makes no sense where it stands.
        """
        try:
            if reader.number == 1:
                self._begin(record)
                return None
            assert self._log is not None
            difference = self._log.apply(record)
        except Exception as error:  # whatever an array makes of numbers that others wrote is these numbers' fault
            raise reader.error(brief(error) or type(error).__name__) from error
        if difference is None or not self._before:
            return difference
        return DecisionDifference(self.decisions, difference.pod, difference.logged, difference.now, difference.why)

    def _begin(self, start: Record) -> None:
        self._before, self._log = self.decisions, None
        match start:
            case SimulationStart():
                self._log = SimulationReplay(start, self._policy)
            case SchedulingStart():
                self._log = SchedulingReplay(start, self._policy)
            case _:
                raise ValueError("unknown kind of log")
