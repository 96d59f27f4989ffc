"""The validating webhook: what no other webhook, and no user, may have changed.

On new pods it repeats the checks of the mutating webhook, because others ran after it. On changes it keeps the grant
immutable. On Bindings it lets only the scheduler set a grant; where it is bypassed, the grant's signature protects.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.core.dialects import default_limits, vendor_records
from purser.core.names import (
    AWAITS_GRANT,
    AWAITS_GRANT_ANNOTATION,
    FIXED_POD_ANNOTATIONS,
    IGNORE_WEBHOOK,
    MEMORY_UNITS_ANNOTATION,
    PROTECTED_POD_ANNOTATIONS,
    SCHEDULER_NAME,
    WEBHOOK_PROBE_ANNOTATION,
    ignore_label_of,
)
from purser.core.pod.manifest import PodManifest
from purser.scheduler.bodies import WEBHOOK_BODIES
from purser.scheduler.pod_reading import PodReading
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.node_writes import EVICTIONS, RESOURCES, NodeWrites
from purser.scheduler.webhook.review import AdmissionRequest, Decision, DecisionReason, ReviewError, UserInfo
from purser.scheduler.webhook.rules import (
    GPU_POD_RULES,
    Rule,
    check_forged_grant,
    check_forged_vendor_record,
    first_objection,
    ignores_webhook,
    is_mirror,
    is_node,
    is_served,
    placed_scheduler_names,
    pod_of,
)


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Binding(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_BINDINGS = (("pods", "binding"), ("bindings", ""))
"""Where Bindings are posted; the second is the older way, which kube-apiserver still serves."""

_PODS = (("pods", ""), ("pods", "ephemeralcontainers"))
"""What pods are changed through; debugging containers come by a way of their own."""

PROBE_ANSWER = "Purser's webhook denies every Binding with this annotation"
"""What the webhook says to a `WebhookProbe`."""

_binding_reader = JsonReader(_Binding, "the Binding in the AdmissionReview", max_bytes=WEBHOOK_BODIES.per_body)


def no_user() -> str:
    """The user who binds, where it is not known."""
    return ""


class Validation:
    """Decides on new and changed pods, on Bindings, and on what accounts on nodes write and evict."""

    def __init__(
        self,
        scheduler_name: str = SCHEDULER_NAME,
        scheduler_user: Callable[[], str] = no_user,
        node_writes: NodeWrites | None = None,
        devices: DeviceRules | None = None,
        adopted: Collection[str] = (),
        vendor_accounts: Collection[str] = (),
        served: Collection[str] = (),
    ) -> None:
        self._scheduler_name = scheduler_name
        self._own = placed_scheduler_names(scheduler_name, adopted)
        self._served = frozenset(served) - self._own
        self._devices = devices or DeviceRules()
        self._scheduler_user = scheduler_user
        """Who may bring grants; empty while that is not known, and then the signature alone decides."""
        self._vendor_accounts = frozenset(vendor_accounts)
        """Users as which other vendors' device plugins write pods."""
        self._node_writes = node_writes or NodeWrites()

    def review(self, request: AdmissionRequest) -> Decision:
        """What becomes of the object. Raises `ReviewError` when it cannot be read."""
        if request.resource.resource in RESOURCES or (request.resource.resource, request.sub_resource) == EVICTIONS:
            return self._node_writes.review(request)
        if not request.has_object:
            return Decision(True, DecisionReason.NOT_A_POD)
        if (request.resource.resource, request.sub_resource) in _BINDINGS:
            return self._review_binding(request)
        if (request.resource.resource, request.sub_resource) not in _PODS:
            return Decision(True, DecisionReason.NOT_A_POD)
        pod = pod_of(request, request.object)
        if is_mirror(pod, request.user_info):
            return Decision(True, DecisionReason.MIRROR_POD)
        if request.operation == "UPDATE":
            return self._review_change(request, pod)
        reading = self._devices.reading(pod)
        if ignores_webhook(pod):  # asked about all the same, but for grants and the devices that it names alone
            rules = (check_forged_grant, check_forged_vendor_record, self._devices.check_pod)
            return first_objection(reading, rules) or Decision(True, DecisionReason.WEBHOOK_IGNORED)
        return self._review_new(reading)

    def _review_new(self, pod: PodReading) -> Decision:
        if objection := first_objection(pod, (check_forged_grant, check_forged_vendor_record, self._devices.check_pod)):
            return objection
        if not pod.asks_for_devices:
            return Decision(True, DecisionReason.NO_GPU)
        if not (pod.spec.scheduler_name in self._own or is_served(pod.spec, self._served)):
            return Decision(True, DecisionReason.OTHER_SCHEDULER)
        rules: tuple[Rule, ...] = (*GPU_POD_RULES, self._devices.check_gpu_pod, self._check_mutated)
        return first_objection(pod, rules) or Decision(True, DecisionReason.ADMITTED)

    def _check_mutated(self, pod: PodReading) -> Decision | None:
        """The default scheduler knows nothing of grants, and without a limit kubelet never asks the agent."""
        if why := self._misdirection(pod.spec):
            lacks = why
        elif (expected := self._devices.with_units_annotation(pod.spec).annotations) != pod.spec.annotations:
            units = expected.get(MEMORY_UNITS_ANNOTATION)
            if units is None:
                return Decision(
                    False,
                    DecisionReason.NOT_MUTATED,
                    f"the pod has the annotation {MEMORY_UNITS_ANNOTATION}, which Purser's mutating webhook removes "
                    f"from pods that use the default units: the webhook was unreachable, or another webhook reverted "
                    f"the change. Recreate the pod, or remove the annotation yourself",
                )
            lacks = f"the annotation {MEMORY_UNITS_ANNOTATION}: {units}"
        elif missing := default_limits(pod.spec):
            lacks = "; ".join(f'{", ".join(limits)} in the limits of "{name}"' for name, limits in missing.items())
        else:
            return None
        return Decision(
            False,
            DecisionReason.NOT_MUTATED,
            f"the pod requests GPUs but lacks {lacks}, which Purser's mutating webhook sets: the webhook was "
            f"unreachable, or another webhook reverted the change. Recreate the pod, or set the value yourself",
        )

    def _misdirection(self, pod: PodManifest) -> str:
        if not is_served(pod, self._served):
            return "" if pod.scheduler_name == self._scheduler_name else f'schedulerName "{self._scheduler_name}"'
        awaits = pod.annotations.get(AWAITS_GRANT_ANNOTATION)
        return "" if awaits == AWAITS_GRANT else f"the annotation {AWAITS_GRANT_ANNOTATION}: {AWAITS_GRANT}"

    def _review_change(self, request: AdmissionRequest, pod: PodManifest) -> Decision:
        if not request.has_old_object:
            raise ReviewError("the AdmissionReview of an UPDATE has no oldObject")
        before = pod_of(request, request.old_object)
        readings = self._devices.read_without_namespace(before), self._devices.read_without_namespace(pod)
        if objection := self._check_changed_record(*readings, request.user_info):
            return objection
        if ignores_webhook(before) and ignores_webhook(pod):
            return self._devices.check_change(*readings) or Decision(True, DecisionReason.WEBHOOK_IGNORED)
        changed = [key for key in FIXED_POD_ANNOTATIONS if _has_changed(before.annotations, pod.annotations, key)]
        if changed:
            return Decision(
                False,
                DecisionReason.CHANGED_GRANT,
                f"annotations {', '.join(changed)} are Purser's own and must not be changed",
            )
        if _holds_grant(before) and ignores_webhook(pod) and not ignores_webhook(before):
            label = ignore_label_of(pod.labels)
            return Decision(
                False,
                DecisionReason.CHANGED_GRANT,
                f"label {label} cannot be set to {IGNORE_WEBHOOK}: the pod has a grant, which the webhook protects",
            )
        return self._devices.check_change(*readings) or Decision(True, DecisionReason.ADMITTED)

    def _check_changed_record(self, before: PodReading, after: PodReading, user: UserInfo) -> Decision | None:
        """Device plugins of other vendors serve what a pod's annotations say, and report there."""
        records = sorted(vendor_records(before.spec))  # containers cannot be added, nor their resources changed
        changed = [key for key in records if _has_changed(before.spec.annotations, after.spec.annotations, key)]
        if not changed or self._may_write_records(user):
            return None
        return Decision(
            False,
            DecisionReason.CHANGED_RECORD,
            f'annotations {", ".join(changed)} may not be changed by "{user.username[:253]}": only the device plugin '
            f"may change them, if an administrator has added its account to vendorAccounts in Purser's chart",
        )

    def _may_write_records(self, user: UserInfo) -> bool:
        return user.username in (*self._vendor_accounts, self._scheduler_user()) or is_node(user)

    def _review_binding(self, request: AdmissionRequest) -> Decision:
        try:
            annotations = _binding_reader.read(request.object).metadata.annotations or {}
        except UnreadableError as error:
            raise ReviewError(str(error)) from error
        if WEBHOOK_PROBE_ANNOTATION in annotations:
            return Decision(False, DecisionReason.PROBE, f"{PROBE_ANSWER}: {WEBHOOK_PROBE_ANNOTATION}")
        own = (*PROTECTED_POD_ANNOTATIONS, *sorted(self._devices.vendor_records))
        reserved = [key for key in own if key in annotations]
        scheduler, user = self._scheduler_user(), request.user_info.username
        if reserved and scheduler and user != scheduler:
            return Decision(
                False,
                DecisionReason.FORGED_GRANT,
                f'annotations {", ".join(reserved)} may only be set by "{scheduler}", not by "{user}"',
            )
        return Decision(True, DecisionReason.ADMITTED if reserved else DecisionReason.NO_GPU)


def _holds_grant(pod: PodManifest) -> bool:
    return any(key in pod.annotations for key in PROTECTED_POD_ANNOTATIONS)


def _has_changed(before: Mapping[str, str], after: Mapping[str, str], key: str) -> bool:
    return before.get(key) != after.get(key)
