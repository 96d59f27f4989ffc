"""What webhook and scheduler ask about devices that a pod's spec names or widens: `core.pod.device_access` as rules."""

from collections.abc import Callable, Collection

from purser.core.dialects import DialectError
from purser.core.model import LibraryHold, PodRequest
from purser.core.pod import device_access
from purser.scheduler.pod_reading import PodReading
from purser.scheduler.webhook.review import Decision, Why

_MOST_WARNED = 3
"""Containers per pod: the API server cuts the warnings of one answer after 4096 bytes."""

_HOLDS = {
    LibraryHold.OFF: "sets CUDA_DISABLE_CONTROL: nothing enforces its share of a GPU, and its grant says so",
    LibraryHold.MEMORY: "switches off its compute limit (GPU_CORE_UTILIZATION_POLICY), and its grant says so",
    LibraryHold.ADVISORY: "has variables that Purser cannot see before it runs (envFrom, valueFrom): they may lift the "
    "limits of its share, which are therefore advisory",
}


def maybe() -> bool | None:
    """Whether any node enforces, where nobody knows."""
    return None


class DeviceRules:
    """The rules of the webhooks, which know whom the administrator trusts and what nodes enforce."""

    def __init__(self, trusted: Collection[str] = (), enforces: Callable[[], bool | None] = maybe) -> None:
        self._trusted = frozenset(trusted)
        """Namespaces whose pods may name NVIDIA's devices without asking for them."""
        self._enforces = enforces

    def of_any(self, pod: PodReading) -> Decision | None:
        """Asked of every pod."""
        return None if self.trusts(pod) else names_no_devices(pod)

    def trusts(self, pod: PodReading) -> bool:
        """Whether the administrator trusts who makes pods in the pod's namespace."""
        return pod.spec.namespace in self._trusted

    def of_gpu_pod(self, pod: PodReading) -> Decision | None:
        """Asked of a pod that the dialects can read."""
        return keeps_to_its_share(pod, enforced=self._enforces() is not False)

    def of_change(self, before: PodReading, after: PodReading) -> Decision | None:
        """What a pod may not come to say; what it has said all along is not held against a change of something else."""
        if self.trusts(after) or not (found := _findings(after)):
            return None
        said = {str(finding) for finding in _findings(before)}
        news = [finding for finding in found if str(finding) not in said]
        return Decision(False, Why.DEVICES_UNASKED, device_access.sentence(news)) if news else None

    def warnings(self, request: PodRequest | None) -> tuple[str, ...]:
        """What the author of shares should know of their limits."""
        shares = [part for part in request.containers if not part.devices.is_whole] if request else []
        if not shares:
            return ()
        if self._enforces() is False:
            return ("limits of GPU shares are advisory: no node has HAMi-core's library, which enforces them",)
        said = (f'container "{part.name}" {_HOLDS[part.hold]}' for part in shares if part.hold in _HOLDS)
        return tuple(said)[:_MOST_WARNED]


def names_no_devices(pod: PodReading) -> Decision | None:
    """GPUs are asked for, not taken."""
    found = device_access.unasked(pod.spec)
    return Decision(False, Why.DEVICES_UNASKED, device_access.sentence(found)) if found else None


def keeps_to_its_share(pod: PodReading, *, enforced: bool = False) -> Decision | None:
    """Nothing in the spec undoes what the grant will say.

    ``enforced``: some node holds shares to their limits, and nothing may come before the library that does. Where it
    does all the same, the grant says what is left.
    """
    found = device_access.widening(pod.spec, _parts(pod), enforced=enforced)
    return Decision(False, Why.WIDENED_SHARE, device_access.sentence(found)) if found else None


def _findings(pod: PodReading) -> tuple[device_access.Finding, ...]:
    try:
        parts = _parts(pod)
    except DialectError:  # it came past the webhook
        parts = {}
    return (*device_access.unasked(pod.spec), *(device_access.widening(pod.spec, parts) if parts else ()))


def _parts(pod: PodReading) -> dict[str, bool]:
    """The containers that ask, and whether for shares."""
    request = pod.request()
    return {part.name: not part.devices.is_whole for part in request.containers} if request else {}
