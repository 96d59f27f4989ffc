"""How many pods with several GPUs get a network device below the PCIe switch of each, under load.

    python benchmarks/gpu_nic_pairs.py [--nodes 8] [--pods 4000] [--load 0.85] [--alone 0.3]

Pods of 1, 2, 4 and 8 GPUs, with as many VFs, come to nodes of the lab's profiles and leave at random, so that about the
given part of all GPUs is in use. The same pods come in every row: to a scheduler and agents that know the switches; to
the same ones without that knowledge, where the agent chooses VFs of ports with the most free ones; and there again with
VFs at random, as kubelet takes them of plugins without a preference. ``--alone``: this part of the pods has GPUs alone
or VFs alone, as many of one as of the other, and neither is counted among pairs. No grant says where the latter are: as
in a cluster, the agent chooses their VFs by port, and then publishes what is left.
"""

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

import msgspec

from purser.agent.host.sysfs import pci_address
from purser.core.fleet import Fleet
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceMode,
    DeviceRequest,
    GpuNic,
    Grant,
    NodeInventory,
    NodePool,
    PcieSwitches,
    PodRequest,
    PoolPlace,
)
from purser.core.placement import Evaluator, Placement, best, to_grant
from purser.core.sriov.configuration import SriovDeviceType
from purser.core.sriov.devices import SriovDevice
from purser.core.sriov.pairs import FreePlace, container_pairs
from purser.core.sriov.preference import preferred_devices
from purser.lab.driver import profiles

POOL = "mellanox.com/vf"
PROFILES = ("dgx-a100-nics", "hgx-h100-nics")
SIZES = (1, 2, 4, 8)
KNOWING, UNAWARE, RANDOM = "switches known", "not known, VFs by port", "not known, VFs at random"


class Machine(NamedTuple):
    """One node of a profile."""

    inventory: NodeInventory
    switches: Mapping[str, PcieSwitches]
    vfs: Mapping[str, SriovDevice]


def machine(profile: str, name: str) -> Machine:
    loaded = profiles.load(profile)
    above = {pci_address(each): (switch.root_port,) for switch in loaded.switches for each in switch.below}
    devices = tuple(
        Device(
            f"{name}-{index}",
            index,
            loaded.model_of(gpu).name,
            loaded.model_of(gpu).memory_mib,
            numa_nodes=(gpu.numa_node or 0,),
            mode=DeviceMode.WHOLE,
            pcie=above[pci_address(gpu.pci)],
        )
        for index, gpu in enumerate(loaded.gpus)
    )
    vfs = {
        f"{nic.pci}-{number}": SriovDevice(
            id=f"{nic.pci}-{number}",
            address=nic.pci,
            type=SriovDeviceType.NET_DEVICE,
            vendor="15b3",
            device="101e",
            pf_address=nic.pci,
            numa_node=nic.numa_node,
            switches=above[pci_address(nic.pci)],
        )
        for nic in loaded.nics
        for number in range(nic.vfs)
    }
    counts = Counter((vf.switches, vf.numa_node) for vf in vfs.values())
    places = tuple(PoolPlace(switches, count, numa) for (switches, numa), count in sorted(counts.items()))
    inventory = NodeInventory(name, devices, pools=(NodePool(POOL, places),))
    return Machine(inventory, {device.uuid: device.pcie for device in devices}, vfs)


def request(uid: str, count: int, vfs: int, way: str) -> PodRequest:
    asked = DeviceRequest(count, memory_percent=100, cores_percent=100)
    container = ContainerRequest("main", ContainerKind.APP, asked, beside=((POOL, vfs),) if vfs else ())
    return PodRequest(uid, "default", uid, (container,), gpu_nic=GpuNic.PREFERRED if way == KNOWING else None)


class Held(NamedTuple):
    """What a pod has."""

    node: str
    grant: Grant | None
    vfs: list[str]

    @property
    def gpus(self) -> int:
        return len(self.grant.uuids) if self.grant is not None else 0


class Result(NamedTuple):
    placed: int
    several: int
    aligned: int
    pairs: float
    used: float
    decision_ms: float


