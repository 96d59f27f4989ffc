"""Events about one object, as somebody who explains the object reads them."""

from collections.abc import Mapping

from purser.kube.client import Client
from purser.kube.objects import ObjectMeta, Slim
from purser.kube.resources import EVENTS


class ObservedEventSource(Slim, frozen=True, gc=False):
    """Who recorded an event."""

    component: str = ""


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
    source: ObservedEventSource = ObservedEventSource()
    reporting_component: str = ""

    @property
    def seen_at(self) -> str:
        """When it was seen last, RFC 3339, as far as it says so."""
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp

    @property
    def component(self) -> str:
        """Who recorded it."""
        return self.source.component or self.reporting_component


OBSERVED_EVENTS = EVENTS.as_type(ObservedEvent)


async def events_about(client: Client, namespace: str, fields: Mapping[str, str]) -> list[ObservedEvent]:
    """Events in a namespace with these values in fields such as ``involvedObject.uid``, the last at the end. The API
    server keeps events for an hour. Raises `purser.kube.errors.KubeError`."""
    selector = ",".join(f"{name}={value}" for name, value in fields.items())
    return sorted(
        (await client.list(OBSERVED_EVENTS, namespace, field_selector=selector)).items, key=lambda each: each.seen_at
    )
