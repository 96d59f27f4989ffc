"""What a node's agent reports beyond the pods' own annotations: devices in dispute, the content of an annotation. Pure.

The annotation is absent while all records agree, which is nearly always.
"""

from collections.abc import Callable, Iterable

import msgspec

from purser.core.kubernetes.reasons import ExplainedReason
from purser.core.model import ContainerGrant
from purser.core.names import DISPUTES_ANNOTATION
from purser.core.node.annotations import MAX_NODE_MESSAGE_BYTES, NodeMessage, encode


class DisputeReason(ExplainedReason):
    """Of events on a node of whose GPUs records differ: of its agent, and of the scheduler."""

    GPU_DISPUTED = (
        "GpuDisputed",
        "Node",
        "Pods hold GPUs of the node without a valid grant or after they have ended, or were refused the GPUs that they "
        "were granted. These GPUs are closed to new pods. Condition PurserGpuDisputed has the same reason.",
        "Delete the pods that the message names. If a pod no longer exists, check whether its "
        "containers are still running on the node.",
    )
    GPU_DISPUTE_SETTLED = (
        "GpuDisputeSettled",
        "Node",
        "All records of which pods hold the node's GPUs agree again, and the GPUs are open to new pods.",
    )


class HeldReason(ExplainedReason):
    """Why a pod's devices have to be reported in the annotation of its node."""

    GRANT_MISSING = (
        "grant-missing",
        "Pod",
        "The pod's grant annotation was removed.",
        "Recreate the pod.",
    )
    GRANT_UNTRUSTED = (
        "grant-untrusted",
        "Pod",
        "The pod's grant is not valid, for example because it was changed or the key that signed it was revoked.",
        "Recreate the pod.",
    )
    NEVER_GRANTED = (
        "never-granted",
        "Pod",
        "The pod never had a grant, for example because another device plugin served it.",
        "Delete the pod.",
    )
    ENDED = (
        "ended",
        "Pod",
        "According to the API server, the pod has ended or no longer exists, but kubelet still lists devices for it.",
        "Wait a moment. If kubelet still lists the devices, check whether the pod's containers are still "
        "running on the node.",
    )


class HeldPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that holds devices beyond its annotations or its status; it may hold none."""

    namespace: str
    pod: str
    uid: str
    why: HeldReason
    containers: tuple[ContainerGrant, ...] = ()
    """What it holds, where the agent's book has its grant."""
    uuids: tuple[str, ...] = ()
    """The GPUs that it holds an unknown amount of."""

    @property
    def key(self) -> str:
        """As informers key pods."""
        return f"{self.namespace}/{self.pod}"

    @property
    def gpus(self) -> frozenset[str]:
        """All that it holds anything of."""
        return frozenset(self.uuids).union(*(part.uuids for part in self.containers))


class RefusedPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A granted pod that the agent refused: what the scheduler believes of these GPUs is not so."""

    namespace: str
    pod: str
    uid: str
    reason: str
    """As events of the agent name it."""
    uuids: tuple[str, ...]
    in_the_way: tuple[str, ...] = ()
    """Keys of the pods that hold the GPUs."""

    @property
    def key(self) -> str:
        """As informers key pods."""
        return f"{self.namespace}/{self.pod}"


class NodeDisputes(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that an agent has to report; equal to ``NodeDisputes(node)`` where that is nothing."""

    node: str
    held: tuple[HeldPod, ...] = ()
    refused: tuple[RefusedPod, ...] = ()
    closed: tuple[str, ...] = ()
    """GPUs held by more such pods than there is room to name."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.held or self.refused or self.closed)


_messages = NodeMessage(NodeDisputes, DISPUTES_ANNOTATION)


def read_disputes(text: str | None, node: str) -> NodeDisputes | None:
    """The disputes in a node's annotation; None where it is absent or cannot be read."""
    disputes = _messages.read(text)
    if disputes is None or disputes.node != node:
        return None
    shares = (share for held in disputes.held for part in held.containers for share in part.shares)
    return disputes if all(share.memory_mib >= 0 and share.cores_percent >= 0 for share in shares) else None


