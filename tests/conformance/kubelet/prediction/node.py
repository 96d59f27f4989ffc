"""One node over time: what kubelet truly holds, and what the scheduler knows of it."""

from random import Random

from purser.core.fleet import Fleet
from purser.core.fleet import NodeState as FleetNode
from purser.core.kubelet.report import check_coherence, decode, encode, node_of, report_of, state_of
from purser.core.kubelet.state import PluginResource
from purser.core.kubelet.versions import behaviour
from purser.core.model import PodRequest
from purser.core.placement import Placement, to_grant

from .agent import Coming, taken_in
from .hardware import NIC_RESOURCE, NODE, hardware
from .pods import Wishes, other_pod


class LiveNode:
    """Pods are bound to it, admitted by its kubelet some time later, reported by its agent later still, and end."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.node, self.truth, self.inventory = hardware(rng)
        self.coming: list[Coming] = []
        """Bound, and not yet seen by kubelet, in the order in which they were bound."""
        self.active: list[str] = []
        """The uids of those that kubelet took."""
        self.fleet = Fleet()
        self.fleet.set_inventory(self.inventory)
        self._uids = 0
        self._nics: dict[str, int] = {}
        self.publish()

    @property
    def known(self) -> FleetNode:
        """The node as the scheduler knows it."""
        found = self.fleet.node(NODE)
        assert found is not None
        return found

    def next_uid(self) -> str:
        self._uids += 1
        return f"pod{self._uids}"

    @property
    def wishes(self) -> Wishes:
        """What the next pod may ask for."""
        cards, listed = self.inventory.devices, self.truth.devices.resources.get(NIC_RESOURCE, PluginResource())
        return Wishes(
            cards=len(cards),
            are_shared=cards[0].slots > 1,
            nics=len(listed.healthy) - sum(self._nics.values()),
            sidecars=behaviour(self.node.config.parsed_version).has_sidecars,
        )

    def publish(self) -> None:
        """The agent tells of its kubelet."""
        report = decode(encode(report_of(self.node, self.truth)))
        node, state = node_of(report), state_of(report)
        check_coherence(node, state)
        self.fleet.set_kubelet(NODE, node, state)
        self._is_told = True

    def bind(self, request: PodRequest, placement: Placement) -> Coming:
        """The scheduler binds a pod."""
        assert request.kubelet_pod is not None
        coming = Coming(request.kubelet_pod, to_grant(placement, request, self.inventory))
        assert coming.grant is not None
        self.fleet.ledger.reserve(coming.grant)
        self._put(coming)
        return coming

    def pass_time(self) -> list[Coming]:
        """kubelet admits, pods end, others bind theirs, the agent reports. Returns the granted pods that kubelet
        refused.

        Pods end, and others come, only while nothing that was promised is still to be kept, and end only when the
        report tells of all: one that ends between a Binding and kubelet's admission leaves a place to which kubelet may
        turn, which nobody can predict.
        """
        broken = self._admit_some() if self._rng.random() < 0.6 else []
        while self._is_told and not self.coming and self.active and self._rng.random() < 0.25:
            self._end(self._rng.choice(self.active))
        if not self.coming and self._rng.random() < 0.15:
            self._put(Coming(other_pod(self._rng, self.next_uid(), self.wishes)))
        if self._rng.random() < 0.8:
            self.publish()
        return broken

    def _admit_some(self) -> list[Coming]:
        order = list(self.coming)
        if self._rng.random() < 0.5:
            self._rng.shuffle(order)
        order = order[: self._rng.randint(0, len(order))]
        self._is_told = False
        self.truth, taken = taken_in(self.node, self.truth, order, self.active_and_coming())
        self.coming = [coming for coming in self.coming if coming not in order]
        refused = [coming for coming in order if coming.uid not in taken]
        self.active += [coming.uid for coming in order if coming.uid in taken]
        for coming in refused:
            self._forget(coming.uid)
        return [coming for coming in refused if coming.grant]

    def _put(self, coming: Coming) -> None:
        self.fleet.put_pod(NODE, coming.pod)
        self.coming.append(coming)
        self._nics[coming.uid] = sum(container.limits.get(NIC_RESOURCE, 0) for container in coming.pod.containers)

    def active_and_coming(self) -> set[str]:
        """The pods that kubelet does not free the devices of."""
        return {*self.active, *(coming.uid for coming in self.coming)}

    def _end(self, uid: str) -> None:
        """kubelet frees what it held when it next has to know."""
        self.active.remove(uid)
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._nics.pop(uid)
        self.fleet.forget_pod(uid)
        self.fleet.ledger.release(uid)
