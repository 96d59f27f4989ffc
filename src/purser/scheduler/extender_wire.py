"""The extender's messages to and from bytes."""

from typing import TypeVar

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.kube.codec import codec_of
from purser.kube.errors import DecodeError
from purser.kube.objects import Pod
from purser.kube.resources import PODS
from purser.recent import Recent
from purser.scheduler.bodies import EXTENDER_BODIES
from purser.scheduler.extender_api import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderPreemptionArgs,
    MetaVictims,
)

T = TypeVar("T")

MAX_KEPT = 1024 * 1024
"""Bytes of names that are kept for the next question: some 30 000 names."""


class WireError(ValueError):
    """A body that is not what kube-scheduler sends; the message says where."""


class _Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw = msgspec.Raw(b"null")
    node_names: msgspec.Raw = msgspec.Raw(b"null")


class _PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw = msgspec.Raw(b"null")
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


_NAME = "the extender request"
_args_reader = JsonReader(_Args, _NAME, max_bytes=EXTENDER_BODIES.per_body)
_names_reader = JsonReader(list[str], "NodeNames", max_bytes=EXTENDER_BODIES.per_body)
_known_names: Recent[bytes, list[str]] = Recent(8)
"""By their text: from one pod to the next the same nodes are asked about, thousands in large clusters."""
_bindings_reader = JsonReader(ExtenderBindingArgs, _NAME, max_bytes=EXTENDER_BODIES.per_body)
_preemptions_reader = JsonReader(_PreemptionArgs, _NAME, max_bytes=EXTENDER_BODIES.per_body)


def decode_args(body: bytes) -> ExtenderArgs:
    """What ``filter`` and ``prioritize`` are asked; the names are to be read only. Raises `WireError`."""
    args = _decode(_args_reader, body)
    names = _node_names(bytes(args.node_names))
    if names is None:
        raise WireError("NodeNames is missing: set nodeCacheCapable to true in kube-scheduler's extender configuration")
    return ExtenderArgs(_pod(args.pod), names)


def decode_binding(body: bytes) -> ExtenderBindingArgs:
    """What ``bind`` is asked. Raises `WireError`."""
    args = _decode(_bindings_reader, body)
    if not (args.pod_name and args.pod_namespace and args.pod_uid and args.node):
        raise WireError("PodName, PodNamespace, PodUID and Node are all required")
    return args


def decode_preemption(body: bytes) -> ExtenderPreemptionArgs:
    """What ``preempt`` is asked. Raises `WireError`."""
    args = _decode(_preemptions_reader, body)
    if args.node_name_to_meta_victims is None:
        raise WireError(
            "NodeNameToMetaVictims is missing: set nodeCacheCapable to true in kube-scheduler's extender configuration"
        )
    pod = _pod(args.pod)
    if not (pod.metadata.namespace and pod.metadata.name):
        raise WireError("Pod's metadata.namespace and metadata.name are both required")
    return ExtenderPreemptionArgs(pod, args.node_name_to_meta_victims)


def _decode(reader: JsonReader[T], body: bytes) -> T:
    try:
        return reader.read(body)
    except UnreadableError as error:
        raise WireError(str(error)) from error


def _node_names(text: bytes) -> list[str] | None:
    if text == b"null":
        return None
    if len(text) > MAX_KEPT:
        return _decode(_names_reader, text)
    known = _known_names.get(text)
    return _known_names.put(text, _decode(_names_reader, text)) if known is None else known


def _pod(data: msgspec.Raw) -> Pod:
    if bytes(data) == b"null":
        raise WireError("Pod is missing")
    try:
        return codec_of(PODS).object(data)
    except DecodeError as error:
        raise WireError(f"Pod cannot be read: {error}") from error