def text_of(disputes: NodeDisputes) -> str:
    """The annotation's text, shortened where it would be too long: first the amounts are left out, then the names.
    Where not even the pods' uids fit (more pods than any kubelet takes), it names GPUs alone."""
    whole_gpus = msgspec.structs.replace(
        disputes,
        held=tuple(
            msgspec.structs.replace(held, containers=(), uuids=tuple(sorted(held.gpus))) for held in disputes.held
        ),
    )
    gpus = frozenset[str]().union(*(held.gpus for held in disputes.held), *(each.uuids for each in disputes.refused))
    nameless = msgspec.structs.replace(
        disputes,
        held=tuple(msgspec.structs.replace(held, namespace="", pod="") for held in whole_gpus.held),
        refused=(),
        closed=tuple(sorted({uuid for each in disputes.refused for uuid in each.uuids}.union(disputes.closed))),
    )
    for form in (disputes, whole_gpus, nameless):
        if len(text := encode(form)) <= MAX_NODE_MESSAGE_BYTES:
            return text
    return encode(NodeDisputes(disputes.node, closed=tuple(sorted(gpus.union(disputes.closed)))))


def closed_gpus(disputes: NodeDisputes, is_live: Callable[[str], bool]) -> dict[str, str]:
    """Why GPUs take no new grants, by uuid. ``is_live`` says of a pod, by uid, whether it is still there: what held
    them may have ended since. A refusal stands until the agent takes it back, and so does that a pod which is said to
    have ended holds them."""
    closed = dict.fromkeys(disputes.closed, "more pods dispute the GPU than the node can list")
    for each in disputes.refused:
        closed |= dict.fromkeys(each.uuids, _refusal(each))
    for held in disputes.held:
        if held.why is HeldReason.ENDED:
            closed |= dict.fromkeys(
                held.uuids,
                f"{_pod_text(held)} still holds the GPU, although the pod has ended or no longer exists according to "
                "the API server",
            )
        elif is_live(held.uid):
            closed |= dict.fromkeys(held.uuids, f"{_pod_text(held)} holds the GPU without a valid grant")
    return closed


def sentence(disputes: NodeDisputes) -> str:
    """For people: which pods are in the way, and of what."""
    clauses = [*map(_holding, (held for held in disputes.held if held.gpus)), *map(_refused, disputes.refused)]
    if disputes.closed:
        clauses.append(f"more pods than can be listed dispute {_gpus(disputes.closed)}")
    return "; ".join(clauses)


def _holding(held: HeldPod) -> str:
    words = {
        HeldReason.GRANT_MISSING: "but its grant annotation was removed",
        HeldReason.GRANT_UNTRUSTED: "but its grant annotation is invalid",
        HeldReason.NEVER_GRANTED: "but it has no grant from Purser",
        HeldReason.ENDED: "but it has ended or no longer exists according to the API server",
    }
    return f"pod {held.key} holds {_gpus(held.gpus)}, {words[held.why]}"


def _refused(each: RefusedPod) -> str:
    way = f", blocked by {', '.join(each.in_the_way)}" if each.in_the_way else ""
    return f"pod {each.key} was refused {_gpus(each.uuids)} ({each.reason}{way})"


def _pod_text(held: HeldPod) -> str:
    return f"pod {held.key}" if held.pod else "a pod"


def _refusal(each: RefusedPod) -> str:
    verb = "holds" if len(each.in_the_way) == 1 else "hold"
    way = f": {', '.join(f'pod {key}' for key in each.in_the_way)} {verb} the GPU" if each.in_the_way else ""
    return f"its node refused pod {each.key} ({each.reason}){way}"


def _gpus(uuids: Iterable[str]) -> str:
    return ", ".join(sorted(uuids))
