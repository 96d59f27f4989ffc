"""A pod that does not exist yet, as it would be once it was created."""

from typing import Any

import msgspec

from purser.adapters.dry_runs import CreationAnswer
from purser.adapters.manifests import ManifestError, ManifestPod
from purser.core.decoding import brief
from purser.core.names import ignore_label_of
from purser.kube.codec import codec_of
from purser.kube.errors import DecodeError
from purser.kube.pod_details import SCHEDULED_PODS, ScheduledPod
from purser.scheduler.explaining.known import KnownCluster
from purser.scheduler.webhook import ReviewError, mutate_pod

NEW_UID = "new"
"""Of a pod that has none yet."""
_MAX_REFUSAL = 1000
"""Characters."""


class NewPod(msgspec.Struct, frozen=True):
    """What would be created."""

    pod: ScheduledPod
    refusal: str = ""
    """Why nothing would be created; empty: it would."""
    warnings: tuple[str, ...] = ()
    """What its author would be told."""


def new_pod(cluster: KnownCluster, asked: ManifestPod, namespace: str, answer: CreationAnswer | None = None) -> NewPod:
    """The pod as the API server would create it, or, where that is not known, as Purser's webhook would make it.
    Raises `ManifestError` for a pod that cannot be read."""
    made = _by_webhook(cluster, asked, namespace)
    if answer is None or answer.unknown:
        return made
    if answer.pod is None:
        text = f"the API server would reject the pod: {brief(answer.refusal, _MAX_REFUSAL)}"
        return msgspec.structs.replace(made, refusal=text)
    pod = answer.pod
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=asked.name, uid=NEW_UID))
    return NewPod(pod, _preset_node_text(pod), made.warnings)


def _by_webhook(cluster: KnownCluster, asked: ManifestPod, namespace: str) -> NewPod:
    metadata = {**asked.body["metadata"], "namespace": namespace, "uid": NEW_UID}
    body: dict[str, Any] = {**asked.body, "metadata": metadata}
    try:
        pod = _decoded(body)
        webhook = cluster.webhook()
        labels = cluster.labels_of_namespace(namespace)
        if labels is None:
            return NewPod(pod, f"namespace {namespace} does not exist")
        if webhook is None or ignore_label_of(pod.metadata.labels) or ignore_label_of(labels):
            return NewPod(pod, _preset_node_text(pod))
        changed, decision = mutate_pod(body, namespace, webhook)
        if not decision.allowed:
            return NewPod(pod, f"Purser's webhook would reject the pod: {decision.message}", decision.warnings)
        pod = _decoded(changed)
        return NewPod(pod, _preset_node_text(pod), decision.warnings)
    except (DecodeError, ReviewError) as error:
        raise ManifestError(f"{asked.kind} {asked.name}: {brief(error)}") from error


def _preset_node_text(pod: ScheduledPod) -> str:
    node = brief(pod.spec.node_name, 253)
    return f"spec.nodeName is {node}: the kubelet on that node would run the pod without a scheduler" if node else ""


def _decoded(body: dict[str, Any]) -> ScheduledPod:
    return codec_of(SCHEDULED_PODS).object(msgspec.json.encode(body))
