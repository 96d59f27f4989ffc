"""What webhook and scheduler ask about devices that a pod's spec names or widens: `core.pod.device_access` as rules."""

from collections.abc import Callable, Collection, Iterable

import msgspec

from purser.core.device.resources import is_gpu_resource
from purser.core.dialects import VENDORS, DialectError
from purser.core.grant.share_variables import DISABLE_CONTROL
from purser.core.model import Enforcement, LibraryHold, PodRequest
from purser.core.names import ENFORCEMENT_ANNOTATION, ENFORCEMENT_REQUIRED, MEMORY_UNITS_ANNOTATION
from purser.core.pod import device_access
from purser.core.pod.manifest import PodManifest
from purser.core.pod.units import units_text
from purser.scheduler.pod_reading import PodReading
from purser.scheduler.webhook.review import Decision, DecisionReason

_MAX_WARNED_CONTAINERS = 3
"""Containers per pod: the API server cuts the warnings of one answer after 4096 bytes."""

_MAX_NAMED = 8
"""Trusted namespaces that a message names."""

_HOLD_WARNINGS = {
    LibraryHold.OFF: "sets CUDA_DISABLE_CONTROL, so its GPU share is not enforced (enforcement: none)",
    LibraryHold.MEMORY: "switches off its compute limit, which HAMi-core would enforce (GPU_CORE_UTILIZATION_POLICY)",
    LibraryHold.ADVISORY: (
        "has variables that Purser cannot see before the container runs (envFrom, valueFrom) and "
        "that may lift the share's limits, so the limits are advisory"
    ),
}


_NOT_AN_MPS_CLIENT = (
    "mounts a volume at /dev/shm, so its share is not enforced on GPUs shared by MPS (enforcement: time-slicing)"
)


def unknown() -> Collection[Enforcement]:
    """The enforcement on the cluster's nodes, where it is not known."""
    return ()


class DeviceRules:
    """The rules of the webhooks, which know whom the administrator trusts and what nodes enforce."""

    def __init__(
        self,
        trusted: Collection[str] = (),
        enforcements: Callable[[], Collection[Enforcement]] = unknown,
        enforcement_of_namespace: Callable[[str], str] = lambda namespace: "",
        families: Collection[str] = (),
        memory_units: Iterable[tuple[str, int]] = (),
    ) -> None:
        self._trusted = frozenset(trusted)
        """Namespaces whose pods may name NVIDIA's devices without asking for them."""
        self._enforcements = enforcements
        """What holds shares of the cluster's devices."""
        self._enforcement_of_namespace = enforcement_of_namespace
        self._families = frozenset(families)
        """Of other vendors, by name: those that Purser serves."""
        self._units_mib = dict(memory_units)
        """Of words for memory that are not counted in the usual unit, by resource."""

    def reading(self, pod: PodManifest) -> PodReading:
        """The pod with what its namespace says of it."""
        of_namespace = self._enforcement_of_namespace(pod.namespace)
        return self.read_without_namespace(msgspec.structs.replace(pod, enforcement_of_namespace=of_namespace))

    def read_without_namespace(self, pod: PodManifest) -> PodReading:
        """The pod without what its namespace says."""
        return PodReading(msgspec.structs.replace(pod, families=self._families))

    def with_units_annotation(self, pod: PodManifest) -> PodManifest:
        """A new pod with the annotation that says in which units it counts, whatever its author wrote there."""
        text = units_text(pod.containers, self._units_mib)
        rest = {key: value for key, value in pod.annotations.items() if key != MEMORY_UNITS_ANNOTATION}
        annotations = {**rest, MEMORY_UNITS_ANNOTATION: text} if text else rest
        return msgspec.structs.replace(pod, annotations=annotations)

    @property
    def vendor_records(self) -> frozenset[str]:
        """The annotations by which the device plugins of these families are told what pods are given."""
        return frozenset(record for name in self._families for record in VENDORS[name].RECORDS)

    def check_pod(self, pod: PodReading) -> Decision | None:
        """Asked of every pod."""
        return None if self.trusts(pod) else self._with_remedy(check_named_devices(pod))

    def _with_remedy(self, decision: Decision | None) -> Decision | None:
        """A refusal that says where pods may do so."""
        if decision is None or decision.allowed:
            return decision
        names = sorted(self._trusted)
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        where = f": {', '.join(names[:_MAX_NAMED])}{more}" if names else ""
        remedy = (
            f"only pods in trusted namespaces (chart value webhook.deviceNamespaces{where}) may name or see devices"
        )
        return msgspec.structs.replace(decision, message=f"{decision.message}; {remedy} without requesting GPUs")

    def trusts(self, pod: PodReading) -> bool:
        """Whether the administrator trusts who makes pods in the pod's namespace."""
        return pod.spec.namespace in self._trusted

    def check_gpu_pod(self, pod: PodReading) -> Decision | None:
        """Asked of a pod that the dialects can read."""
        there = self._enforcements()
        refused = check_share_limits(pod, has_hami_core=not there or Enforcement.HAMI_CORE in there)
        return self._with_remedy(refused) if device_access.exposes_node_devices(pod.spec) else refused

    def check_change(self, before: PodReading, after: PodReading) -> Decision | None:
        """What a pod may not come to say; what it has said all along is not held against a change of something else."""
        if self.trusts(after) or not (found := _findings(after)):
            return None
        earlier = {str(finding) for finding in _findings(before)}
        news = [finding for finding in found if str(finding) not in earlier]
        return Decision(False, DecisionReason.DEVICES_UNASKED, device_access.sentence(news)) if news else None

    def warnings(self, request: PodRequest | None) -> tuple[str, ...]:
        """What the author of shares should know of their limits."""
        parts = request.containers if request else ()
        shares = [part for part in parts if not part.devices.is_whole and is_gpu_resource(part.devices.resource)]
        if request is None or not shares:
            return ()
        there = sorted(self._enforcements())
        if there and all(word.is_advisory for word in there):
            waits = (
                "; the pod requires enforcement, so it stays Pending until a node enforces them"
                if _is_required(request)
                else ""
            )
            advisory = f"no node enforces them (enforcement: {', '.join(there)})"
            return (f"limits of GPU shares are advisory: {advisory}{waits}",)
        warnings = [
            f'container "{part.name}" {_HOLD_WARNINGS[part.hold.limits]}'
            for part in shares
            if part.hold.limits in _HOLD_WARNINGS
        ]
        if Enforcement.MPS in there:
            warnings += [f'container "{part.name}" {_NOT_AN_MPS_CLIENT}' for part in shares if not part.hold.by_mps]
        return tuple(warnings)[:_MAX_WARNED_CONTAINERS]


