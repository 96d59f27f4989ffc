"""Decisions by what nodes say of their hardware come out the same: SR-IOV pools and pairs, zones of NUMA nodes that
another exporter counts, and machines with more NUMA nodes than an integer of a record has bits."""

from random import Random

import msgspec
import pytest
from tests import tiers
from tests.unit.core.decisions.scheduling_world import NOTHING_HELD, LoggedScheduler, as_file, replayed
from tests.unit.core.placement import test_nics as nics
from tests.unit.core.placement.test_kubelet import GIB
from tests.unit.core.placement.test_kubelet import pod as kubelet_pod
from tests.unit.scheduler.cache.test_topologies import zone

from purser.core.decisions.masks import with_wide_masks, without_wide_masks
from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.records import KubeletTaken, NodesJudged, PodPlaced
from purser.core.fleet import Fleet, NominatedUsage
from purser.core.kubelet import memorymanager
from purser.core.kubelet.config import KubeletConfig, MemoryPolicy, TopologyPolicy
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.report import ReportError, check_coherence
from purser.core.kubelet.state import (
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    PluginDevice,
    PluginOptions,
    PluginResource,
)
from purser.core.ledger import Usage
from purser.core.model import Device, DeviceMode, GpuNic, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.core.placement import Placement, PolicySettings, Reason, to_grant
from purser.kube.objects import Node
from purser.scheduler.cache.kubelets import Kubelets, NodeResourceTopology

NAMES = ["a", "b", "c"]
ASKED = [None, GpuNic.PREFERRED, GpuNic.REQUIRED]


def written(scheduler, kind):
    return [each for records in scheduler.files for each in records if isinstance(each, kind)]


def an_inventory(chance, name):
    return nics.inventory(name, vfs=[chance.randrange(4) for _ in range(4)], slots=chance.choice((1, 4)))


@pytest.mark.parametrize("seed", range((4, 60, 2000)[tiers.TIER]))
def test_pairs_on_nodes_with_pools(seed):
    chance = Random(seed)
    scheduler = LoggedScheduler(PolicySettings(), LoggedNames(b"key" if seed % 2 else None))
    fleet = scheduler.fleet
    for name in NAMES:
        fleet.set_inventory(an_inventory(chance, name))
    scheduler.new_file()
    for number in range(50):
        scheduler.at += 1
        what = chance.randrange(12)
        if what == 0:
            fleet.set_inventory(an_inventory(chance, chance.choice(NAMES)))
        elif what == 1:
            scheduler.new_file()
        elif what < 5 and (uids := fleet.ledger.uids()):
            fleet.ledger.release(chance.choice(uids))
        else:
            gpus = chance.choice((1, 1, 2, 3))
            request = nics.pod(str(number), gpus, chance.choice((gpus, 1, 2 * gpus)), gpu_nic=chance.choice(ASKED))
            held = NOTHING_HELD
            if chance.random() < 0.3:
                place = fleet.node("a").inventory.pools[0].places[0].id
                held = {"a": NominatedUsage({"a-0": Usage(1, 40000, 100, 1, 1)}, {(nics.VF, place): 1})}
            scheduler.schedule(request, NAMES, held=held)
    assert any(each.pools for each in written(scheduler, PodPlaced))
    assert replayed(scheduler.written()) == (scheduler.decisions, [])


def test_what_is_kept_of_pools_is_a_part_of_the_decision():
    """A reader that did not know of it would place the pod."""
    scheduler = LoggedScheduler(PolicySettings())
    scheduler.fleet.set_inventory(nics.inventory("a", vfs=(1, 0, 0, 0)))
    scheduler.new_file()
    place = scheduler.fleet.node("a").inventory.pools[0].places[0].id
    asks = nics.pod("p", 1, 1, gpu_nic=GpuNic.REQUIRED)
    assert scheduler.schedule(asks, ["a"], held={"a": NominatedUsage(pools={(nics.VF, place): 1})}) is None
    [judged] = written(scheduler, NodesJudged)
    assert judged.refusals == ((str(Reason.NOMINATED), 1),)
    assert replayed(scheduler.written()) == (1, [])
    [known] = judged.held
    forgot = msgspec.structs.replace(judged, held=(msgspec.structs.replace(known, pools=()),))
    decisions, [different] = replayed([as_file([forgot if each == judged else each for each in scheduler.files[0]])])
    assert (decisions, different.logged.node, different.now.node) == (1, "", "a")


@pytest.mark.parametrize("seed", range((3, 40, 1000)[tiers.TIER]))
def test_pairs_beside_a_kubelet_that_aligns(seed):
    chance = Random(seed)
    policy = list(TopologyPolicy)[1 + seed % 3]
    twin = nics.Kubelet(policy, chance.choice((1, 4)), nics.VF, chance, excluded=False)
    scheduler = LoggedScheduler(PolicySettings(), fleet=twin.fleet)
    scheduler.new_file()
    for number in range(14):
        scheduler.at += 1
        if twin.live and chance.random() < 0.3:
            twin.leave()
        vfs = chance.choice((1, 2))
        if len(twin.free()) - sum(count for _, _, count in twin.waiting) >= vfs:
            request = nics.pod(str(number), chance.choice((1, 2)), vfs, gpu_nic=chance.choice(list(GpuNic)))
            placed = scheduler.judge(request, ["n"])
            if isinstance(placed, Placement):
                grant = to_grant(placed, request, twin.inventory)
                twin.fleet.ledger.reserve(grant)
                twin.fleet.put_pod("n", request.kubelet_pod)
                twin.waiting.append((request, grant, vfs))
        if chance.random() < 0.6:
            twin.settle()
        if number % 6 == 5:
            scheduler.new_file()
    assert written(scheduler, KubeletTaken)
    assert any(each.pools for each in written(scheduler, PodPlaced))
    assert replayed(scheduler.written()) == (scheduler.decisions, [])


