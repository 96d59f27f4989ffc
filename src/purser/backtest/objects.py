"""Kubernetes' objects with the times that they carry: what kubectl prints."""

import msgspec

from purser.kube.objects import Event, Node, Pod, PodStatus, Slim
from purser.kube.pod_details import PodCondition
from purser.kube.resources import EVENTS, PODS


class EventSeries(Slim, frozen=True, gc=False):
    """How often an event was seen again, where events.k8s.io/v1 wrote it."""

    count: int = 0
    last_observed_time: str = ""


class TimestampedEvent(Event, frozen=True, gc=False):
    """An event with its times: kube-scheduler writes the newer ``eventTime`` and ``series``, kubelet the older ones,
    and either writes null for the others."""

    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None


class ContainerEnd(Slim, frozen=True, gc=False):
    """When a container ended."""

    finished_at: str = ""


class ContainerEndState(Slim, frozen=True, gc=False):
    """Of a container's states the one after its end."""

    terminated: ContainerEnd = ContainerEnd()


class EndedContainer(Slim, frozen=True, gc=False):
    """A container's status, as far as it says when it ended."""

    state: ContainerEndState = ContainerEndState()


class TimestampedPodStatus(PodStatus, frozen=True, gc=False):
    """How far a pod has come, and when."""

    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[EndedContainer, ...] = ()


class TimestampedPod(Pod, frozen=True, gc=False):
    """A pod with its times."""

    status: TimestampedPodStatus = TimestampedPodStatus()


class Dump(msgspec.Struct, frozen=True):
    """All objects of some files, each once."""

    events: tuple[TimestampedEvent, ...]
    pods: tuple[TimestampedPod, ...]
    nodes: tuple[Node, ...]
    lists_pods: bool
    """Whether any pod is listed, of whatever kind: then one that is not is gone."""


DATED_EVENTS = EVENTS.as_type(TimestampedEvent)
DATED_PODS = PODS.as_type(TimestampedPod)