def check_named_devices(pod: PodReading) -> Decision | None:
    """GPUs are asked for, not taken."""
    found = device_access.find_unrequested_access(pod.spec, asks=_asks(pod))
    return Decision(False, DecisionReason.DEVICES_UNASKED, device_access.sentence(found)) if found else None


def check_share_limits(pod: PodReading, *, has_hami_core: bool = False) -> Decision | None:
    """Nothing in the spec undoes what the grant will say.

    ``has_hami_core``: some node has HAMi-core's library, and nothing may come before it. Where it does all the same,
    the grant says what is left.
    """
    found = device_access.find_widened_access(pod.spec, _parts(pod), has_hami_core=has_hami_core)
    return Decision(False, DecisionReason.WIDENED_SHARE, device_access.sentence(found)) if found else None


def check_enforcement_requirement(pod: PodReading) -> Decision | None:
    """A pod that requires its shares to be held to their limits does not ask that they be not."""
    request = pod.request()
    for part in request.containers if request else ():
        if part.devices.held_by and part.hold.limits is LibraryHold.OFF and not part.devices.is_whole:
            whose = "the pod's" if pod.spec.annotations.get(ENFORCEMENT_ANNOTATION) else "its namespace's"
            return Decision(
                False,
                DecisionReason.UNENFORCED,
                f'container "{part.name}" sets {DISABLE_CONTROL}, so the limits of its GPU share are not enforced, but '
                f"{whose} annotation {ENFORCEMENT_ANNOTATION} is {ENFORCEMENT_REQUIRED}: remove the variable or the "
                f"annotation",
            )
    return None


def _is_required(request: PodRequest | None) -> bool:
    return request is not None and any(part.devices.held_by for part in request.containers)


def _findings(pod: PodReading) -> tuple[device_access.Finding, ...]:
    try:
        parts = _parts(pod)
    except DialectError:  # it came past the webhook
        parts = {}
    return (
        *device_access.find_unrequested_access(pod.spec, asks=_asks(pod)),
        *(device_access.find_widened_access(pod.spec, parts) if parts else ()),
    )


def _asks(pod: PodReading) -> bool:
    """Whether the pod asks for GPUs; so does one whose request cannot be read."""
    try:
        request = pod.request()
    except DialectError:
        return True
    return request is not None and any(is_gpu_resource(part.devices.resource) for part in request.containers)


def _parts(pod: PodReading) -> dict[str, bool]:
    """The containers that ask, and whether for shares."""
    request = pod.request()
    return {part.name: not part.devices.is_whole for part in request.containers} if request else {}
