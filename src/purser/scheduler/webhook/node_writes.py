"""The validating webhook for what accounts on nodes do: writes of nodes and events, and evictions; and for what the
scheduler's account writes of nodes.

Writes are judged by `purser.core.node.writers.refusal`, for older API servers: those of Kubernetes 1.30 and newer have
policies for it (`purser.scheduler.webhook.node_policies`). No policy can look up where a pod runs, so evictions are
asked about in all versions that can ask about these accounts alone, 1.28 and newer.
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
    SCHEDULER_WRITER,
    NodeWrite,
    NodeWriter,
    refusal,
)
from purser.scheduler.bodies import WEBHOOK_BODIES
from purser.scheduler.webhook.node_policies import user_of
from purser.scheduler.webhook.review import AdmissionRequest, Decision, DecisionReason, ReviewError

RESOURCES = ("nodes", "events")

EVICTIONS = ("pods", "eviction")

_object_reader: JsonReader[dict[str, Any]] = JsonReader(dict[str, Any], "the object", max_bytes=WEBHOOK_BODIES.per_body)


class _Preconditions(msgspec.Struct, frozen=True):
    uid: str = ""


class _DeleteOptions(msgspec.Struct, frozen=True):
    preconditions: _Preconditions = _Preconditions()


class _Eviction(msgspec.Struct, frozen=True, rename="camel"):
    delete_options: _DeleteOptions = _DeleteOptions()


_eviction_reader = JsonReader(_Eviction, "the Eviction", max_bytes=WEBHOOK_BODIES.per_body)

NodeOfPod = Callable[[str, str, str], str]
"""From a pod's namespace, name and uid to its node; empty where the pod is not known, or not this one."""


def no_node(_namespace: str, _name: str, _uid: str) -> str:
    """The node of a pod, where no pods are known."""
    return ""


class NodeWrites:
    """Decides on writes of nodes and events, and on evictions, by the accounts whose token lies on nodes, and on the
    scheduler's writes of nodes; all others may."""

    def __init__(
        self,
        namespace: str = DEFAULT_NAMESPACE,
        node_of_pod: NodeOfPod = no_node,
        writers: Sequence[NodeWriter] = NODE_WRITERS,
    ) -> None:
        self._namespace = namespace
        self._node_of_pod = node_of_pod
        self._writers = {user_of(each, namespace): each for each in (*writers, SCHEDULER_WRITER)}

    def review(self, request: AdmissionRequest) -> Decision:
        """What becomes of the write. Raises `ReviewError` when it cannot be read."""
        writer = self._writers.get(request.user_info.username)
        if writer is None or (writer.any_node and request.resource.resource != "nodes"):
            return Decision(True, DecisionReason.NOT_A_POD)
        node = self._node(request.user_info.extra or {})
        if (request.resource.resource, request.sub_resource) == EVICTIONS:
            return self._review_eviction(request, node)
        write = NodeWrite(
            writer=writer,
            node=node,
            operation=request.operation,
            resource=request.resource.resource,
            name=request.name,
            new=_read(request.object),
            old=_read(request.old_object),
        )
        reason = refusal(write)
        return (
            Decision(False, DecisionReason.NOT_ITS_NODE, reason) if reason else Decision(True, DecisionReason.ADMITTED)
        )

    def _review_eviction(self, request: AdmissionRequest, node: str) -> Decision:
        """Of a pod on its own node alone, which it names by uid: another pod may have the name by now."""
        try:
            uid = _eviction_reader.read(request.object).delete_options.preconditions.uid
        except UnreadableError as error:
            raise ReviewError(f"the eviction in the AdmissionReview cannot be read: {error}") from error
        if not node or not uid or self._node_of_pod(request.namespace, request.name, uid) != node:
            where = f"on node {node}" if node else "(whose token is not bound to a node)"
            message = f"{request.user_info.username} {where} may evict only pods on its own node, by name and UID"
            return Decision(False, DecisionReason.NOT_ITS_NODE, message)
        return Decision(True, DecisionReason.ADMITTED)

    def _node(self, extra: Mapping[str, Sequence[str]]) -> str:
        node, name, uid = (_first(extra, key) for key in (NODE_NAME_EXTRA, POD_NAME_EXTRA, POD_UID_EXTRA))
        return node or (self._node_of_pod(self._namespace, name, uid) if name and uid else "")


def _first(extra: Mapping[str, Sequence[str]], key: str) -> str:
    return next(iter(extra.get(key) or ()), "")


def _read(raw: msgspec.Raw) -> Mapping[str, Any]:
    if bytes(raw) in (b"", b"null"):
        return {}
    try:
        return _object_reader.read(raw)
    except UnreadableError as error:
        raise ReviewError(f"the object in the AdmissionReview cannot be read: {error}") from error
