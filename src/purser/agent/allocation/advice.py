"""What to do about a pod that asks for devices and was admitted without a grant: it depends on how it came there."""

from purser.core.device.resources import is_gpu_resource
from purser.core.dialects.managed import MANAGED_VALUE, is_managed
from purser.core.names import (
    AWAITS_GRANT_ANNOTATION,
    IGNORE_WEBHOOK,
    NOT_GRANTED,
    SCHEDULER_NAME,
    WEBHOOK_LABELS,
    ignore_label_of,
)
from purser.kube.objects import DEFAULT_SCHEDULER, MIRROR_POD_ANNOTATION, POD_SOURCE_ANNOTATION, Pod

DEFAULT_SCHEDULERS = ("", DEFAULT_SCHEDULER, SCHEDULER_NAME)
"""Of pods whose authors leave it to Purser."""

_WITH_WEBHOOK = (
    f"without nodeName while Purser's webhook is reachable; if its namespace has the label {WEBHOOK_LABELS[0]}: "
    f"{IGNORE_WEBHOOK}, which disables the webhook, also set schedulerName: {SCHEDULER_NAME}"
)

NOT_SCHEDULED = f"The pod was not scheduled by {SCHEDULER_NAME}: delete and recreate it {_WITH_WEBHOOK}"
"""Where another scheduler bound it, or its author did."""

UNKNOWN_POD = f"Delete and recreate the pod. If it was not scheduled by {SCHEDULER_NAME}, recreate it {_WITH_WEBHOOK}"
"""Where the pod itself is not known: it may have been scheduled by Purser."""

BYPASSED_EXTENDER = (
    "The pod sets nodeName, or was bound by another component: delete and recreate it with a node selector "
    "instead of nodeName"
)
"""Where the pod names Purser's scheduler, which binds no pod without a grant."""

NOT_MANAGED = (
    "kube-scheduler bound the pod without asking Purser about {names}: add {names} to the managedResources of "
    f"Purser's extender in kube-scheduler's configuration (chart value {MANAGED_VALUE}), restart kube-scheduler, "
    "then delete and recreate the pod"
)
"""Where it asks for names alone that an administrator added for agents, and that configuration may lack them."""

GRANT_INVALID = "Delete and recreate the pod"
"""Where the pod carries a grant that does not count: a scheduler's was changed, or another pod's was copied."""


def advice(pod: Pod | None, *, has_invalid_grant: bool = False) -> str:
    """The advice for the pod's author; None: the pod is unknown. ``has_invalid_grant``: it has a grant that does not
    count."""
    if pod is None:
        return UNKNOWN_POD
    annotations, labels = pod.metadata.annotations, pod.metadata.labels
    if MIRROR_POD_ANNOTATION in annotations or annotations.get(POD_SOURCE_ANNOTATION, "api") != "api":
        return (
            "The pod is static: kubelet runs it from a file without a scheduler, so Purser cannot grant it a GPU. "
            "Run it as a DaemonSet or a Deployment"
        )
    if label := ignore_label_of(labels):
        return (
            f"The pod's label {label}: {IGNORE_WEBHOOK} disables Purser's webhook for it, so {SCHEDULER_NAME} "
            f"never saw the pod: recreate it without that label and, if it sets nodeName, with a node selector instead"
        )
    if annotations.get(AWAITS_GRANT_ANNOTATION) == NOT_GRANTED:
        return (
            f"{pod.spec.scheduler_name[:63]} placed the pod on a node where Purser found no GPU for it (see its "
            f"event NotGranted): delete the pod so that its controller creates another"
        )
    if pod.spec.scheduler_name not in DEFAULT_SCHEDULERS:
        return (
            f'The pod\'s schedulerName is "{pod.spec.scheduler_name[:63]}", so Purser did not grant it a GPU:'
            " recreate it without schedulerName"
        )
    if has_invalid_grant:
        return GRANT_INVALID
    if pod.spec.scheduler_name != SCHEDULER_NAME:
        return NOT_SCHEDULED
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    names = {name for each in containers for name in each.resources.limits if is_gpu_resource(name)}
    added = sorted(name for name in names if not is_managed(name))
    return NOT_MANAGED.format(names=", ".join(added)) if added and len(added) == len(names) else BYPASSED_EXTENDER
