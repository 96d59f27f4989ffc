"""Sums over a fleet are those of its GPUs, whole or cut."""

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scheduler.extender_world import a_grant

from purser.core.device.resources import mig_resource
from purser.core.fleet import Fleet
from purser.core.fleet.live import LiveArrays
from purser.core.fleet.totals import (
    OTHER_NAMESPACES,
    GpuUse,
    HeldBy,
    Totals,
    gpu_use,
    merge_namespaces,
    partitioned_gpu_use,
)
from purser.core.ledger import NO_USAGE, LedgerError
from purser.core.mig import MIG_KINDS
from purser.core.mig.on_demand import instance_share
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceMode,
    DeviceShare,
    Grant,
    MigPlacement,
    NodeInventory,
    PartitionedGpu,
)
from purser.core.placement.fragments import Causes, Fragments
from purser.core.placement.mix import LearnedMix

A100 = MIG_KINDS["A100-40GB"]
GPU_MIB = {"T4": 15360, "A100": 40960}


class Layout(NamedTuple):
    """What a GPU is."""

    model: str = "A100"
    profiles: tuple[str, ...] | None = None
    """Of its MIG devices, where these are listed."""
    on_demand: bool = False


LAYOUTS = [
    Layout("T4"),
    Layout(),
    Layout(profiles=("1g.5gb",) * 7),
    Layout(profiles=("3g.20gb", "1g.5gb")),
    Layout(profiles=()),
    Layout(on_demand=True),
]


def slices(profile: str) -> int:
    return int(profile.partition("g")[0])


def devices_of(uuid: str, index: int, layout: Layout, healthy: bool) -> list[Device]:
    """As its node lists it."""
    if layout.profiles is None:
        cut = ("A100-40GB", DeviceMode.MIG, 7) if layout.on_demand else ("", DeviceMode.SHARED, 3)
        kind, mode, slots = cut
        memory = GPU_MIB[layout.model]
        return [Device(uuid, index, layout.model, memory, slots=slots, mode=mode, mig_kind=kind, healthy=healthy)]
    return [
        Device(
            f"{uuid}/{place}/{profile}",
            index,
            layout.model,
            next(each.memory_mib for each in A100.profiles if each.name == profile),
            mode=DeviceMode.MIG,
            healthy=healthy,
            resource=mig_resource(profile),
            parent=uuid,
            compute_slices=slices(profile),
            gpu_compute_slices=7,
        )
        for place, profile in enumerate(layout.profiles)
    ]


def fleet_of(nodes: list[list[Layout]]) -> Fleet:
    """Every third GPU of a node is unhealthy, every fifth of its devices cordoned."""
    fleet = Fleet()
    for number, layouts in enumerate(nodes):
        devices: list[Device] = []
        cut = []
        for place, layout in enumerate(layouts):
            uuid, healthy = f"n{number}-{place}", place % 3 != 2
            devices += devices_of(uuid, place, layout, healthy)
            if layout.profiles is not None:
                cut.append(PartitionedGpu(uuid, layout.model, GPU_MIB[layout.model], healthy))
        cordoned = tuple(device.uuid for device in devices[4::5])
        fleet.set_inventory(NodeInventory(f"n{number}", tuple(devices), tuple(cut), cordoned=cordoned))
    return fleet


