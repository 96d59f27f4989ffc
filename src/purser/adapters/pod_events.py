"""The warnings about pods that have not started, beside the objects of its cluster."""

import msgspec

from purser.adapters.objects import ClusterObjects
from purser.kube.client import Client
from purser.kube.errors import ForbiddenError
from purser.kube.object_events import events_about
from purser.kube.pod_details import ScheduledPod
from purser.kube.pods import is_terminal
from purser.kube.workloads import is_of

MAX_PODS = 8
"""Pods of which events are read: one question to the API server each."""


async def with_warnings(
    client: Client, objects: ClusterObjects, kind: str, namespace: str, name: str
) -> ClusterObjects:
    """The objects, and the warnings about a pod (``kind`` is ``Pod``) or a workload's pods, as far as they have not
    started: their states name no failed mount, network or device, nor what Purser says of a pod that it does not place.
    Raises `purser.kube.errors.KubeError`."""
    not_started = [pod for pod in objects.pods if _is_not_started(pod) and _is_requested(pod, kind, namespace, name)]
    found = dict(objects.warnings)
    try:
        for pod in not_started[:MAX_PODS]:
            meta = pod.metadata
            found[meta.uid] = tuple(
                await events_about(client, meta.namespace, {"involvedObject.uid": meta.uid, "type": "Warning"})
            )
    except ForbiddenError as error:
        problem = f"events are skipped because you are not allowed to read them: {error}"
        return msgspec.structs.replace(objects, problems=(*objects.problems, problem))
    return msgspec.structs.replace(objects, warnings=found)


def _is_not_started(pod: ScheduledPod) -> bool:
    return not is_terminal(pod) and pod.status.phase != "Running"


def _is_requested(pod: ScheduledPod, kind: str, namespace: str, name: str) -> bool:
    if pod.metadata.namespace != namespace:
        return False
    return pod.metadata.name == name if kind == "Pod" else is_of(pod, kind, name)