class Cluster:
    def __init__(self, way: str, profile: str, nodes: int, seed: int) -> None:
        self.way, self.random = way, Random(seed)
        self.machines = {f"n{number}": machine(profile, f"n{number}") for number in range(nodes)}
        self.fleet = Fleet()
        for each in self.machines.values():
            known = each.inventory if way == KNOWING else msgspec.structs.replace(each.inventory, pools=())
            self.fleet.set_inventory(known)
        self.evaluator = Evaluator(self.fleet)
        self.free = {name: sorted(each.vfs) for name, each in self.machines.items()}
        self.held: dict[str, Held] = {}
        self.took: list[float] = []

    def in_use(self) -> tuple[int, int]:
        """GPUs and VFs."""
        return sum(each.gpus for each in self.held.values()), sum(len(each.vfs) for each in self.held.values())

    def arrive(self, uid: str, gpus: int, vfs: int) -> int | None:
        """How many pairs the pod gets; None: it waits, and is not counted. kube-scheduler counts VFs by itself."""
        names = [name for name, free in self.free.items() if len(free) >= vfs]
        if not gpus:
            if names:
                self.take(uid, self.random.choice(names), None, vfs)
            return 0 if names else None
        asked = request(uid, gpus, vfs, self.way)
        start = time.process_time()
        found = self.evaluator.evaluate(asked, names)
        chosen = best(found)
        placement = self.evaluator.place(chosen, asked) if chosen is not None else None
        self.took.append(1e3 * (time.process_time() - start))
        if not isinstance(placement, Placement):
            return None
        on = self.machines[placement.node]
        grant = to_grant(placement, asked, on.inventory)
        self.fleet.ledger.reserve(grant)
        taken = self.take(uid, placement.node, grant, vfs)
        got = [FreePlace(POOL, each, on.vfs[each].switches, 1) for each in taken]
        return container_pairs(grant.containers[0], got, on.switches).pairs if got else 0

    def take(self, uid: str, node: str, grant: Grant | None, count: int) -> list[str]:
        vfs = self.choose(node, grant, count) if count else []
        self.free[node] = [each for each in self.free[node] if each not in vfs]
        self.held[uid] = Held(node, grant, vfs)
        if grant is None:
            self.publish(node)
        return vfs

    def publish(self, node: str) -> None:
        """Without VFs of which no grant says that a pod has them."""
        if self.way != KNOWING:
            return
        on = self.machines[node]
        others = Counter(
            on.vfs[id_].switches
            for each in self.held.values()
            if each.node == node and each.grant is None
            for id_ in each.vfs
        )
        pools = tuple(
            NodePool(
                pool.resource,
                tuple(PoolPlace(at.switches, at.count - others[at.switches], at.numa_node) for at in pool.places),
            )
            for pool in on.inventory.pools
        )
        self.fleet.set_inventory(msgspec.structs.replace(on.inventory, pools=pools))

    def choose(self, node: str, grant: Grant | None, count: int) -> list[str]:
        free = self.free[node]
        if self.way == RANDOM:
            return self.random.sample(free, count)
        places = {share.place: share.count for share in grant.pools} if grant is not None else {}
        return preferred_devices(count, free, [], self.machines[node].vfs, places, lambda vf: vf.switches[-1])

    def leave(self, uid: str) -> None:
        node, grant, vfs = self.held.pop(uid)
        self.free[node].extend(vfs)
        if grant is None:
            self.publish(node)
        else:
            self.fleet.ledger.release(uid)


def asked_for(draw: Random, alone: float) -> tuple[int, int]:
    """GPUs and VFs of the next pod."""
    count = draw.choice(SIZES)
    chance = draw.random() if alone else 1.0
    return (count if chance >= alone / 2 else 0), (count if not alone / 2 <= chance < alone else 0)


def run(way: str, profile: str, nodes: int, pods: int, load: float, alone: float) -> Result:
    cluster, draw = Cluster(way, profile, nodes, seed=1), Random(2)
    most = load * 8 * nodes, load * sum(len(each.vfs) for each in cluster.machines.values())
    placed = several = aligned = wanted = pairs = 0
    used: list[float] = []
    for number in range(pods):
        gpus, vfs = asked_for(draw, alone)
        in_use = cluster.in_use()
        while cluster.held and (in_use[0] + gpus > most[0] or in_use[1] + vfs > most[1]):
            cluster.leave(draw.choice(sorted(cluster.held)))
            in_use = cluster.in_use()
        found = cluster.arrive(f"{number:05}", gpus, vfs)
        used.append(cluster.in_use()[0] / (8 * nodes))
        if found is None:
            continue
        placed += 1
        if gpus and vfs:
            wanted, pairs = wanted + gpus, pairs + found
            several, aligned = several + (gpus > 1), aligned + (gpus > 1 and found == gpus)
    return Result(placed, several, aligned, pairs / wanted, statistics.mean(used), statistics.median(cluster.took))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--pods", type=int, default=4000)
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--alone", type=float, default=0.0, help="part of the pods that have GPUs alone or VFs alone")
    given = parser.parse_args()
    if not 0 <= given.alone < 1:
        parser.error("--alone: write a part from 0 to below 1")
    columns = (
        "pods placed | with several GPUs and VFs | of these all pairs | GPUs in pairs | GPUs in use | "
        "decision, processor time"
    )
    print(f"| profile | scheduler and agent | {columns} |")
    print("|---" * 8 + "|")
    for profile in PROFILES:
        for way in (KNOWING, UNAWARE, RANDOM):
            found = run(way, profile, given.nodes, given.pods, given.load, given.alone)
            share = found.aligned / found.several
            print(
                f"| {profile} | {way} | {found.placed} | {found.several} | {share:.1%} | {found.pairs:.1%} "
                f"| {found.used:.0%} | {found.decision_ms:.2f} ms |",
                flush=True,
            )


if __name__ == "__main__":
    main()