def share_of(device: Device, whole: bool, start: int) -> tuple[DeviceShare, float]:
    """Of a device, and what that is of its GPU's compute."""
    if device.mig_kind:
        profile = A100.profiles[2 * whole]  # 1g.5gb, 1g.10gb
        share = instance_share(device, profile)
        placed = MigPlacement(profile.name, start)
        return DeviceShare(share.uuid, share.memory_mib, share.cores_percent, placed), slices(profile.name) / 7
    if device.parent:
        return DeviceShare(device.uuid, device.memory_mib, 100), slices(device.uuid.rpartition("/")[2]) / 7
    cores = 100 if whole else 30
    return DeviceShare(device.uuid, device.memory_mib * cores // 100, cores), cores / 100


WANTED = st.tuples(st.integers(0, 2), st.integers(0, 20), st.booleans(), st.integers(0, 6), st.sampled_from("ab"))


def totals_of(fleet: Fleet) -> Totals:
    totals = Totals()
    for each in fleet:
        totals.add_node(each)
    for grant in fleet.ledger.grants():
        totals.add_pod(grant.namespace, "spread", fleet.ledger.held(grant.pod_uid))
    return totals


def idle_of(fleet: Fleet) -> Causes:
    return Fragments(LearnedMix()).causes(LiveArrays(fleet).arrays)


@given(st.lists(st.lists(st.sampled_from(LAYOUTS), max_size=5), min_size=1, max_size=3), st.lists(WANTED, max_size=12))
def test_each_gpu_is_in_one_state_and_each_amount_in_one_sum(
    nodes: list[list[Layout]], wanted: list[tuple[int, int, bool, int, str]]
) -> None:
    fleet = fleet_of(nodes)
    cores: Counter[str] = Counter()
    held = set()
    for number, (at, place, whole, start, namespace) in enumerate(wanted):
        node = fleet.node(f"n{at}")
        if node is None or place >= len(node.devices):
            continue
        device = node.devices[place].device
        share, part = share_of(device, whole, start)
        grant = Grant(f"u{number}", namespace, "p", node.name, (ContainerGrant("c", ContainerKind.APP, (share,)),))
        try:
            fleet.ledger.reserve(grant)
        except LedgerError:
            continue
        cores[namespace] += part  # type: ignore[assignment]
        held.add(device.parent or device.uuid)
    totals = totals_of(fleet)
    gpus = [layout for layouts in nodes for layout in layouts]
    for model, memory in GPU_MIB.items():
        count = sum(layout.model == model for layout in gpus)
        assert sum(number for (each, _), number in totals.gpus.items() if each == model) == count
        assert totals.memory_mib[model] == count * memory
    used = [state.usage for node in fleet for state in node.devices]
    assert sum(totals.granted_memory_mib.values()) == sum(usage.memory_mib for usage in used)
    assert sum(totals.granted_memory_mib.values()) <= sum(totals.memory_mib.values())
    for namespace in "ab":
        found = sum(amount for key, amount in totals.granted_cores_percent.items() if key[0] == namespace)
        assert found == pytest.approx(100 * cores[namespace])
    closed = sum(len(layouts) // 3 for layouts in nodes)
    count = Counter[GpuUse]()
    for (_, use), number in totals.gpus.items():
        count[use] += number
    assert count[GpuUse.UNHEALTHY] == closed
    assert count[GpuUse.IDLE] + len(held) <= len(gpus)
    assert count[GpuUse.FULL] + count[GpuUse.SHARED] <= len(held)
    idle = [getattr(idle_of(fleet), cause) for cause in Causes.__struct_fields__]
    assert min(idle) >= 0
    assert sum(idle) / 1000 <= len(gpus) - closed + 1e-9


def test_of_a_whole_gpu_a_mig_device_and_two_shares() -> None:
    """GPU 0 of eight is cut; three slices of it are no MIG device's."""
    cut = Layout(profiles=("3g.20gb", "1g.5gb"))
    fleet = Fleet()
    devices = [
        *devices_of("g0", 0, cut, True),
        *(each for n in range(1, 8) for each in devices_of(f"g{n}", n, Layout(), True)),
    ]
    fleet.set_inventory(NodeInventory("n", tuple(devices), (PartitionedGpu("g0", "A100", 40960),)))
    for uuid, memory, percent in (("g1", 40960, 100), ("g0/1/1g.5gb", 4864, 100), ("g2", 8192, 0), ("g2", 8192, 0)):
        share = DeviceShare(uuid, memory, percent)
        part = ContainerGrant("c", ContainerKind.APP, (share,))
        fleet.ledger.reserve(Grant(f"{len(list(fleet.ledger.grants()))}", "a", "p", "n", (part,)))
    totals = totals_of(fleet)
    assert totals.gpus == {("A100", GpuUse.SHARED): 2, ("A100", GpuUse.FULL): 1, ("A100", GpuUse.IDLE): 5}
    assert totals.memory_mib == {"A100": 8 * 40960}
    assert totals.granted_cores_percent["a", "A100", "spread"] == pytest.approx(100 + 100 / 7)
    idle = idle_of(fleet)
    assert idle.no_access == pytest.approx(3000 / 7), "of MIG devices, that pods for whole GPUs may not use"
    assert idle.usable > 0
    parts = [getattr(idle, cause) for cause in Causes.__struct_fields__]
    assert sum(parts) == pytest.approx(3000 / 7 + 5000 + 600)


@pytest.mark.parametrize(
    ("uses", "use"),
    [
        ((), GpuUse.IDLE),
        ((GpuUse.IDLE, GpuUse.FULL), GpuUse.SHARED),
        ((GpuUse.FULL, GpuUse.FULL), GpuUse.FULL),
        ((GpuUse.FULL, GpuUse.CORDONED, GpuUse.DISPUTED), GpuUse.DISPUTED),
    ],
)
def test_a_cut_gpu_is_in_the_state_of_its_mig_devices(uses: tuple[GpuUse, ...], use: GpuUse) -> None:
    assert partitioned_gpu_use(uses) is use


def test_a_gpu_is_idle_while_nothing_of_it_is_held() -> None:
    fleet = fleet_of([[Layout("T4")] * 6])
    fleet.ledger.adopt(a_grant("u", "n0", "n0-1"))
    for state in fleet.node("n0").devices:
        assert (gpu_use(state) is GpuUse.IDLE) == (state.closed == 0 and state.usage == NO_USAGE)


def test_mig_devices_of_an_agent_that_does_not_list_their_gpu_are_one() -> None:
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", tuple(devices_of("g", 0, LAYOUTS[3], True))))
    totals = totals_of(fleet)
    assert (totals.gpus, totals.memory_mib) == ({("A100", GpuUse.IDLE): 1}, {"A100": 19968 + 4864})


def test_a_grant_on_a_gpu_that_is_gone_is_of_no_model() -> None:
    fleet = fleet_of([[]])
    fleet.ledger.adopt(a_grant("u", "n0", "gone"))
    assert dict(totals_of(fleet).granted_memory_mib) == {("default", "", "spread"): 1000}


def test_namespaces_beyond_the_bound_are_one() -> None:
    held = {("a", "T4"): 1, ("b", "T4"): 2, ("c", "A100"): 3, ("d", "T4"): 4}
    amounts = Counter({HeldBy(*key, "spread"): amount for key, amount in held.items()})
    fewer = {("d", "T4"): 4, (OTHER_NAMESPACES, "T4"): 3, (OTHER_NAMESPACES, "A100"): 3}
    assert merge_namespaces(amounts, ["d"]) == {(*key, "spread"): amount for key, amount in fewer.items()}
