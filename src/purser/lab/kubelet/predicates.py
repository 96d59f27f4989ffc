"""What kubelet checks after its managers gave everything out: whether the node has room for a pod (GeneralPredicates).

Here: CPUs, memory, ephemeral storage and the number of pods. Not here: devices (`purser.lab.kubelet.admission`), node
selectors and host ports.
"""

from collections.abc import Iterable, Mapping

from purser.lab.controllers.scheduling.requests import Amounts, add, amounts, pod_requests
from purser.lab.kubelet.admission import AdmissionError
from purser.lab.kubelet.pods import Raw

_ORDER = ("pods", "cpu", "memory", "ephemeral-storage")
"""Of several that are short kubelet names the first."""


def check_room(pod: Raw, others: Iterable[Raw], allocatable: Mapping[str, str]) -> None:
    """Raise `AdmissionError` where the node lacks something for a pod beside the others that are alive."""
    room = amounts(allocatable)
    requested = pod_requests(pod)
    used: Amounts = {}
    for other in others:
        used = add(used, pod_requests(other))
    for name in _ORDER:
        # Without a request of its own a pod is not short of what others overdrew.
        if requested.get(name, 0) and used.get(name, 0) + requested[name] > room.get(name, 0):
            unit = 1 if name == "cpu" else 1000
            numbers = (requested[name] // unit, used.get(name, 0) // unit, room.get(name, 0) // unit)
            what = "requested: {}, used: {}, capacity: {}".format(*numbers)
            raise AdmissionError(f"OutOf{name}", f"Node didn't have enough resource: {name}, {what}")
