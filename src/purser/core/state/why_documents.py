"""The document on why one pod waits, or where it is."""

from enum import StrEnum

import msgspec

from purser.core.state.documents import STATE_VERSION


class WhyState(StrEnum):
    """How far a pod has come."""

    WAITING = "waiting"
    PLACED = "placed"
    """It is on a node."""
    ENDED = "ended"


class WhyReason(msgspec.Struct, frozen=True):
    """One reason why nodes do not take the pod, and for how much it holds."""

    by: str
    """Who refuses: ``Purser``."""
    reason: str
    """The word: see docs/reasons.md."""
    nodes: int
    gpus: int
    """0: it is about nodes as a whole."""
    text: str
    """In a sentence."""
    examples: tuple[str, ...] = ()
    """Some of the nodes, where the reader may list nodes."""


class WhySuggestion(msgspec.Struct, frozen=True):
    """One change of the pod by which it would fit now; it was tried."""

    kind: str
    """``amount`` or ``annotation``."""
    text: str
    """What follows an *if*."""
    fits: int
    """On how many nodes it then fits."""
    examples: tuple[str, ...] = ()
    """Some of them, where the reader may list nodes."""


class PodWhy(msgspec.Struct, frozen=True):
    """Why a pod waits, or where it is: `GET /v1/namespaces/NAMESPACE/pods/NAME/why`."""

    namespace: str
    pod: str
    uid: str
    scheduler: str
    """Who places it, by the pod."""
    state: WhyState
    node: str = ""
    """Empty: it is on none."""
    nodes: int = 0
    """How many were asked: those that kube-scheduler asked about last, else all with GPUs."""
    fits: int = 0
    """How many of these would take it now."""
    objection: str = ""
    """Why it is placed nowhere, whatever the nodes, in a sentence without its end; of a pod that has ended, its last
    reason and message. Empty: nothing is in the way."""
    reasons: tuple[WhyReason, ...] = ()
    """Of the nodes that do not take it, those of most nodes first."""
    further_reasons: tuple[WhyReason, ...] = ()
    """Of nodes that kube-scheduler's filters reject, of which ``reasons`` has the first: the others. Empty where a node
    would take the pod now."""
    suggestions: tuple[WhySuggestion, ...] = ()
    ended_early: bool = False
    """Whether the time was over before all changes were tried."""
    message: str = ""
    """What kube-scheduler was told last; empty: nothing, or this replica does not know."""
    last_message: str = ""
    """What its scheduler said last, by the pod's condition PodScheduled."""
    notes: tuple[str, ...] = ()
    """What is not known."""
    api_version: str = STATE_VERSION
