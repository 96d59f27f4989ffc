"""Pods that ask for GPUs and network devices: pairs under one PCIe switch, by the books and by kubelet's own rules."""

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.placement.test_kubelet import config, machine

from purser.core.device.answers import preferred_ids
from purser.core.device.ids import device_ids, reported_numa_nodes, uuids_of
from purser.core.device.resources import is_gpu_resource
from purser.core.fleet import Fleet
from purser.core.kubelet import cpumanager, managers
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import Allocate
from purser.core.kubelet.config import TopologyPolicy
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import (
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    PluginDevice,
    PluginOptions,
    PluginResource,
)
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceMode,
    DeviceRequest,
    GpuNic,
    GpuPolicy,
    NodeInventory,
    NodePool,
    PodRequest,
    PoolPlace,
)
from purser.core.names import GPU_RESOURCE
from purser.core.placement import Evaluator, Placement, Reason, Refusal, explain, place, to_grant
from purser.core.policy.settings import PolicySettings
from purser.core.sriov.configuration import SriovDeviceType
from purser.core.sriov.devices import SriovDevice
from purser.core.sriov.pairs import pairs_of, switches_of
from purser.core.sriov.preference import preferred_devices

VF = "mellanox.com/vf"
INIT, APP = ContainerKind.INIT, ContainerKind.APP
POLICIES = [
    PolicySettings(),
    PolicySettings(gpu=(GpuPolicy.SPREAD,)),
    PolicySettings(gpu=(GpuPolicy.TOPOLOGY_AWARE,)),
]


def above(number):
    return (f"root-{number}", f"switch-{number}")


