"""How a change is offered: with the nodes that take the pod then, by the decision of the log."""

from collections.abc import Iterator

from purser.core.model import PodRequest
from purser.core.wording import natural_sort_key
from purser.scheduler.explaining.changes import EXAMPLES, ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.logged.moment import LoggedMoment


def suggest_if_fits(
    moment: LoggedMoment, kind: ChangeKind, text: str, change: SuggestedChange, request: PodRequest | None = None
) -> Iterator[Suggestion]:
    """The suggestion, where some node takes the pod; ``request``: asked for otherwise."""
    fits = moment.evaluate(request).fits
    if fits:
        yield Suggestion(kind, text, change, len(fits), tuple(sorted(fits, key=natural_sort_key)[:EXAMPLES]))
