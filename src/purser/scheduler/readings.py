"""What pods ask for, read once: kube-scheduler asks about a pod three times before it is bound, in equal words."""

from functools import cached_property

from purser.adapters.pods import pod_spec
from purser.core.dialects import DialectError, parse
from purser.core.model import PodRequest
from purser.core.pod.manifest import PodManifest
from purser.core.recent import Recent
from purser.kube.objects import Pod
from purser.scheduler.eligibility import objection

MOST = 2048
"""Pods whose reading is kept: as many as wait in a large burst; a few kB each."""


class PodReading:
    """One pod as it was read."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.spec: PodManifest = pod_spec(pod)

    @cached_property
    def objection(self) -> str:
        """See `purser.scheduler.eligibility.objection`."""
        return objection(self.spec)

    def request(self) -> PodRequest | None:
        """See `purser.core.dialects.parse`. Raises `DialectError`."""
        if isinstance(self._request, DialectError):
            raise DialectError(self._request.problems)
        return self._request

    @cached_property
    def _request(self) -> PodRequest | DialectError | None:
        try:
            return parse(self.spec)
        except DialectError as error:
            return DialectError(error.problems)  # without the traceback, which grows whenever it is raised

    def is_of(self, pod: Pod) -> bool:
        """Whether this is what the pod says. Whoever asks may have written it: an equal name does not do."""
        known, asked = self.pod.metadata, pod.metadata
        return self.pod is pod or (
            self.pod.spec == pod.spec
            and known.annotations == asked.annotations
            and known.labels == asked.labels
            and (known.uid, known.namespace, known.name) == (asked.uid, asked.namespace, asked.name)
        )


class Readings:
    """The readings of the pods that were asked about last."""

    def __init__(self) -> None:
        self._known: Recent[str, PodReading] = Recent(MOST)

    def __contains__(self, uid: str) -> bool:
        """Whether a pod's reading is kept."""
        return uid in self._known

    def of(self, pod: Pod) -> PodReading:
        """What a pod asks for; read anew where it says something else by now."""
        known = self._known.get(pod.metadata.uid)
        if known is not None and known.is_of(pod):
            return known
        return self._known.put(pod.metadata.uid, PodReading(pod))

    def forget(self, uid: str) -> None:
        """The pod is bound or gone: nobody asks about it again, and its manifest may be large."""
        self._known.forget(uid)
