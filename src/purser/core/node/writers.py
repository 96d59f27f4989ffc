"""What Purser's accounts on nodes may write: the own node's keys that are theirs, events of it and of pods, no more.

Their tokens are on every node, where root can read them. RBAC cannot express "own node": `refusal` does. It is
evaluated by the API server as a ValidatingAdmissionPolicy (`purser.scheduler.webhook.node_policies`, Kubernetes 1.30
and newer) and by Purser's webhook (before); a table in the tests checks that both give the same answers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from purser.core.features.words import FEATURE_LABEL_PREFIXES, FEATURE_LABELS
from purser.core.names import (
    AGENT_CONDITIONS,
    DISPUTES_ANNOTATION,
    HEALTH_CORDON_ANNOTATION,
    INVENTORY_ANNOTATION,
    KUBELET_ANNOTATION,
    MIG_RESULT_ANNOTATION,
    NODE_FACTS_ANNOTATION,
    UNHEALTHY_TAINT,
)
from purser.core.node.amounts import AMOUNTS
from purser.core.vendors.catalogue import FAMILIES
from purser.core.vendors.hami_nodes import PLUGIN_LOCK, REGISTER_ANNOTATION
from purser.core.vendors.volcano_nodes import (
    VGPU_HANDSHAKE_ANNOTATION,
    VGPU_REGISTER_ANNOTATION,
    VOLCANO_LOCKS,
)

NODE_NAME_EXTRA = "authentication.kubernetes.io/node-name"
"""In a user's extra, Kubernetes 1.30 and newer: the node of the pod that its token is for."""

POD_NAME_EXTRA = "authentication.kubernetes.io/pod-name"
POD_UID_EXTRA = "authentication.kubernetes.io/pod-uid"
"""In a user's extra where tokens are bound to pods, as kubelet's are by default since Kubernetes 1.21."""

AMOUNT_FIELDS = ("capacity", "allocatable")
"""Of a node's status: what it lists of each resource."""

Json = Mapping[str, Any]


class NodeWriter(msgspec.Struct, frozen=True, kw_only=True):
    """An account whose token lies on nodes, and what it may write there."""

    account: str
    """Name of the ServiceAccount in Purser's namespace."""
    annotations: tuple[str, ...] = ()
    """Of its node: these."""
    label_prefixes: tuple[str, ...] = ()
    """Of its node: labels that begin so."""
    conditions: tuple[str, ...] = ()
    """Of its node's status: of these types."""
    amounts: tuple[str, ...] = ()
    """Of its node's status: how much there is of these, in `AMOUNT_FIELDS`."""
    taints: tuple[str, ...] = ()
    """Of its node: taints with these keys."""
    cordons: bool = False
    """Whether it may set its node's ``spec.unschedulable``."""
    reports: bool = False
    """Whether it may write events, in its node's name."""
    any_node: bool = False
    """Whether it may write nodes wherever it runs, and not its own alone. Its events are its own affair."""


NODE_WRITERS = (
    NodeWriter(
        account="purser-agent",
        annotations=(
            INVENTORY_ANNOTATION,
            KUBELET_ANNOTATION,
            DISPUTES_ANNOTATION,
            HEALTH_CORDON_ANNOTATION,
            REGISTER_ANNOTATION,
            VGPU_REGISTER_ANNOTATION,
            VGPU_HANDSHAKE_ANNOTATION,
        ),
        conditions=AGENT_CONDITIONS,
        amounts=AMOUNTS,
        reports=True,
    ),
    NodeWriter(account="purser-gpu-discovery", annotations=(NODE_FACTS_ANNOTATION,)),
    NodeWriter(account="purser-mig-manager", annotations=(MIG_RESULT_ANNOTATION,)),
    # NVIDIA's driver manager, in the driver's pods.
    NodeWriter(account="purser-driver", label_prefixes=("nvidia.com/gpu.deploy.",), cordons=True),
)
"""All whose token is on nodes: a test holds them to the accounts that RBAC lets write nodes."""


SCHEDULER_WRITER = NodeWriter(
    account="purser-scheduler",
    annotations=tuple(
        sorted({lock.annotation for lock in (PLUGIN_LOCK, *VOLCANO_LOCKS, *(each.lock for each in FAMILIES)) if lock})
    ),
    amounts=AMOUNTS,
    any_node=True,
)
"""Its token is not on every node, but it may patch each of them: locks of other vendors', HAMi's and Volcano's device
plugins, and amounts that HAMi's does not list."""

AGENT_LABELS = (*sorted(FEATURE_LABELS), *FEATURE_LABEL_PREFIXES)
"""Labels of its node that an agent may write where it publishes features there: these, and those that begin so."""