def inventory(name="n", gpus=(0, 0, 1, 1, 2, 2, 3, 3), vfs=(2, 2, 2, 2), slots=1, resource=VF, excluded=False):
    """``gpus``: by GPU its switch, of which two are on a NUMA node; ``vfs``: by switch."""
    mode = DeviceMode.WHOLE if slots == 1 else DeviceMode.SHARED
    devices = tuple(
        Device(f"{name}-{i}", i, "NVIDIA", 40000, slots=slots, numa_nodes=(s // 2,), mode=mode, pcie=above(s))
        for i, s in enumerate(gpus)
    )
    places = tuple(PoolPlace(above(s), count, None if excluded else s // 2) for s, count in enumerate(vfs))
    return NodeInventory(name, devices, pools=(NodePool(resource, places),))


def pod(uid, gpus, vfs, *, gpu_nic=GpuNic.PREFERRED, memory_mib=None, resource=VF, numa_bind=False, init=()):
    parts = [*((f"init-{i}", INIT, *each) for i, each in enumerate(init)), ("main", APP, gpus, vfs)]
    containers, seen = [], []
    for name, kind, count, nics in parts:
        amounts = {GPU_RESOURCE: count, **({resource: nics} if nics else {})}
        seen.append(KubeletContainer(name, kind, amounts, amounts))
        size = {"memory_mib": memory_mib} if memory_mib else {"memory_percent": 100, "cores_percent": 100}
        asked = DeviceRequest(count, numa_bind=numa_bind, **size)
        containers.append(ContainerRequest(name, kind, asked, beside=((resource, nics),) if nics else ()))
    return PodRequest(
        uid, "ns", uid, tuple(containers), kubelet_pod=KubeletPod(uid, tuple(seen), QosClass.BURSTABLE), gpu_nic=gpu_nic
    )


def bind(fleet, request, name="n", policy=POLICIES[0]):
    placement = Evaluator(fleet, policy).place(name, request)
    assert isinstance(placement, Placement), placement
    grant = to_grant(placement, request, fleet.node(name).inventory)
    fleet.ledger.reserve(grant)
    return grant


def pairs(fleet, grant):
    found = fleet.node(grant.node).inventory
    [each] = pairs_of(grant, switches_of(found.devices), found.pools)
    return each.pairs


def fleet_of(*inventories):
    fleet = Fleet()
    for each in inventories:
        fleet.set_inventory(each)
    return fleet


@pytest.mark.parametrize("policy", POLICIES, ids=["default", "spread", "topology-aware"])
@pytest.mark.parametrize("slots", [1, 10])
def test_pods_get_pairs_until_there_are_no_more(policy, slots):
    fleet = fleet_of(inventory(vfs=(2, 0, 1, 2), slots=slots))
    grants = [bind(fleet, pod(str(n), count, count), policy=policy) for n, count in enumerate((1, 2, 1, 1))]
    assert [pairs(fleet, grant) for grant in grants] == [1, 2, 1, 1]
    assert sum(share.count for grant in grants for share in grant.pools) == 5
    fleet.ledger.release("1")
    assert pairs(fleet, bind(fleet, pod("again", 2, 2, gpu_nic=GpuNic.REQUIRED), policy=policy)) == 2


def test_a_pod_that_requires_pairs_goes_where_they_are_or_waits():
    nodes = [
        inventory("none", vfs=(0, 0, 0, 0)),
        inventory("one", vfs=(1, 0, 0, 0)),
        inventory("two", vfs=(1, 1, 9, 9)),
    ]
    unaware = msgspec.structs.replace(inventory("old"), pools=())
    fleet = fleet_of(*nodes, unaware, inventory("other", resource="example.com/nic"))
    names = [*fleet.names(), "missing"]
    asks = pod("p", 2, 2, gpu_nic=GpuNic.REQUIRED)
    found = Evaluator(fleet).evaluate(asks, names)
    assert found.fits == ["two"]
    reasons = {name: refusal.counts[0][0] for name, refusal in found.refusals.items()}
    too_few = dict.fromkeys(("none", "one"), Reason.TOO_FEW_PAIRS)
    no_pool = dict.fromkeys(("old", "other"), Reason.NO_POOL)
    assert reasons == too_few | no_pool | {"missing": Reason.UNREGISTERED}
    assert found.refusals["one"].detail == "1 of the 2 pairs that a container needs"
    said = explain(found.refusals, asks, fleet)
    assert "2 nodes have too few pairs of a GPU and a network device under the same PCIe switch" in said
    assert "2 nodes have none of the SR-IOV pools that the pod asks for" in said
    refusal = Evaluator(fleet).place("old", asks)
    assert isinstance(refusal, Refusal)
    assert (refusal.message, refusal.resolvable) == ("GpuNicPoolNotFound", False), "it would not help to evict pods"
    bind(fleet, pod("q", 8, 0), "two")
    refusal = Evaluator(fleet).evaluate(asks, ["two"]).refusals["two"]
    assert refusal.resolvable


def test_nodes_with_more_pairs_are_better_whatever_the_policy_says():
    fleet = fleet_of(inventory("a", vfs=(1, 0, 0, 0)), inventory("b", vfs=(2, 2, 2, 2)), inventory("c", vfs=(0,)))
    found = Evaluator(fleet).evaluate(pod("p", 2, 2), ["a", "b", "c"])
    by_score = sorted(found.fits, key=dict(zip(found.fits, found.scores, strict=True)).__getitem__, reverse=True)
    assert by_score == ["b", "a", "c"]
    plain = Evaluator(fleet).evaluate(pod("p", 2, 0), ["a", "b", "c"])
    assert len(set(plain.scores)) == 1


def test_numa_binding_and_pairs_go_together():
    fleet = fleet_of(inventory(vfs=(0, 1, 2, 2)))
    asks = pod("p", 3, 3, gpu_nic=GpuNic.REQUIRED, numa_bind=True)
    grant = bind(fleet, asks)
    assert {int(uuid.removeprefix("n-")) // 4 for uuid in grant.uuids} == {1}
    assert pairs(fleet, grant) == 3


@pytest.mark.parametrize("policy", [TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE])
def test_a_share_whose_network_device_kubelet_takes_elsewhere_is_no_pair(policy):
    """kubelet knows no NUMA node of shares, and takes network devices of the first one that has any."""
    kubelet = Kubelet(policy, 4, VF, random.Random(1), False, vfs=(1, 0, 1, 0))
    ill = [msgspec.structs.replace(each, healthy=each.index > 3) for each in kubelet.inventory.devices]
    kubelet.inventory = msgspec.structs.replace(kubelet.inventory, devices=tuple(ill))
    kubelet.fleet.set_inventory(kubelet.inventory)
    asks = pod("p", 1, 1, memory_mib=10000, gpu_nic=GpuNic.REQUIRED)
    refusal = place(kubelet.fleet.node("n"), asks)
    assert isinstance(refusal, Refusal)
    assert "on NUMA node 0, but none of those are near a GPU for the container" in refusal.detail
    grant = bind(kubelet.fleet, msgspec.structs.replace(asks, gpu_nic=GpuNic.PREFERRED))
    assert [(share.place, share.count) for share in grant.pools] == [(above(0)[-1], 1)]
    assert pairs(kubelet.fleet, grant) == 0


def test_what_a_pod_on_its_way_gets_of_pools_is_foretold_by_its_grant():
    kubelet = Kubelet(TopologyPolicy.RESTRICTED, 1, VF, random.Random(1), False, vfs=(0, 0, 1, 1))
    grant = bind(kubelet.fleet, asks := pod("p", 2, 2))
    kubelet.fleet.put_pod("n", asks.kubelet_pod)
    [arrival] = kubelet.fleet.node("n").kubelet.arrivals
    assert arrival.pools == {("main", VF): {1: 2}}
    assert pairs(kubelet.fleet, grant) == 2


def test_the_same_uuids_in_another_order_share_a_verdict_only_with_equal_switches():
    """Nodes in equal state are judged once: switches and free devices are a part of that."""
    fleet = fleet_of(inventory("a"), inventory("b"), inventory("c", vfs=(2, 2, 2, 1)), inventory("d", gpus=(0,) * 8))
    classes = fleet.classes()
    assert classes["a"] == classes["b"]
    assert len(set(classes.values())) == 3
    bind(fleet, pod("p", 1, 1), "a")
    bind(fleet, pod("q", 1, 0), "b")
    assert len(set(fleet.classes().values())) == 4


class Kubelet:
    """The twin with Purser's agent behind it, and the scheduler's fleet."""

    def __init__(self, policy, slots, resource, rng, excluded, vfs=()):
        self.rng, self.resource = rng, resource
        vfs = vfs or tuple(rng.randint(0, 3) for _ in range(4))
        self.inventory = inventory(vfs=vfs, slots=slots, resource=resource, excluded=excluded)
        self.fleet = fleet_of(self.inventory)
        self.node = KubeletNode(config(policy), machine(2))
        self.vfs = {
            f"vf-{s}-{i}": SriovDevice(
                id=f"vf-{s}-{i}", address="", type=SriovDeviceType.NET_DEVICE, vendor="", device="",
                pf_address=f"pf-{s}", numa_node=s // 2, switches=above(s),
            )
            for s, count in enumerate(vfs)
            for i in range(count)
        }  # fmt: skip
        gpus = {
            id_: PluginDevice(id_, True, reported_numa_nodes(d) or None)
            for d in self.inventory.devices
            for id_ in device_ids(d)
        }
        nics = {id_: PluginDevice(id_, True, None if excluded else (d.numa_node,)) for id_, d in self.vfs.items()}
        plugged = {
            name: PluginResource(known, frozenset(known), frozenset(), True, PluginOptions(False, True))
            for name, known in ((GPU_RESOURCE, gpus), (resource, nics))
        }
        self.state = KubeletState(DeviceManagerState(plugged), cpumanager.start(self.node, None))
        self.live, self.waiting = {}, []
        self.report()

    def report(self):
        self.fleet.set_kubelet("n", self.node, self.state)

    def admit(self, request, grant):
        """By kubelet's rules, answered as the agent does."""
        asking = admit(self.node, self.state, request.kubelet_pod, None)
        answer = None
        try:
            while True:
                answer = self.answer(asking.send(answer), grant)
        except StopIteration as end:
            return end.value

    def answer(self, ask, grant):
        container = ask.container[1]
        if isinstance(ask, Allocate):
            return b""
        if is_gpu_resource(ask.resource):
            return preferred_ids(grant.of(container).uuids, ask.size, ask.available, ask.must_include) or ()
        places = {share.place: share.count for share in grant.pools if share.container == container}
        asked = (ask.size, sorted(ask.available), sorted(ask.must_include))
        return tuple(preferred_devices(*asked, self.vfs, places, lambda device: device.switches[-1]))

    def arrive(self, number):
        gpus = self.rng.choice((1, 1, 2, 3, 4))
        vfs = self.rng.choice((gpus, gpus, 1, 2 * gpus))
        if vfs > len(self.free()) - sum(n for _, _, n in self.waiting):
            return
        shared = self.inventory.devices[0].slots > 1 and self.rng.random() < 0.5
        gpu_nic = self.rng.choice(list(GpuNic))
        size = {"memory_mib": 10000} if shared else {}
        request = pod(str(number), gpus, vfs, gpu_nic=gpu_nic, resource=self.resource, **size)
        placement = Evaluator(self.fleet).place("n", request)
        if isinstance(placement, Refusal):
            return
        grant = to_grant(placement, request, self.inventory)
        self.fleet.ledger.reserve(grant)
        self.fleet.put_pod("n", request.kubelet_pod)
        if gpu_nic is GpuNic.REQUIRED:
            assert pairs(self.fleet, grant) == min(gpus, vfs)
        self.waiting.append((request, grant, vfs))

    def settle(self):
        """kubelet takes pods that come together in any order."""
        self.rng.shuffle(self.waiting)
        for request, grant, _ in self.waiting:
            outcome = self.admit(request, grant)
            assert outcome.refusal is None, (outcome.refusal, grant)
            self.state = outcome.state
            held = self.state.devices.held[request.uid, "main"]
            assert Counter(uuids_of(held[GPU_RESOURCE].device_ids)) == Counter(grant.of("main").uuids)
            got = Counter(self.vfs[id_].switches[-1] for id_ in held[self.resource].device_ids)
            planned = {share.place: share.count for share in grant.pools}
            assert got == (planned or got), (got, planned)  # a grant that names no places promises none
            self.live[request.uid] = bool(planned)
        self.waiting = []
        self.credit()
        self.report()

    def free(self):
        taken = self.state.devices.allocated.get(self.resource, frozenset())
        return [id_ for id_ in self.vfs if id_ not in taken]

    def leave(self):
        self.settle()  # what ends between a Binding and kubelet's answer changes that
        uid = self.rng.choice(sorted(self.live))
        del self.live[uid]
        self.fleet.ledger.release(uid)
        self.fleet.forget_pod(uid)
        self.state = managers.free_all_but(self.state, self.live)
        self.credit()
        self.report()

    def credit(self):
        """As the agent publishes it: devices of which no grant says that a container holds them are off."""
        off = Counter(
            self.vfs[id_].switches[-1]
            for (uid, _), held in self.state.devices.held.items()
            if not self.live.get(uid, True) and self.resource in held
            for id_ in held[self.resource].device_ids
        )
        all_ = Counter(device.switches[-1] for device in self.vfs.values())
        [pool] = self.inventory.pools
        places = tuple(msgspec.structs.replace(p, count=all_[p.id] - off[p.id]) for p in pool.places)
        self.inventory = msgspec.structs.replace(self.inventory, pools=(NodePool(pool.resource, places),))
        self.fleet.set_inventory(self.inventory)


@given(
    st.sampled_from(list(TopologyPolicy)),
    st.sampled_from([1, 4]),
    st.sampled_from(["aa.com/vf", "zz.com/vf"]),
    st.booleans(),
    st.integers(0, 1 << 30),
)
def test_kubelet_takes_every_pod_and_gives_it_the_devices_that_were_foretold(policy, slots, resource, excluded, seed):
    """Whichever resource it asks for first."""
    kubelet = Kubelet(policy, slots, resource, random.Random(seed), excluded)
    for number in range(12):
        if kubelet.live and kubelet.rng.random() < 0.3:
            kubelet.leave()
        else:
            kubelet.arrive(number)
        if kubelet.rng.random() < 0.6:
            kubelet.settle()
    kubelet.settle()
