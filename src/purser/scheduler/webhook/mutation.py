"""The mutating webhook: makes a pod that asks for devices one that Purser schedules, or says why it never could run.

A pod without devices is left exactly as it is. Nothing is written anywhere: a dry run is answered like any other.
"""

from collections.abc import Collection
from typing import Protocol

import msgspec

from purser.core.dialects import added_variables, default_limits, kai
from purser.core.dialects.misspelt import uses_other_gpu_name
from purser.core.dialects.unserved import unserved_words
from purser.core.mig.several import asked_warnings
from purser.core.names import (
    AWAITS_GRANT,
    AWAITS_GRANT_ANNOTATION,
    GPU_RESOURCE,
    MEMORY_UNITS_ANNOTATION,
    SCHEDULER_NAME,
)
from purser.core.placement.offers import FleetOffers
from purser.core.pod.manifest import PodManifest
from purser.scheduler.pod_reading import PodReading
from purser.scheduler.webhook.capacity_warnings import capacity_warnings
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.patches import annotation_patches, env_patches, limit_patches, node_patches
from purser.scheduler.webhook.review import AdmissionRequest, Decision, DecisionReason, Operation, decode_object
from purser.scheduler.webhook.rules import (
    GPU_POD_RULES,
    check_forged_grant,
    check_node_preset,
    check_not_rewritten_by_kai,
    check_share_placed_by_kai,
    first_objection,
    is_mirror,
    is_served,
    placed_scheduler_names,
    pod_of,
)


def _added_limits(pod: PodManifest) -> dict[str, dict[str, str]]:
    """By container: `default_limits`, without the GPU of those that name it by another word. They wait for that word,
    and would hold a device beside it that nobody asked for."""
    otherwise = {container.name for container in pod.containers if uses_other_gpu_name(container)}
    added = {
        name: {word: amount for word, amount in limits.items() if word != GPU_RESOURCE or name not in otherwise}
        for name, limits in default_limits(pod).items()
    }
    return {name: limits for name, limits in added.items() if limits}


class FleetFacts(Protocol):
    """What is known of the cluster's nodes."""

    def gpus(self) -> FleetOffers | None:
        """What their GPUs can give containers; None where no node has an inventory."""
        ...

    def offers(self, resource: str) -> bool:
        """Whether any node lists a resource."""
        ...

    def has_label(self, key: str, value: str) -> bool:
        """Whether any node has a label with this value."""
        ...


class UnknownFleet:
    """A cluster whose nodes are not known: there are no warnings about its capacity."""

    def gpus(self) -> FleetOffers | None:
        """Not known."""
        return None

    def offers(self, resource: str) -> bool:
        """Perhaps."""
        return True

    def has_label(self, key: str, value: str) -> bool:
        """Perhaps."""
        return True


class Mutation:
    """Decides on new pods."""

    def __init__(
        self,
        scheduler_name: str = SCHEDULER_NAME,
        fleet: FleetFacts | None = None,
        devices: DeviceRules | None = None,
        adopted: Collection[str] = (),
        served: Collection[str] = (),
        managed: Collection[str] = (),
    ) -> None:
        """``adopted``: schedulers whose pods are Purser's; ``served``: those whose pods only get their GPUs from it;
        ``managed``: see `unserved_words`."""
        self._managed = managed
        self._scheduler_name = scheduler_name
        self._fleet = fleet or UnknownFleet()
        self._devices = devices or DeviceRules()
        self._own = placed_scheduler_names(scheduler_name, adopted)
        self._served = frozenset(served) - self._own

    def review(self, request: AdmissionRequest) -> Decision:
        """What becomes of the object. Raises `ReviewError` when it cannot be read."""
        if request.resource.resource != "pods" or request.sub_resource or not request.has_object:
            return Decision(True, DecisionReason.NOT_A_POD)
        pod = pod_of(request, request.object)
        if is_mirror(pod, request.user_info):
            return Decision(True, DecisionReason.MIRROR_POD)
        return self._review_pod(self._devices.reading(self._devices.with_units_annotation(pod)), request.object)

    def _review_pod(self, pod: PodReading, body: msgspec.Raw) -> Decision:
        if objection := first_objection(pod, (check_forged_grant, self._devices.check_pod)):
            return check_not_rewritten_by_kai(pod) or objection
        if not pod.asks_for_devices:
            return Decision(True, DecisionReason.NO_GPU, warnings=self._unserved(pod.spec))
        if not (pod.spec.scheduler_name in self._own or is_served(pod.spec, self._served)):
            return Decision(True, DecisionReason.OTHER_SCHEDULER, warnings=(self._other_scheduler_warning(pod.spec),))
        rules = [rule for rule in GPU_POD_RULES if rule is not check_node_preset or not self._devices.trusts(pod)]
        kai_rules = (
            check_not_rewritten_by_kai,
            *((check_share_placed_by_kai,) if is_served(pod.spec, self._served) else ()),
        )
        return first_objection(pod, (*kai_rules, *rules, self._devices.check_gpu_pod)) or self._adopt(pod, body)

    def _unserved(self, pod: PodManifest) -> tuple[str, ...]:
        is_placed = not is_served(pod, self._served)
        return unserved_words(
            pod,
            self._fleet.offers,
            self._fleet.has_label,
            self._mig_resources,
            is_placed=is_placed,
            managed=self._managed,
        )

    def _mig_resources(self) -> tuple[str, ...]:
        there = self._fleet.gpus()
        return there.mig_resources if there else ()

    def _other_scheduler_warning(self, pod: PodManifest) -> str:
        return (
            f'the pod requests GPUs, but its schedulerName is "{pod.scheduler_name[:63]}", so Purser does not place '
            f"it: remove schedulerName, or ask an administrator to add that name to scheduler.adoptSchedulerNames or "
            f"scheduler.serveSchedulerNames"
        )

    def _adopt(self, pod: PodReading, body: msgspec.Raw) -> Decision:
        content = decode_object(body)
        written = {
            MEMORY_UNITS_ANNOTATION: pod.spec.annotations.get(MEMORY_UNITS_ANNOTATION),
            AWAITS_GRANT_ANNOTATION: AWAITS_GRANT if is_served(pod.spec, self._served) else None,
        }
        patch = (
            *self._scheduler_patch(pod.spec),
            *annotation_patches(content, written),
            *node_patches(content),
            *limit_patches(content, _added_limits(pod.spec)),
            *env_patches(content, added_variables(pod.spec)),
        )
        return Decision(True, DecisionReason.ADMITTED, patch=patch, warnings=self._warnings(pod))

    def _scheduler_patch(self, pod: PodManifest) -> tuple[Operation, ...]:
        if pod.scheduler_name == self._scheduler_name or is_served(pod, self._served):
            return ()
        return ({"op": "add", "path": "/spec/schedulerName", "value": self._scheduler_name},)

    def _warnings(self, pod: PodReading) -> tuple[str, ...]:
        request, there = pod.request(), self._fleet.gpus()
        return (
            *(capacity_warnings(request, there) if request and there else ()),
            *(asked_warnings(request) if request else ()),
            *kai.warnings(pod.spec),
            *self._devices.warnings(request),
            *self._unserved(pod.spec),
        )
