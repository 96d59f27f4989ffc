"""Events about one object, as somebody who explains the object reads them."""

from collections.abc import Mapping

import msgspec

from purser.core.kubernetes.times import parsed
from purser.kube.client import Client
from purser.kube.objects import ObjectMeta, Slim
from purser.kube.resources import EVENTS

MAX_EVENTS = 50
"""About an object that are kept: the last ones."""
PAGE_SIZE, MAX_PAGES = 10, 50
"""Events that are read at once, and pages of them: the API server bounds neither the number of events nor, of most, the
length of their messages, and a page is decoded in one go."""
MAX_MESSAGE, MAX_WORD = 1024, 128
"""Characters that are kept: of a message as many as events.k8s.io allows."""


class ObservedEventSource(Slim, frozen=True, gc=False):
    """Who recorded an event."""

    component: str = ""


class ObservedEventSeries(Slim, frozen=True, gc=False):
    """How often an event of events.k8s.io was seen, kube-scheduler's for example."""

    count: int = 0
    last_observed_time: str | None = None


class ObservedEvent(Slim, frozen=True, gc=False):
    """An event, with when it was seen last."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    message: str = ""
    type: str = ""
    """``Normal`` or ``Warning``."""
    count: int = 0
    last_timestamp: str | None = None
    event_time: str | None = None
    series: ObservedEventSeries | None = None
    source: ObservedEventSource = ObservedEventSource()
    reporting_component: str = ""

    @property
    def seen_at(self) -> str:
        """When it was seen last, RFC 3339, as far as it says so."""
        last = None if self.series is None else self.series.last_observed_time
        return last or self.last_timestamp or self.event_time or self.metadata.creation_timestamp

    @property
    def times(self) -> int:
        """How often it was seen."""
        return max(self.count, 0 if self.series is None else self.series.count, 1)

    @property
    def component(self) -> str:
        """Who recorded it."""
        return self.source.component or self.reporting_component


OBSERVED_EVENTS = EVENTS.as_type(ObservedEvent)


async def events_about(client: Client, namespace: str, fields: Mapping[str, str]) -> list[ObservedEvent]:
    """The last `MAX_EVENTS` events in a namespace with these values in fields such as ``involvedObject.uid``, the last
    at the end; long texts are cut, and annotations left out. The API server keeps events for an hour. Raises
    `purser.kube.errors.KubeError`."""
    selector = ",".join(f"{name}={value}" for name, value in fields.items())
    found: list[ObservedEvent] = []
    pages = client.pages(OBSERVED_EVENTS, namespace, field_selector=selector, size=PAGE_SIZE, most=MAX_PAGES)
    async for page in pages:
        found = sorted([*found, *map(_bounded, page)], key=_age_key)[-MAX_EVENTS:]
    return found


def _age_key(event: ObservedEvent) -> float:
    return parsed(event.seen_at) or 0.0


def _bounded(event: ObservedEvent) -> ObservedEvent:
    """Whoever may create events can write texts and annotations of any size."""
    meta = event.metadata
    return msgspec.structs.replace(
        event,
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, creation_timestamp=meta.creation_timestamp),
        reason=event.reason[:MAX_WORD],
        message=event.message[:MAX_MESSAGE],
        type=event.type[:MAX_WORD],
        last_timestamp=_word(event.last_timestamp),
        event_time=_word(event.event_time),
        series=None if event.series is None else _bounded_series(event.series),
        source=ObservedEventSource(event.source.component[:MAX_WORD]),
        reporting_component=event.reporting_component[:MAX_WORD],
    )


def _bounded_series(series: ObservedEventSeries) -> ObservedEventSeries:
    return ObservedEventSeries(series.count, _word(series.last_observed_time))


def _word(text: str | None) -> str | None:
    return None if text is None else text[:MAX_WORD]
