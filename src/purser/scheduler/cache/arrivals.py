"""The mix of pods that a cluster sees, learnt from those that arrive: what policies expect to come next.

Pods that ask for GPUs count, and of the others those that this scheduler places. After a restart the mix is that of the
pods there are, in the order in which the API server lists them.
"""

from collections.abc import Callable
from contextlib import suppress

from purser.core.dialects import DialectError
from purser.core.kubernetes.quantities import QuantityError
from purser.core.placement.mix import LearnedMix
from purser.core.placement.shape import PodShape, largest_shape
from purser.core.pod.requests import pod_resources
from purser.kube import Informer
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.scheduler.cache.readings import Readings
from purser.scheduler.pod_reading import PodReading


class Arrivals:
    """Adds each pod to a mix once."""

    def __init__(self, readings: Readings, scheduler_name: str) -> None:
        """``readings``: keeps the pods' requests for later calls."""
        self.mix = LearnedMix()
        self.on_new_mix: Callable[[], None] = lambda: None
        """Called once pods have made it another one."""
        self._readings = readings
        self._scheduler_name = scheduler_name
        self._known: set[str] = set()

    def attach(self, pods: Informer[Pod]) -> None:
        """Follow this informer."""
        pods.add_handler(self.put_pod, lambda _, pod: self.put_pod(pod), self.remove_pod)

    def put_pod(self, pod: Pod) -> None:
        """A pod is there; it counts when it is heard of first."""
        uid = pod.metadata.uid
        if pod.spec.node_name:
            self._readings.forget(uid)
        if uid in self._known or is_terminal(pod):
            return
        self._known.add(uid)
        if shape := self._shape(self._read(pod)):
            before = self.mix.epoch
            self.mix.arrived(shape)
            if self.mix.epoch != before:
                self.on_new_mix()

    def remove_pod(self, pod: Pod) -> None:
        """It is gone; that it came still counts."""
        self._known.discard(pod.metadata.uid)
        self._readings.forget(pod.metadata.uid)

    def _read(self, pod: Pod) -> PodReading:
        reading = self._readings.of(pod)
        if pod.metadata.uid in self._readings and reading.asks_for_devices:  # now, while no request waits for it
            reading.objection  # noqa: B018
        return reading

    def _shape(self, reading: PodReading) -> PodShape | None:
        """None for a pod without GPUs, or with an invalid request, which placing it reports."""
        pod = reading.spec
        with suppress(DialectError, QuantityError):
            if reading.asks_for_devices:
                request = reading.request()
                return largest_shape(request) if request is not None else None
            if pod.scheduler_name == self._scheduler_name:
                asked = pod_resources(pod)
                return PodShape(asked.cpu_milli, asked.memory_mib)
        return None
