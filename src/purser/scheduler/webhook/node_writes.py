"""The validating webhook for writes of nodes and events: `purser.core.node.writers.refusal`, for older API servers.

Those of Kubernetes 1.30 and newer have policies for it (`purser.scheduler.webhook.node_policies`) and ask no webhook.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.core.names import DEFAULT_NAMESPACE
from purser.core.node.writers import (
    NODE_NAME_EXTRA,
    NODE_WRITERS,
    POD_NAME_EXTRA,
    POD_UID_EXTRA,
    NodeWrite,
    NodeWriter,
    refusal,
)
from purser.scheduler.bodies import WEBHOOK_BODIES
from purser.scheduler.webhook.node_policies import user_of
from purser.scheduler.webhook.review import AdmissionRequest, Decision, ReviewError, Why

RESOURCES = ("nodes", "events")

_objects: JsonReader[dict[str, Any]] = JsonReader(dict[str, Any], "the object", max_bytes=WEBHOOK_BODIES.each)

NodeOfPod = Callable[[str, str, str], str]
"""From a pod's namespace, name and uid to its node; empty where the pod is not known, or not this one."""


def no_pod_known(_namespace: str, _name: str, _uid: str) -> str:
    """The node of a pod, where no pods are known."""
    return ""


class NodeWrites:
    """Decides on writes of nodes and events by the accounts whose token lies on nodes; all others may."""

    def __init__(
        self,
        namespace: str = DEFAULT_NAMESPACE,
        node_of_pod: NodeOfPod = no_pod_known,
        writers: Sequence[NodeWriter] = NODE_WRITERS,
    ) -> None:
        self._namespace = namespace
        self._node_of_pod = node_of_pod
        self._writers = {user_of(each, namespace): each for each in writers}

    def review(self, request: AdmissionRequest) -> Decision:
        """What becomes of the write. Raises `ReviewError` when it cannot be read."""
        writer = self._writers.get(request.user_info.username)
        if writer is None:
            return Decision(True, Why.NOT_A_POD)
        write = NodeWrite(
            writer=writer,
            node=self._node(request.user_info.extra or {}),
            operation=request.operation,
            resource=request.resource.resource,
            name=request.name,
            new=_read(request.object),
            old=_read(request.old_object),
        )
        reason = refusal(write)
        return Decision(False, Why.NOT_ITS_NODE, reason) if reason else Decision(True, Why.ADMITTED)

    def _node(self, extra: Mapping[str, Sequence[str]]) -> str:
        node, name, uid = (_first(extra, key) for key in (NODE_NAME_EXTRA, POD_NAME_EXTRA, POD_UID_EXTRA))
        return node or (self._node_of_pod(self._namespace, name, uid) if name and uid else "")


def _first(extra: Mapping[str, Sequence[str]], key: str) -> str:
    return next(iter(extra.get(key) or ()), "")


def _read(raw: msgspec.Raw) -> Mapping[str, Any]:
    if bytes(raw) in (b"", b"null"):
        return {}
    try:
        return _objects.read(raw)
    except UnreadableError as error:
        raise ReviewError(f"the object in the AdmissionReview cannot be read: {error}") from error
