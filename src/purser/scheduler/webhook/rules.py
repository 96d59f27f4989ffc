"""What both webhooks ask of a pod that wants devices: one rule, one function, each a decision or None."""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from purser.adapters.pods import pod_spec
from purser.core.dialects import DialectError, kai, record_annotations, vendor_families, vendor_records
from purser.core.names import (
    IGNORE_WEBHOOK,
    MEMORY_UNITS_ANNOTATION,
    PROTECTED_POD_ANNOTATIONS,
    ignore_label_of,
)
from purser.core.pod.manifest import PodManifest
from purser.core.pod.units import units_text
from purser.kube.codec import codec_of
from purser.kube.errors import DecodeError
from purser.kube.objects import DEFAULT_SCHEDULER, MIRROR_POD_ANNOTATION
from purser.kube.resources import PODS
from purser.scheduler.pod_reading import PodReading
from purser.scheduler.webhook.device_rules import check_enforcement_requirement, check_named_devices, check_share_limits
from purser.scheduler.webhook.review import AdmissionRequest, Decision, DecisionReason, ReviewError, UserInfo

_NODE_USERS, _NODE_GROUP = "system:node:", "system:nodes"

MAX_ANNOTATION_BYTES = 160 * 1024
"""Of a GPU pod's own annotations, keys and values: the API server takes 256 KiB of one object, and refuses the Binding
of a pod whose grant does not fit beside them, after others may have been asked to go for it."""

Rule = Callable[[PodReading], Decision | None]


def placed_scheduler_names(scheduler_name: str, adopted: Collection[str]) -> frozenset[str]:
    """The schedulerNames of pods that Purser places: its own, none, and those that an administrator lists."""
    return frozenset(("", DEFAULT_SCHEDULER, scheduler_name, *adopted))


def is_served(pod: PodManifest, served: Collection[str]) -> bool:
    """Whether another scheduler, one that an administrator lists, places the pod, and Purser grants it GPUs."""
    return pod.scheduler_name in served and not vendor_families(pod)


def pod_of(request: AdmissionRequest, data: msgspec.Raw) -> PodManifest:
    """The pod in a request; on create the namespace may stand in the request alone. Raises `ReviewError`."""
    try:
        pod = pod_spec(codec_of(PODS).object(data))
    except DecodeError as error:
        raise ReviewError(f"the pod in the AdmissionReview cannot be read: {error}") from error
    return msgspec.structs.replace(pod, namespace=pod.namespace or request.namespace)


def is_node(user: UserInfo) -> bool:
    """Whether the user is a kubelet."""
    return user.username.startswith(_NODE_USERS) and _NODE_GROUP in (user.groups or ())


def is_mirror(pod: PodManifest, user: UserInfo) -> bool:
    """Whether kubelet created the pod as a mirror of a static pod, which runs in any case.

    Of others the API server lets the annotation pass.
    """
    return is_node(user) and MIRROR_POD_ANNOTATION in pod.annotations


def first_objection(pod: PodReading, rules: Iterable[Rule]) -> Decision | None:
    """What the first of the rules that minds has to say."""
    return next((decision for rule in rules if (decision := rule(pod)) is not None), None)


def check_forged_grant(pod: PodReading) -> Decision | None:
    """Grants come with the Binding: one on a new pod is forged or copied."""
    return _check_annotations(pod.spec, PROTECTED_POD_ANNOTATIONS, DecisionReason.FORGED_GRANT)


def check_forged_record(pod: PodReading) -> Decision | None:
    """The same for other systems' records, which their tools take at face value (HAMi issue 3041)."""
    return _check_annotations(pod.spec, record_annotations(pod.spec), DecisionReason.FORGED_RECORD)


def check_forged_vendor_record(pod: PodReading) -> Decision | None:
    """The same of pods that Purser does not place: the vendor's device plugin serves what the record says, whoever
    wrote it."""
    return _check_annotations(pod.spec, vendor_records(pod.spec), DecisionReason.FORGED_RECORD)


def check_not_rewritten_by_kai(pod: PodReading) -> Decision | None:
    """KAI's webhook comes first where it is there, for webhooks come in the order of their names: the container then
    waits for variables out of a ConfigMap that KAI's binder would make."""
    if kai.SHARED_GPU_CONFIGMAP not in pod.spec.annotations or not any(map(pod.spec.annotations.get, kai.AMOUNTS)):
        return None
    return Decision(
        False,
        DecisionReason.FORGED_RECORD,
        f"annotation {kai.SHARED_GPU_CONFIGMAP} shows that KAI's webhook changed the pod, so the container would "
        f"wait for a ConfigMap that only KAI creates: disable that webhook (docs/migrating/kai.md), or, if the "
        f"manifest was copied from a running pod, remove the annotation and the variables that refer to the ConfigMap",
    )


def check_share_placed_by_kai(pod: PodReading) -> Decision | None:
    """Of pods that another scheduler places: KAI's would reserve the GPU in its own way, and refuses a pod that names
    both a fraction and the resource by which kubelet asks Purser's agent."""
    if not kai.has_request_annotations(pod.spec):
        return None
    return Decision(
        False,
        DecisionReason.BAD_REQUEST,
        f"the pod requests a GPU share by annotation, but KAI's scheduler does not place shares on Purser's nodes: ask "
        f"an administrator to let Purser place such pods ({kai.KAI_SCHEDULER} in scheduler.adoptSchedulerNames, "
        f"not in serveSchedulerNames)",
    )