def node_writers(
    *, agents_taint: bool = False, agents_cordon: bool = False, agents_label: bool = False
) -> tuple[NodeWriter, ...]:
    """The same where agents may taint or cordon their nodes for ill GPUs, or label them with the GPUs' features."""
    agent, *others = NODE_WRITERS
    taints = (UNHEALTHY_TAINT,) if agents_taint else ()
    labels = AGENT_LABELS if agents_label else ()
    return msgspec.structs.replace(agent, taints=taints, cordons=agents_cordon, label_prefixes=labels), *others


class NodeWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write by one of these accounts."""

    writer: NodeWriter
    node: str
    """The node of the pod that its token is for; empty where the token does not name it."""
    operation: str
    """``CREATE``, ``UPDATE`` or ``DELETE``."""
    resource: str
    """``nodes`` or ``events``, whatever the subresource."""
    name: str
    """The object's; empty where the API server is to choose it."""
    new: Json
    """The object after the write; empty for ``DELETE``."""
    old: Json
    """The object before the write; empty for ``CREATE``."""


def refusal(write: NodeWrite) -> str:
    """Why the write is refused, for logs; empty where it is admitted."""
    if not (write.node or write.writer.any_node):
        return f"the token of {write.writer.account} is not bound to a node"
    reasons = _event_objections(write) if write.resource == "events" else _node_objections(write)
    who = write.writer.account + ("" if write.writer.any_node else f" on node {write.node}")
    return next((f"{who}: {reason}" for reason in reasons), "")


def _node_objections(write: NodeWrite) -> Iterator[str]:
    if write.operation != "UPDATE":
        yield "it may not create or delete nodes"
        return
    if write.name != write.node and not write.writer.any_node:
        yield f"it may not write node {write.name}"
    may = write.writer
    new, old = _part(write.new, "metadata"), _part(write.old, "metadata")
    for key in _changed_keys(_part(new, "annotations"), _part(old, "annotations")):
        if key not in may.annotations:
            yield f"it may not write annotation {key}"
    for key in _changed_keys(_part(new, "labels"), _part(old, "labels")):
        if not key.startswith(may.label_prefixes or "\0"):
            yield f"it may not write label {key}"
    for key in ("finalizers", "ownerReferences"):
        if (new.get(key) or []) != (old.get(key) or []):
            yield f"it may not write metadata.{key}"
    for key in _changed_keys(_part(write.new, "spec"), _part(write.old, "spec")):
        if key == "taints":
            if _other_taints(may, write.new) != _other_taints(may, write.old):
                yield "it may write only its own taints"
        elif not (may.cordons and key == "unschedulable"):
            yield f"it may not write spec.{key}"
    yield from _status_objections(may, _part(write.new, "status"), _part(write.old, "status"))


def _status_objections(may: NodeWriter, new: Json, old: Json) -> Iterator[str]:
    for key in _changed_keys(new, old):
        if key not in ("conditions", *AMOUNT_FIELDS):
            yield f"it may not write status.{key}"
    for field in AMOUNT_FIELDS:
        for resource in _changed_keys(_part(new, field), _part(old, field)):
            if resource not in may.amounts:
                yield f"it may not write {field} of {resource}"
    if _other_conditions(may, new) != _other_conditions(may, old):
        yield "it may write only its own conditions"


def _other_conditions(may: NodeWriter, status: Json) -> list[Any]:
    return [each for each in status.get("conditions") or [] if each.get("type") not in may.conditions]


def _other_taints(may: NodeWriter, node: Json) -> list[Any]:
    return [each for each in _part(node, "spec").get("taints") or [] if each.get("key") not in may.taints]


def _event_objections(write: NodeWrite) -> Iterator[str]:
    if not write.writer.reports or write.operation == "DELETE":
        yield "it may not write or delete this event"
        return
    about, before = _part(write.new, "involvedObject"), _part(write.old, "involvedObject")
    if about.get("kind") == "Node":
        if about.get("name") != write.node:
            yield "its events must be about its own node or about pods"
    elif about.get("kind") != "Pod":
        yield "its events must be about its own node or about pods"
    if not _is_own(write.new, write):
        yield "its events must name it in reportingComponent and its node in reportingInstance"
    if write.operation == "UPDATE" and not (_is_own(write.old, write) and about == before):
        yield "it may change only its own events"


def _is_own(event: Json, write: NodeWrite) -> bool:
    """Whether an event is in its name and its node's: kubelet's events name the node as well."""
    who, where = event.get("reportingComponent"), event.get("reportingInstance")
    source = _part(event, "source").get("component", write.writer.account)
    return (who, where, source) == (write.writer.account, write.node, write.writer.account)


def _part(value: Json, key: str) -> Json:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _changed_keys(new: Json, old: Json) -> list[str]:
    """Keys that came, went or have another value."""
    return [key for key in (*new, *(each for each in old if each not in new)) if _has_changed(new, old, key)]


def _has_changed(new: Json, old: Json, key: str) -> bool:
    return key not in new or key not in old or new[key] != old[key]
