"""What the API server has on one object: a pod's steps, and the events about it."""

from collections.abc import Mapping

from purser.adapters.pod_steps import steps_of
from purser.core.state import PodDetails, StateEvent, StateEvents
from purser.kube.client import Client
from purser.kube.errors import NotFoundError
from purser.kube.object_events import ObservedEvent, events_about
from purser.kube.pod_details import SCHEDULED_PODS


async def read_pod_details(client: Client, namespace: str, name: str) -> PodDetails | None:
    """A pod's document; None: there is no such pod. Raises `purser.kube.errors.KubeError`."""
    try:
        pod = await client.get(SCHEDULED_PODS, name, namespace)
    except NotFoundError:
        return None
    return PodDetails(name, pod.metadata.uid, tuple(steps_of(pod)))


async def read_events(client: Client, namespace: str, about: Mapping[str, str]) -> StateEvents:
    """The last events about an object, as `events_about` has them; ``about``: its ``uid``, or its ``kind`` and
    ``name``. The API server goes through all events of the namespace for it. Raises `purser.kube.errors.KubeError`."""
    found = await events_about(client, namespace, {f"involvedObject.{key}": value for key, value in about.items()})
    return StateEvents(tuple(map(_event, found)))


def _event(event: ObservedEvent) -> StateEvent:
    return StateEvent(
        reason=event.reason,
        message=event.message,
        type=event.type,
        count=event.times,
        seen_at=event.seen_at,
        component=event.component,
    )
