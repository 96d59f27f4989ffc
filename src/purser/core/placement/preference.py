"""Which of a node's devices a policy over the fleet as arrays prefers: for one node that is looked at by all rules."""

from collections.abc import Sequence

import numpy as np

from purser.core.fleet import DeviceState
from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts, gpu_facts
from purser.core.model import DeviceRequest, PodRequest
from purser.core.placement.policies import ArrayPolicy
from purser.core.placement.shape import View, container_shape, view


class ArrayPreference:
    """One pod on one row of the fleet, container by container."""

    def __init__(self, fleet: FleetArrays, row: int, policy: ArrayPolicy, request: PodRequest) -> None:
        self._fleet = fleet
        self._row = row
        self._policy = policy
        self._request = request

    def order(self, devices: DeviceRequest, states: Sequence[DeviceState], suits: Sequence[bool]) -> tuple[int, ...]:
        """The places of the devices that suit a container, most preferred first.

        ``states`` are with what the pod's other containers take beside this one; at least as many as it wants suit.
        """
        found = self._view(devices, states, suits)
        chosen = self._policy.choose(found)
        rest = [place for place, good in enumerate(suits) if good and place not in chosen]
        return (*chosen, *sorted(rest, key=lambda place: (int(found.left[place, 0]), place)))

    def _view(self, devices: DeviceRequest, states: Sequence[DeviceState], suits: Sequence[bool]) -> View:
        """What the container finds, put in the row's place: policies know more of the row than its GPUs."""
        alone = FleetArrays()
        facts = FleetNodeFacts("", tuple(map(gpu_facts, states)))
        here = view(alone, container_shape(devices, self._request), np.array([alone.put_node(facts)], np.intp))
        takes = np.zeros((len(self._fleet.memory_mib), 1), np.bool_)
        left, after = np.zeros(takes.shape, np.int64), np.zeros(takes.shape, np.int64)
        places = len(states)
        takes[:places, 0] = suits
        left[:places], after[:places] = here.left[:places], here.after[:places]
        rows = np.array([self._row], np.intp)
        cpu, model = self._fleet.cpu_free_milli[rows], self._fleet.node_model[rows].astype(np.int64)
        return View(self._fleet, here.shape, rows, left, after, takes, np.ones(1, np.bool_), cpu, model)
