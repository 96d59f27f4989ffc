"""One Deployment, ReplicaSet, StatefulSet, DaemonSet or Job, and what was last said of pods that it could not
create."""

import msgspec

from purser.kube.client import Client
from purser.kube.errors import ForbiddenError, NotFoundError
from purser.kube.object_events import events_about
from purser.kube.resources import Resource
from purser.kube.workloads import Workload

FAILED_CREATE = "FailedCreate"
"""Reason of kube-controller-manager's event where the API server refused a pod: a quota, a LimitRange, a webhook. Jobs
and StatefulSets have no condition that says so."""


class ReadWorkload(msgspec.Struct, frozen=True):
    """What was read of a workload."""

    found: Workload | None = None
    """None: there is none of that name, or it may not be read, which ``problems`` says."""
    last_failure: str = ""
    """The message of its last event `FAILED_CREATE`. The API server keeps events for an hour."""
    problems: tuple[str, ...] = ()


async def read_workload(client: Client, resource: Resource[Workload], namespace: str, name: str) -> ReadWorkload:
    """A workload of a cluster. Raises `purser.kube.errors.KubeError`."""
    try:
        found = await client.get(resource, name, namespace)
    except NotFoundError:
        return ReadWorkload()
    except ForbiddenError as error:
        return ReadWorkload(problems=(f"{resource.kind} {namespace}/{name}: you are not allowed to read it: {error}",))
    try:
        about = {"involvedObject.kind": resource.kind, "involvedObject.name": name, "reason": FAILED_CREATE}
        events = await events_about(client, namespace, about)
    except ForbiddenError as error:
        return ReadWorkload(found, problems=(f"events are skipped because you are not allowed to read them: {error}",))
    return ReadWorkload(found, events[-1].message if events else "")
