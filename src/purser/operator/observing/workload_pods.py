"""Pods that are not operands, as the operator reads them: which devices each holds, and whether its node can be emptied
beside it."""

import msgspec

from purser.core.names import GRANT_ANNOTATION
from purser.kube.pod_details import MirrorAnnotation, PodIdentity, PodSummary
from purser.kube.resources import PODS


class WorkloadAnnotations(MirrorAnnotation, frozen=True, gc=False):
    """The grant, too: it names the devices."""

    grant: str | None = msgspec.field(default=None, name=GRANT_ANNOTATION)


class WorkloadIdentity(PodIdentity, frozen=True, gc=False):
    """A pod's identity, with these annotations."""

    annotations: WorkloadAnnotations = WorkloadAnnotations()


class WorkloadPod(PodSummary, frozen=True, gc=False):
    """Any pod of the cluster."""

    metadata: WorkloadIdentity = WorkloadIdentity()


WORKLOAD_PODS = PODS.as_type(WorkloadPod)
