"""The mutating webhook: makes a pod that asks for devices one that Purser schedules, or says why it never could run.

A pod without devices is left exactly as it is. Nothing is written anywhere: a dry run is answered like any other.
"""

from collections.abc import Callable

import msgspec

from purser.core.dialects import asks_for_devices, defaults, init_resources, parse
from purser.core.names import SCHEDULER_NAME
from purser.core.podspec import PodSpec
from purser.scheduler.webhook_patches import init_resource_patches, limit_patches
from purser.scheduler.webhook_review import AdmissionRequest, Decision, Operation, Why
from purser.scheduler.webhook_rules import (
    DEFAULT_SCHEDULER,
    GPU_POD_RULES,
    device_count,
    first_objection,
    is_mirror,
    no_forged_grant,
    pod_of,
)


def unknown() -> int | None:
    """How many devices the largest node has, where nobody knows."""
    return None


class Mutation:
    """Decides on new pods."""

    def __init__(self, scheduler_name: str = SCHEDULER_NAME, largest_node: Callable[[], int | None] = unknown) -> None:
        self._scheduler_name = scheduler_name
        self._largest_node = largest_node
        """How many devices the largest known node has; None where no node is known."""

    def review(self, request: AdmissionRequest) -> Decision:
        """What becomes of the object. Raises `ReviewError` when it cannot be read."""
        if request.resource.resource != "pods" or request.sub_resource or not request.has_object:
            return Decision(True, Why.NOT_A_POD)
        return self._review_pod(pod_of(request, request.object), request.object)

    def _review_pod(self, pod: PodSpec, body: msgspec.Raw) -> Decision:
        if is_mirror(pod):
            return Decision(True, Why.MIRROR_POD)
        if objection := no_forged_grant(pod):
            return objection
        if not asks_for_devices(pod):
            return Decision(True, Why.NO_GPU)
        if pod.scheduler_name not in ("", DEFAULT_SCHEDULER, self._scheduler_name):
            return Decision(True, Why.OTHER_SCHEDULER, warnings=(self._stays_away(pod),))
        return first_objection(pod, GPU_POD_RULES) or self._adopt(pod, body)

    def _stays_away(self, pod: PodSpec) -> str:
        return (
            f'the pod asks for GPUs but its schedulerName is "{pod.scheduler_name[:63]}": it gets none from Purser. '
            f"Leave schedulerName out to have Purser place it"
        )

    def _adopt(self, pod: PodSpec, body: msgspec.Raw) -> Decision:
        content = msgspec.json.decode(body)
        patch = (
            *self._scheduler_patch(pod),
            *limit_patches(content, defaults(pod)),
            *init_resource_patches(content, init_resources(pod)),
        )
        return Decision(True, Why.ADMITTED, patch=patch, warnings=self._warnings(pod))

    def _scheduler_patch(self, pod: PodSpec) -> tuple[Operation, ...]:
        if pod.scheduler_name == self._scheduler_name:
            return ()
        return ({"op": "add", "path": "/spec/schedulerName", "value": self._scheduler_name},)

    def _warnings(self, pod: PodSpec) -> tuple[str, ...]:
        wanted, largest = device_count(parse(pod)), self._largest_node()
        if largest is None or wanted <= largest:
            return ()
        return (
            f"a container asks for {wanted} GPUs and the largest node has {largest}: the pod waits for a larger one",
        )
