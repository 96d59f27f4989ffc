"""The volumes that pods claim, as far as they decide where a pod can be."""

from collections.abc import Iterator

from purser.adapters.objects import ClusterObjects
from purser.core.decoding import brief, check_nesting, convert_value, without_nulls
from purser.core.kubernetes.affinity import NodeTerms
from purser.kube.objects import Pod
from purser.kube.pod_details import ScheduledPod, scheduler_message
from purser.kube.resources import key_of

_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
"""Of kube-scheduler's plugin VolumeBinding (1.20 to 1.37), where a claim's StorageClass does not wait for a pod."""


class Claims:
    """PersistentVolumeClaims and what they are bound to."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._are_known = objects.claims is not None
        self._claims = {key_of(each): each for each in objects.claims or ()}
        self._volumes = {each.metadata.name: each for each in objects.volumes}

    def volumes(self, pod: Pod) -> Iterator[tuple[str, NodeTerms]]:
        """Those of a pod's volumes that are not available everywhere. Raises
        `purser.core.decoding.UnreadableError`."""
        for name in _claim_names(pod):
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            volume = None if claim is None else self._volumes.get(claim.spec.volume_name)
            if volume is not None and volume.spec.node_affinity.required:
                terms = volume.spec.node_affinity.required
                check_nesting(terms, "nodeAffinity")
                yield volume.metadata.name, convert_value(without_nulls(terms), NodeTerms, "nodeAffinity")

    def unbound(self, pod: Pod) -> tuple[str, ...]:
        """Claims of a pod that are not bound now, where kube-scheduler said last that it waits for that. Without its
        word it is not known: it places pods whose StorageClass waits for them."""
        if _UNBOUND not in scheduler_message(pod):
            return ()
        named = ((name, self._claims.get(f"{pod.metadata.namespace}/{name}")) for name in _claim_names(pod))
        return tuple(brief(name) for name, claim in named if claim is not None and not claim.spec.volume_name)

    def missing(self, pod: Pod) -> str:
        """A claim that a pod names and that is not there; empty where claims were not read."""
        names = _claim_names(pod) if self._are_known else []
        return next((brief(name) for name in names if f"{pod.metadata.namespace}/{name}" not in self._claims), "")


def _claim_names(pod: Pod) -> list[str]:
    if not isinstance(pod, ScheduledPod):
        return []
    claims = (each.persistent_volume_claim for each in pod.spec.volumes)
    return [each.claim_name for each in claims if each is not None]
