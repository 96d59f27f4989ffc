"""Which network devices a pod gets with its GPUs, and GPUs that are near such: for pods that ask for both.

kube-scheduler counts what containers ask of SR-IOV pools; from which PCIe switch that comes is for the grant to say, so
that the next pod is placed by what is left there.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from purser.core.fleet import NodeState
from purser.core.model import Device, GpuNic, NodePool, PcieSwitches, PodRequest, PoolShare
from purser.core.placement.choice import ContainerStep, Pick, choices
from purser.core.placement.granted import Positions
from purser.core.placement.reasons import Reason, Refusal
from purser.core.placement.sparing import Sparing
from purser.core.sriov.pairs import FreePlace, Pairing, PoolAsk, TakenDevices
from purser.core.wording import counted


class PodPools:
    """The pools of a node, while the containers of a pod are placed on it."""

    def __init__(self, node: NodeState, request: PodRequest, sparing: Sparing | None = None) -> None:
        """``sparing``: what containers leave to those after them; none: nothing."""
        self._sparing = sparing if sparing is not None else Sparing()
        self._pools: tuple[NodePool, ...] = node.inventory.pools if request.gpu_nic is not None else ()
        self._taken = dict(node.pools_taken)
        self._asked = {each.name: each for each in request.containers if each.beside} if self._pools else {}
        self._is_required = request.gpu_nic is GpuNic.REQUIRED
        self.shares: list[PoolShare] = []
        """Of the containers that are placed."""
        self.pairs = 0
        """How many of the pod's GPUs have a network device of their container near them."""
        self.missed = 0
        """How many more would, if there were one for each."""

    def choose(
        self, containers: Sequence[str], steps: Sequence[ContainerStep], devices: Sequence[Device], pick: Pick
    ) -> list[Positions] | None:
        """The first choice for a row of containers; where network devices are to be near its GPUs, the first with the
        most pairs."""
        self._sparing.begin_next_row()
        asked = self.asks_of_last_container(containers)
        if not asked:
            return next(choices(steps, devices, self._sparing.pick(pick)), None)
        switches = [device.pcie for device in devices]
        found = choices(steps, devices, self._sparing.pick(pick_near_nics(asked, switches, pick)))
        if not any(step.numa_bind for step in steps):
            return next(found, None)
        return max(found, key=lambda chosen: pair_gpus(asked, _switches_at(switches, chosen[-1])).count, default=None)

    def hold(self, containers: Sequence[tuple[str, Positions]], devices: Sequence[Device]) -> Refusal | None:
        """The containers of a row have these of the devices. A refusal where they must have pairs, and there are too
        few."""
        before = dict(self._taken)
        for name, positions in containers:
            asked = self._asks(name, before) if name in self._asked else ()
            if not asked:
                continue
            pairing = pair_gpus(asked, [devices[place].pcie for place in positions])
            wanted = min(len(positions), sum(each.count for each in asked))
            self.missed += wanted - pairing.count
            if self._is_required and pairing.count < wanted:
                return _too_few_pairs(name, pairing.count, wanted)
            self.pairs += pairing.count
            shares = pairing.shares(name)
            self.shares.extend(shares)
            for share in shares:
                key = share.resource, share.place
                self._taken[key] = max(self._taken.get(key, 0), before.get(key, 0) + share.count)
        return None

    def run(self, positions: Positions) -> None:
        """A container has these devices over the pod's whole life."""
        self._sparing.hold(positions)

    def refusal(self, container: str) -> Refusal | None:
        """Where the pod requires pairs, and the node has none of the pools that it asks for."""
        if not self._is_required or any(self.asks_of_last_container([name]) for name in self._asked):
            return None
        return Refusal(((Reason.NO_POOL, 1),), container=container)

    def asks_of_last_container(self, containers: Sequence[str]) -> tuple[PoolAsk, ...]:
        """What is asked of pools by the last of these that asks for any: those before hand theirs on."""
        found = (self._asks(name, self._taken) for name in reversed(containers) if name in self._asked)
        return next((each for each in found if each), ())

    def _asks(self, name: str, taken: TakenDevices) -> tuple[PoolAsk, ...]:
        container = self._asked[name]
        asked, allowed = dict(container.beside), dict(container.pool_numa_nodes)
        gone = self._sparing.places + Counter(taken)
        return tuple(
            PoolAsk(pool.resource, asked[pool.resource], _free_places(pool, gone, allowed.get(pool.resource)))
            for pool in self._pools
            if pool.resource in asked
        )


def _free_places(pool: NodePool, taken: TakenDevices, numa_nodes: Collection[int] | None) -> tuple[FreePlace, ...]:
    """``numa_nodes``: those of which kubelet would take devices; None: it is not known to mind."""
    return tuple(
        FreePlace(pool.resource, each.id, each.switches, max(0, each.count - taken.get((pool.resource, each.id), 0)))
        for each in pool.places
        if numa_nodes is None or each.numa_node is None or each.numa_node in numa_nodes
    )


def pair_gpus(asked: Sequence[PoolAsk], gpus: Sequence[PcieSwitches]) -> Pairing:
    """The pairs of a container with GPUs below these switches."""
    found = Pairing(asked)
    for each in gpus:
        found.add(each)
    return found


def _switches_at(switches: Sequence[PcieSwitches], positions: Positions) -> list[PcieSwitches]:
    return [switches[place] for place in positions]


def pick_near_nics(asked: Sequence[PoolAsk], switches: Sequence[PcieSwitches], pick: Pick) -> Pick:
    """The pick that has as many pairs as there can be with those already taken; among such sets it goes by ``pick``.

    ``switches``: above each candidate, by position.
    """

    def near(candidates: Sequence[int], count: int, taken: Sequence[int]) -> tuple[int, ...]:
        pairing = pair_gpus(asked, [switches[place] for place in taken])
        close = [place for place in candidates if place in taken or pairing.is_near(switches[place])]
        liked = pick(close if len(close) >= count else candidates, count, taken)
        order = dict.fromkeys((*liked, *close, *candidates))
        fresh = [place for place in order if place not in taken]
        with_nic: list[int] = []
        for place in fresh:
            if len(with_nic) < count - len(taken) and pairing.add(switches[place]):
                with_nic.append(place)
        rest = (place for place in fresh if place not in with_nic)
        return (*taken, *with_nic, *rest)[:count]

    return near


def _too_few_pairs(container: str, pairs: int, wanted: int) -> Refusal:
    detail = f"{pairs} of the {counted(wanted, 'pair')} that a container needs"
    return Refusal(((Reason.TOO_FEW_PAIRS, 1),), container=container, detail=detail)
