"""What HAMi's scheduler wrote on pods, as far as it counts.

Annotations may be anybody's, and users may change those of their own pods. So a record counts on pods alone that ask
for GPUs, for no more GPUs than they ask for, of no fewer MiB and percent, and of GPUs that are there.

HAMi's scheduler writes a record when it filters a pod, and binds in a moment. What it does not bind it forgets at the
pod's next filtering, from which another record follows, or none. kube-scheduler lets no pod wait longer for that than
`RESERVATION_S`: what was reserved counts no longer either.
"""

from contextlib import suppress
from typing import NamedTuple

import structlog

from purser.adapters.nodes import hami_gpus
from purser.adapters.pods import devices_asked, pod_spec
from purser.core.dialects import DialectError, hami
from purser.core.dialects.hami_codec import CodecError
from purser.core.fleet import Fleet
from purser.core.grant.adopting import raised_to_request
from purser.core.model import Grant
from purser.core.vendors import hami_nodes
from purser.core.wording import counted, some
from purser.kube import Clock, key_of
from purser.kube.objects import Node, Pod
from purser.kube.pods import has_started
from purser.scheduler.cache.readings import Readings

RESERVATION_S = 300.0
"""kube-scheduler's ``DefaultPodMaxInUnschedulablePodsDuration``, after which it filters a waiting pod again."""

log = structlog.get_logger("purser.scheduler")


class _HamiReservation(NamedTuple):
    written: tuple[str, ...]
    grant: Grant
    until: float
    """Monotonic seconds."""


class HamiRecords:
    """The nodes that HAMi knows, and what it reserved for pods: that is in the ledger until it is bound or too old."""

    def __init__(self, fleet: Fleet, clock: Clock, readings: Readings) -> None:
        self._fleet = fleet
        self._clock = clock
        self._readings = readings
        self._known: set[str] = set()
        self._served: dict[str, frozenset[str]] = {}
        """With the uuids of all GPUs that HAMi's device plugin registered there."""
        self._problems: dict[str, str] = {}
        self._reserved: dict[str, _HamiReservation] = {}

    def put_node(self, node: Node, *, is_served: bool) -> bool:
        """Take a node. ``is_served``: HAMi's device plugin serves it. Returns whether more records may count now."""
        name = node.metadata.name
        (self._known.add if hami_nodes.REGISTER_ANNOTATION in node.metadata.annotations else self._known.discard)(name)
        before = self._served.pop(name, None)
        if is_served:
            self._served[name] = hami_gpus(node)
        return is_served and before != self._served[name]

    def remove_node(self, name: str) -> None:
        """The node is gone."""
        self._known.discard(name)
        self._served.pop(name, None)

    def is_served(self, node: str) -> bool:
        """Whether HAMi's device plugin serves a node's GPUs."""
        return node in self._served

    def is_known(self, node: str) -> bool:
        """Whether HAMi's scheduler knows a node's GPUs, whoever serves them."""
        return node in self._known

    def put_waiting(self, pod: Pod) -> None:
        """A pod of another scheduler than Purser's is not bound yet."""
        uid, grant, written = pod.metadata.uid, self.grant_of(pod), hami.record_texts(pod_spec(pod))
        known = self._reserved.get(uid)
        if grant is None:
            reserved = self._reserved.pop(uid, None)
            if reserved is not None:
                self._release(uid, reserved.grant)
        elif known is None or known.written != written:
            self._reserved[uid] = _HamiReservation(written, grant, self._clock.monotonic() + RESERVATION_S)
            self._fleet.ledger.adopt(grant)

    def forget(self, uid: str) -> None:
        """The pod is bound: what it holds is said elsewhere."""
        self._reserved.pop(uid, None)

    def remove_pod(self, uid: str) -> None:
        """The pod is gone."""
        self.forget(uid)
        self._problems.pop(uid, None)

    def problem_of(self, uid: str) -> str:
        """Why the record that `grant_of` found on a pod last does not count, in one sentence; empty: there was none, or
        it counts."""
        return self._problems.get(uid, "")

    def tick(self) -> None:
        """Free what was reserved too long ago. It stays known until its record changes."""
        now = self._clock.monotonic()
        for uid, reserved in self._reserved.items():
            if reserved.until <= now:
                self._release(uid, reserved.grant)

    def grant_of(self, pod: Pod) -> Grant | None:
        """What HAMi's scheduler gave a pod, or reserved for it, of a node that HAMi's device plugin serves; of a node
        of Purser's agent only as long as the pod waits for a grant of Purser's (`binding.HamiPods`)."""
        node = pod.spec.node_name or pod.metadata.annotations.get(hami.VGPU_NODE, "")
        before = self._problems.pop(pod.metadata.uid, "")
        if not (devices_asked(pod) and self._is_valid_on(node, pod)):
            return None
        try:
            grant = hami.recorded_grant(pod_spec(pod))
            problem = "" if grant is None else self._find_implausibility(pod, node, grant)
        except CodecError as error:
            grant, problem = None, str(error)
        if problem:
            self._problems[pod.metadata.uid] = f"ignoring the HAMi scheduler's record on the pod: {problem}"
            if self._problems[pod.metadata.uid] != before:
                log.warning("Ignoring a pod's invalid HAMi record", pod=key_of(pod), node=node, error=problem)
            return None
        if grant is None:
            return None
        state = self._fleet.node(node)
        with suppress(DialectError):
            request = self._readings.of(pod).request()
            if request is not None and state is not None:
                return raised_to_request(grant, request, state.inventory)
        return grant

    def _is_valid_on(self, node: str, pod: Pod) -> bool:
        if node in self._served:
            return True
        waits = not pod.spec.node_name or pod.metadata.annotations.get(hami.BIND_PHASE) == hami.ALLOCATING
        return node in self._known and waits and not has_started(pod)

    def _find_implausibility(self, pod: Pod, node: str, grant: Grant) -> str:
        """Why a record is not one of HAMi's scheduler, as far as one can see; empty: it may be."""
        if grant.node != node:
            return f"{hami.VGPU_NODE} names node {grant.node[:64]}, but the pod is on node {node}"
        if unknown := sorted(grant.uuids - self._served.get(node, grant.uuids)):
            named = some([each[:64] for each in unknown], "GPU")
            return (
                f"{hami.DEVICES_ALLOCATED} names {named}, which HAMi's device plugin has not registered on node {node}"
            )
        asked = devices_asked(pod)
        greedy = next((part for part in grant.containers if len(part.shares) > asked.get(part.container, 0)), None)
        if greedy is not None:
            given, requested = counted(len(greedy.shares), "GPU"), asked.get(greedy.container, 0)
            numbers = f"{given}, but the container requests {requested}"
            return f"{hami.DEVICES_ALLOCATED} gives container {greedy.container} {numbers}"
        return ""

    def _release(self, uid: str, grant: Grant) -> None:
        if self._fleet.ledger.grant(uid) == grant:
            self._fleet.ledger.release(uid)