def check_readable(pod: PodReading) -> Decision | None:
    """The dialects can read it."""
    try:
        pod.request()
    except DialectError as error:
        return Decision(False, DecisionReason.BAD_REQUEST, f"invalid GPU request: {error}")
    return None


def check_privileged_share(pod: PodReading) -> Decision | None:
    """A privileged container sees every device of its node: no share can be held to its limits there."""
    request = pod.request()
    privileged = {container.name for container in pod.spec.containers if container.privileged}
    for part in request.containers if request else ():
        if part.name in privileged and not part.devices.is_whole:
            return Decision(
                False,
                DecisionReason.PRIVILEGED_SHARE,
                f'container "{part.name}" is privileged but requests a GPU share: a privileged container sees all GPUs '
                f"on its node. Remove privileged, or request whole GPUs ({part.devices.resource} alone)",
            )
    return None


def check_node_preset(pod: PodReading) -> Decision | None:
    """A pod that names its node skips the scheduler, and so gets no grant.

    Of pods in namespaces that the administrator trusts the webhook has made an affinity of it (`node_patches`).
    """
    if not pod.spec.node_name:
        return None
    return Decision(
        False,
        DecisionReason.NODE_PRESET,
        f'the pod requests GPUs and sets spec.nodeName "{pod.spec.node_name}", which skips the scheduler: '
        f"use a node selector or node affinity instead",
    )


def ignores_webhook(pod: PodManifest) -> bool:
    """Whether the pod's own labels keep the webhook away from it."""
    return bool(ignore_label_of(pod.labels))


def check_not_bypassed(pod: PodReading) -> Decision | None:
    """Checked before a pod is placed: such a pod bypassed the webhook, and its grant could be changed later."""
    label = ignore_label_of(pod.spec.labels)
    if not label:
        return None
    return Decision(
        False,
        DecisionReason.WEBHOOK_IGNORED,
        f"label {label}={IGNORE_WEBHOOK} excludes the pod from Purser's webhook, but the pod requests GPUs: "
        f"recreate the pod without that label",
    )


def check_room_for_grant(pod: PodReading) -> Decision | None:
    """The grant, which comes as an annotation, fits beside the pod's own."""
    own = ((key, text) for key, text in pod.spec.annotations.items() if key not in PROTECTED_POD_ANNOTATIONS)
    size = sum(len(key.encode()) + len(text.encode()) for key, text in own)
    if size <= MAX_ANNOTATION_BYTES:
        return None
    return Decision(
        False,
        DecisionReason.NO_ROOM_FOR_GRANT,
        f"the pod's annotations have {size} bytes, but a pod that requests GPUs may use only {MAX_ANNOTATION_BYTES} "
        f"of the 262144 bytes that Kubernetes allows; the rest is reserved for the grant. Move the data to a ConfigMap",
    )


def check_units(pod: PodReading, units_mib: Mapping[str, int]) -> Decision | None:
    """Checked before a pod is placed: users may write the annotation while the webhook is away, and through
    ``pods/status``. ``units_mib``: the cluster's, by resource."""
    wanted = units_text(pod.spec.containers, units_mib)
    if pod.spec.annotations.get(MEMORY_UNITS_ANNOTATION, "") == wanted:
        return None
    required_units = (
        f'annotation {MEMORY_UNITS_ANNOTATION}: "{wanted}"' if wanted else f"no annotation {MEMORY_UNITS_ANNOTATION}"
    )
    return Decision(
        False,
        DecisionReason.NOT_MUTATED,
        "the pod's GPU memory unit differs from the cluster's: the pod must have "
        f"{required_units}. Recreate the pod while Purser's webhook is reachable",
    )


PLACEMENT_RULES: tuple[Rule, ...] = (
    check_not_bypassed,
    check_room_for_grant,
    check_readable,
    check_privileged_share,
    check_named_devices,
    check_share_limits,
    check_enforcement_requirement,
)
"""What must hold for any pod that is placed, however it was admitted; a namespace can keep the webhook away as well."""

GPU_POD_RULES: tuple[Rule, ...] = (
    check_forged_record,
    check_room_for_grant,
    check_readable,
    check_privileged_share,
    check_enforcement_requirement,
    check_node_preset,
)
"""In this order: the later ones rely on `check_readable`."""


def _check_annotations(pod: PodManifest, forbidden: Collection[str], why: DecisionReason) -> Decision | None:
    """A copied manifest has all fields of a running pod: the message names all of them at once."""
    if not any(key in pod.annotations for key in forbidden):
        return None
    known = dict.fromkeys((*PROTECTED_POD_ANNOTATIONS, *record_annotations(pod), *sorted(forbidden)))
    found = [key for key in known if key in pod.annotations]
    preset = " and spec.nodeName" if pod.node_name else ""
    return Decision(
        False,
        why,
        f"only Purser's scheduler may write annotations {', '.join(found)}: was the manifest copied from a running pod?"
        f" Remove these annotations{preset}",
    )
