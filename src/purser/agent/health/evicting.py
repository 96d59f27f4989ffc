"""Evicts pods from GPUs that stay unhealthy, where that is allowed: one pod of the node at a time."""

from purser.agent.allocation.evictions import Evict, evict_first, is_ending
from purser.agent.health.monitor import DeviceMonitor
from purser.agent.reasons import AgentReason
from purser.agent.reporting.events import HealthEvents
from purser.kube.clock import Clock
from purser.kube.events import EventRecorder
from purser.kube.resources import PODS, ref_of

LOOK_PERIOD_S = 5.0
"""Between two looks for pods on unhealthy GPUs."""

UNHEALTHY_PATIENCE_S = 60.0
"""How long a GPU is unhealthy before its pods are evicted: it may recover, and programs end by themselves."""

MAX_ENDING_S = 360.0
"""How long an evicted pod that does not end keeps others from being evicted."""


class UnhealthyEvictions:
    """Evicts the pods that hold GPUs of the node which stay unhealthy."""

    def __init__(
        self,
        monitor: DeviceMonitor,
        events: HealthEvents,
        recorder: EventRecorder,
        evict: Evict,
        clock: Clock,
    ) -> None:
        self._monitor = monitor
        self._events = events
        self._recorder = recorder
        self._evict = evict
        self._clock = clock
        self._unhealthy_since: dict[str, float] = {}
        """By uuid, in monotonic seconds."""
        self._ending_since: dict[str, float] = {}
        """By pod uid."""

    async def run(self) -> None:
        """Evict until cancelled."""
        while True:
            await self.act()
            await self._clock.sleep(LOOK_PERIOD_S)

    async def act(self) -> None:
        """Evict one pod at most. While the driver does not answer for all GPUs, that is no verdict on any of them."""
        health, now = self._monitor.assessed_health, self._clock.monotonic()
        if health is None:
            return
        unhealthy = {uuid: each.reason for uuid, each in health.items() if not each.takes_pods}
        self._unhealthy_since = {uuid: self._unhealthy_since.get(uuid, now) for uuid in sorted(unhealthy)}
        overdue = (uuid for uuid, since in self._unhealthy_since.items() if now - since >= UNHEALTHY_PATIENCE_S)
        holding = [
            (f"{self._events.name(uuid)} is unhealthy: {unhealthy[uuid]}", pod)
            for uuid in overdue
            for pod in self._events.holders(uuid)
        ]
        ending = {pod.metadata.uid for _, pod in holding if is_ending(pod)}
        self._ending_since = {uid: self._ending_since.get(uid, now) for uid in ending}
        if any(now - since < MAX_ENDING_S for since in self._ending_since.values()):
            return
        left = ((why, pod) for why, pod in holding if pod.metadata.uid not in ending)
        evicted = await evict_first(self._evict, left, "a pod on an unhealthy GPU")
        if evicted is not None:
            why, pod = evicted
            reason = AgentReason.EVICTED_FROM_UNHEALTHY_GPU
            self._recorder.event(ref_of(PODS, pod), reason, f"Evicted by Purser: {why}", type="Warning")