POLICIES = ["SingleNUMANodeContainerLevel", "SingleNUMANodePodLevel", "Restricted", "BestEffort"]


def counted_zone(number, gpus):
    told = zone(number, 16, 4)
    for resource in told["resources"]:
        taken = 4 - gpus if resource["name"] == GPU_RESOURCE else 0
        resource["available"] = str(int(resource["available"]) - taken)
    return told


@pytest.mark.parametrize("seed", range((4, 60, 2000)[tiers.TIER]))
def test_nodes_of_which_only_another_exporter_knows_numa_nodes(seed):
    """The agent tells GPUs, and no NUMA nodes of them."""
    chance, fleet = Random(seed), Fleet()
    kubelets = Kubelets(fleet)
    scheduler = LoggedScheduler(PolicySettings(), LoggedNames(b"key" if seed % 2 else None), fleet)
    for name in NAMES:
        devices = tuple(Device(f"{name}-{i}", i, "NVIDIA", 40000, slots=1) for i in range(8))
        fleet.set_inventory(NodeInventory(name, devices))
        told = {"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": "v1.30.0"}}}
        kubelets.put_node(msgspec.convert(told, Node))
    scheduler.new_file()
    on = dict.fromkeys(NAMES, "")
    for number in range(40):
        scheduler.at += 1
        name, what = chance.choice(NAMES), chance.randrange(10)
        if what < 3:
            zones = [counted_zone(each, chance.randrange(5)) for each in range(2)]
            told = {"metadata": {"name": name}, "topologyPolicies": [chance.choice(POLICIES)], "zones": zones}
            kubelets.put_topology(msgspec.convert(told, NodeResourceTopology, strict=False))
        elif what == 3 and on:
            fleet.mark_pod_admitted(chance.choice(sorted(on)))
        elif what == 4 and (uids := fleet.ledger.uids()):
            uid = chance.choice(uids)
            fleet.ledger.release(uid)
            fleet.forget_pod(uid)
            on.pop(uid, None)
        elif what == 5:
            scheduler.new_file()
        else:
            request = kubelet_pod(f"u{number}", chance.choice((1, 2, 3, 5)), chance.choice((2, 4)))
            placed = scheduler.schedule(request, NAMES)
            if isinstance(placed, Placement):
                fleet.put_pod(placed.node, request.kubelet_pod)
                on[request.uid] = placed.node
    assert any(each.counted is not None for each in written(scheduler, KubeletTaken))
    assert not any(device.numa_nodes for node in fleet for device in node.inventory.devices)
    assert replayed(scheduler.written()) == (scheduler.decisions, [])


FAR = 900
"""A NUMA node beyond 64, as memory expanders have."""


def far_machine() -> Machine:
    """Two NUMA nodes with CPUs, one of these far from 0."""
    cpus = tuple(Cpu(n, (0, FAR)[n // 16], n // 16, n) for n in range(32))
    return Machine(tuple(NumaNode(n, {"memory": 256 * GIB}) for n in (0, FAR)), cpus, 2)


def far_kubelet():
    config = KubeletConfig(
        "v1.36.2",
        TopologyPolicy.RESTRICTED,
        memory_policy=MemoryPolicy.STATIC,
        reserved_memory={0: {"memory": GIB}},
    )
    return KubeletNode(config, far_machine())


def far_state(node):
    cards = {f"g{i}": PluginDevice(f"g{i}", True, ((0, FAR)[i // 4],)) for i in range(8)}
    gpus = PluginResource(cards, frozenset(cards), frozenset(), True, PluginOptions(False, True))
    return KubeletState(DeviceManagerState({GPU_RESOURCE: gpus}), None, memorymanager.start(node))


def test_numa_nodes_beyond_64():
    node = far_kubelet()
    fleet = Fleet()
    whole = {"slots": 1, "mode": DeviceMode.WHOLE}
    devices = tuple(Device(f"g{i}", i, "NVIDIA", 40000, numa_nodes=((0, FAR)[i // 4],), **whole) for i in range(8))
    fleet.set_inventory(NodeInventory("n", devices))
    state = far_state(node)
    check_coherence(node, state)
    fleet.set_kubelet("n", node, state)
    scheduler = LoggedScheduler(PolicySettings(), fleet=fleet)
    scheduler.new_file()
    for count, fits in ((4, True), (5, False), (3, True)):
        placed = scheduler.schedule(kubelet_pod(f"u{count}", count, 2), ["n"])
        assert isinstance(placed, Placement) == fits
        fleet.ledger.release(f"u{count}")
    assert replayed(scheduler.written()) == (scheduler.decisions, [])
    [taken] = written(scheduler, KubeletTaken)
    assert len(taken.masks) == 2
    with pytest.raises(ReportError, match="cannot be in a group"):
        check_coherence(node, taken.state)


def test_masks_that_fit_stay_in_the_state_and_others_are_held_to_their_number():
    near = KubeletState(hints={("u", "c"): Hint(1 << 63, True), ("u", "d"): Hint(None, False)})
    assert without_wide_masks(near) == (near, ())
    wide = KubeletState(hints={("u", "c"): Hint(1 << 64 | 1, True), ("u", "d"): Hint(None, False)})
    bare, masks = without_wide_masks(wide)
    assert with_wide_masks(bare, masks) == wide
    assert bare.hints["u", "c"].mask == 0
    for wrong in ((*masks, b"\1"), (b"\1" * 129,)):
        with pytest.raises(ValueError, match=r"sets? of NUMA nodes"):
            with_wide_masks(bare, wrong)
