"""What pods ask for, read once: kube-scheduler asks about a pod three times before it is bound, in equal words."""

from collections.abc import Callable, Mapping
from functools import cached_property

import msgspec

from purser.adapters.pods import pod_spec
from purser.core.names import SCHEDULER_NAME
from purser.kube.objects import Pod
from purser.recent import Recent
from purser.scheduler.pod_reading import PodReading
from purser.scheduler.webhook import PLACEMENT_RULES, check_units, first_objection

MAX_READINGS = 2048
"""Pods whose reading is kept: as many as wait in a large burst; a few kB each."""


class AskedPod(PodReading):
    """A pod that is asked about."""

    def __init__(
        self,
        pod: Pod,
        enforcement_of_namespace: str = "",
        families: frozenset[str] = frozenset(),
        units_mib: Mapping[str, int] | None = None,
    ) -> None:
        spec = msgspec.structs.replace(pod_spec(pod), families=families)
        super().__init__(msgspec.structs.replace(spec, enforcement_of_namespace=enforcement_of_namespace))
        self.pod = pod
        self._units_mib = units_mib

    @cached_property
    def objection(self) -> str:
        """Why it is placed nowhere, in a sentence; empty where nothing is in the way."""
        decision = first_objection(self, PLACEMENT_RULES)
        if decision is None and self._units_mib is not None:
            decision = check_units(self, self._units_mib)
        return decision.message if decision else ""

    def is_of(self, pod: Pod) -> bool:
        """Whether this is the pod's reading. The pod comes from a client: an equal name does not suffice."""
        known, asked = self.pod.metadata, pod.metadata
        return self.pod is pod or (
            self.pod.spec == pod.spec
            and known.annotations == asked.annotations
            and known.labels == asked.labels
            and (known.uid, known.namespace, known.name) == (asked.uid, asked.namespace, asked.name)
        )


class Readings:
    """Readings of pods. Those of pods that wait for this scheduler are kept, because they are needed next: other pods
    do not evict them."""

    def __init__(
        self,
        scheduler_name: str = SCHEDULER_NAME,
        enforcement_of_namespace: Callable[[str], str] = lambda namespace: "",
        families: frozenset[str] = frozenset(),
        units_mib: Mapping[str, int] | None = None,
    ) -> None:
        """``families``: of other vendors, by name, whose devices Purser serves. ``units_mib``: the cluster's, by
        resource; None: not known, and what pods say of theirs is taken."""
        self._units_mib = units_mib
        self._families = families
        self._scheduler_name = scheduler_name
        self._enforcement_of_namespace = enforcement_of_namespace
        self._known: Recent[str, AskedPod] = Recent(MAX_READINGS)

    def __contains__(self, uid: str) -> bool:
        """Whether a pod's reading is kept."""
        return uid in self._known

    def of(self, pod: Pod) -> AskedPod:
        """What a pod requests; read again where the pod has changed."""
        known = self._known.get(pod.metadata.uid)
        of_namespace = self._enforcement_of_namespace(pod.metadata.namespace)
        if known is not None and known.spec.enforcement_of_namespace == of_namespace and known.is_of(pod):
            return known
        read, spec = self.read_changed(pod), pod.spec
        waits_here = spec.scheduler_name == self._scheduler_name and not spec.node_name
        return self._known.put(pod.metadata.uid, read) if waits_here else read

    def read_changed(self, pod: Pod) -> AskedPod:
        """What a pod would request if it were written like this: what is known of it as it is stays."""
        of_namespace = self._enforcement_of_namespace(pod.metadata.namespace)
        return AskedPod(pod, of_namespace, self._families, self._units_mib)

    def forget(self, uid: str) -> None:
        """The pod is bound or gone: its reading is not needed again, and its manifest may be large."""
        self._known.forget(uid)
