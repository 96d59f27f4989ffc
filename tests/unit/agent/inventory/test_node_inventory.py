"""Inventory and kubelet's list, out of what a driver reported."""

import pytest
from tests.unit.agent.builders import A, B, device

from purser.agent.inventory.building import (
    InventoryBasis,
    KubeletDevice,
    advertise,
    has_library,
    make_inventory,
    unreadable,
)
from purser.agent.inventory.enforcement import Enforcers
from purser.agent.kubelet.plugin import device_list
from purser.agent.nvml import DriverInfo, Gpu, MigMode
from purser.agent.settings import AgentSettings, DevicePluginFlags, EnforcementChoice, SharingSettings
from purser.agent.sharing import SharingConfig, config_of
from purser.core.device.gpus import NodeMigDevice
from purser.core.device.ids import MAX_SLOTS, device_ids, uuid_of, uuids_of
from purser.core.health.machine import GpuHealth, HealthCause, Sign, after_xid
from purser.core.health.policy import XidPolicy
from purser.core.health.signs import DeviceFault, FaultKind
from purser.core.health.state import HealthState
from purser.core.model import DeviceMode, Enforcement, Link, NodeInventory, PartitionedGpu
from purser.core.sharing import MigStrategy, plugin_file

LOST = DeviceFault(FaultKind.LOST, "nvmlDeviceGetUUID", "GPU is lost")
NO_ENFORCERS = Enforcers()
INFO = DriverInfo(version="550.54", cuda_version="12.4")


def gpu(index, uuid, **fields):
    return Gpu(
        **{
            "index": index,
            "uuid": uuid,
            "name": "NVIDIA A100",
            "memory_mib": 40960,
            "pci_bus_id": f"0000:0{index}:00.0",
            "numa_node": index % 2,
            "compute_capability": "8.0",
            **fields,
        }
    )


def inventory(*gpus, health=None, enforcers=NO_ENFORCERS, **settings):
    settings = AgentSettings(node_name="n", **settings)
    basis = InventoryBasis(config_of(settings.sharing), INFO, tuple(gpus))
    return make_inventory(settings, basis, health or {}, enforcers, "1.0")


def test_a_degraded_gpu_takes_pods_and_says_what_is_wrong_with_it():
    worn = GpuHealth((HealthCause(Sign.NVLINK, HealthState.DEGRADED, "2 of 12 NVLinks are down"),))
    first, second = inventory(gpu(0, A), gpu(1, B), health={A: worn}).devices
    assert (first.healthy, first.unhealthy_reason, first.degraded_reason) == (True, "", "2 of 12 NVLinks are down")
    assert (second.healthy, second.degraded_reason) == (True, "")
    lost = GpuHealth((HealthCause(Sign.XID, HealthState.LOST, "Xid 79"),))
    (device,) = inventory(gpu(0, A), health={A: lost}).devices
    assert (device.healthy, device.unhealthy_reason, device.degraded_reason) == (False, "Xid 79", "")


def test_an_index_is_the_drivers_whatever_number_the_device_file_has():
    """Volcano's plugin took the number of /dev/nvidiaN, and its scheduler then knew no such GPU (devices 29)."""
    found = inventory(gpu(0, A, minor=2), gpu(1, B, minor=5))
    assert [(each.uuid, each.index) for each in found.devices] == [(A, 0), (B, 1)]


def test_the_list_of_all_slots_of_a_large_node_fits_into_a_message_of_kubelets():
    """A plugin with an id for each MiB is cut off (Volcano's vGPU plugin 134, gpushare's 57): 4 MiB is the most."""
    uuid = f"GPU-{31:08d}-1111-2222-3333-444444444444"
    listed = device_list(advertise(inventory(gpu(31, uuid, memory_mib=192 * 1024), slots=MAX_SLOTS), {}))
    assert len(listed.devices) == MAX_SLOTS
    assert 32 * listed.ByteSize() < 4 << 20  # a list is as long as the lists of its GPUs together


@pytest.mark.parametrize(
    "settings", [{"slots": 10}, {"slots": 1}, {"slots": 10, "enforcement": EnforcementChoice.MPS}], ids=str
)
def test_a_gpu_of_unknown_memory_is_one_healthy_gpu(settings):
    known, unknown = inventory(gpu(0, A), gpu(1, B, memory_mib=0), **settings).devices
    assert (unknown.healthy, unknown.slots, unknown.mode, unknown.memory_mib) == (True, 1, DeviceMode.WHOLE, 0)
    assert known.slots == settings["slots"]


def test_a_driver_report_becomes_an_inventory():
    link = Link(peer=B, pcie=None, nvlinks=4)
    assert inventory(gpu(1, B), gpu(0, A, links=(link,)), slots=4) == NodeInventory(
        node="n",
        driver_version="550.54",
        agent_version="1.0",
        devices=(
            device(
                A,
                index=0,
                model="NVIDIA A100",
                memory_mib=40960,
                slots=4,
                numa_nodes=(0,),
                pci_bus_id="0000:00:00.0",
                links=(link,),
                compute_capability="8.0",
                enforcement=Enforcement.TIME_SLICING,
            ),
            device(
                B,
                index=1,
                model="NVIDIA A100",
                memory_mib=40960,
                slots=4,
                numa_nodes=(1,),
                pci_bus_id="0000:01:00.0",
                compute_capability="8.0",
                enforcement=Enforcement.TIME_SLICING,
            ),
        ),
    )


def test_whole_gpus_have_one_slot_and_their_uuid_as_id():
    (whole,) = inventory(gpu(0, A), mode=DeviceMode.WHOLE, slots=4).devices
    assert (whole.mode, whole.slots) == (DeviceMode.WHOLE, 1)
    assert device_ids(whole) == (A,)


def test_a_dead_gpu_is_unhealthy_and_the_others_are_as_they_were():
    dead, alive = inventory(gpu(0, A, fault=LOST), gpu(1, B)).devices
    assert not dead.healthy
    assert "GPU is lost" in dead.unhealthy_reason
    assert alive.healthy
    assert alive == inventory(gpu(0, A), gpu(1, B)).devices[1]


def test_health_over_time_wins_over_the_last_scan():
    health = {A: after_xid(GpuHealth(), 79, XidPolicy())}
    assert not inventory(gpu(0, A), health=health).devices[0].healthy


def test_a_gpu_in_mig_mode_is_not_handed_out():
    (card,) = inventory(gpu(0, A, mig=MigMode(enabled=True, pending=True))).devices
    assert not card.healthy
    assert "nvidia-smi -mig 0" in card.unhealthy_reason


def test_gpus_in_mig_mode_are_listed_beside_their_mig_devices():
    on = MigMode(enabled=True, pending=True)
    half = NodeMigDevice(uuid="MIG-1", profile="3g.20gb", memory_mib=19968, gi_slices=3, ci_slices=3)
    found = inventory(
        gpu(0, A, mig=on, migs=(half,), pci_device="20b0"),
        gpu(1, B, mig=on, fault=LOST),
        gpu(2, "GPU-c", mig=MigMode(enabled=False, pending=False)),
        sharing=SharingSettings(flags=DevicePluginFlags(mig_strategy=MigStrategy.MIXED)),
    )
    cut = (
        PartitionedGpu(A, "NVIDIA A100", 40960, index=0),
        PartitionedGpu(B, "NVIDIA A100", 40960, healthy=False, index=1),
    )
    assert found.cut == cut
    assert [(each.parent, each.compute_slices, each.gpu_compute_slices) for each in found.devices] == [
        (A, 3, 7),
        ("", 0, 0),
    ]


def test_a_gpu_that_was_never_identified_is_left_out():
    gpus = (gpu(0, None, fault=LOST), gpu(1, B))
    assert [card.uuid for card in inventory(*gpus).devices] == [B]
    assert [card.index for card in unreadable(gpus)] == [0]


def test_kubelets_list_is_every_slot_with_the_health_of_its_gpu():
    node = NodeInventory("n", (device(B, slots=2, healthy=False), device(A, slots=2, numa_nodes=(1,))))
    assert advertise(node, {}) == (
        KubeletDevice(f"{A}::0", True),
        KubeletDevice(f"{A}::1", True),
        KubeletDevice(f"{B}::0", False),
        KubeletDevice(f"{B}::1", False),
    )


def test_kubelet_aligns_whole_gpus_and_not_the_slots_of_shared_ones():
    node = NodeInventory("n", (device(A, slots=1, numa_nodes=(1,)), device(B, slots=2, numa_nodes=(0,))))
    assert [entry.numa_nodes for entry in advertise(node, {})] == [(1,), (), ()]


def test_kubelets_list_is_sorted_by_the_number_of_the_slot():
    ids = [entry.id for entry in advertise(NodeInventory("n", (device(A, slots=12),)), {})]
    assert ids == [f"{A}::{number}" for number in range(12)]


def test_kubelets_list_keeps_what_is_held_of_a_gpu_that_is_gone_as_unhealthy():
    node = NodeInventory("n", (device(A, slots=1),))
    held = dict.fromkeys((f"{A}::0", f"{B}::3"), "nvidia.com/gpu")
    assert advertise(node, held) == (KubeletDevice(f"{A}::0", True), KubeletDevice(f"{B}::3", False))


def test_ids_lead_back_to_devices():
    assert uuid_of(f"{A}::12") == uuid_of(A) == A
    assert uuids_of([f"{B}::1", f"{A}::0", f"{B}::0"]) == (A, B, B)


def test_shares_are_enforced_only_where_both_of_hami_cores_files_are(tmp_path):
    settings = AgentSettings(node_name="n", host_root=tmp_path)
    assert not has_library(settings)
    folder = tmp_path / "usr/local/vgpu"
    folder.mkdir(parents=True)
    (folder / "libvgpu.so").touch()
    assert not has_library(settings)
    (folder / "ld.so.preload").touch()
    assert has_library(settings)


LIBRARY, BOTH = Enforcers(library=True), Enforcers(library=True, mps=frozenset({A}))


@pytest.mark.parametrize(
    ("wanted", "enforcers", "mode", "words"),
    [
        ("auto", LIBRARY, "shared", "hami-core hami-core"),
        ("auto", LIBRARY, "whole", "hami-core hami-core"),
        ("auto", NO_ENFORCERS, "shared", "time-slicing time-slicing"),
        ("auto", NO_ENFORCERS, "whole", "whole-device whole-device"),
        ("hami-core", LIBRARY, "shared", "hami-core hami-core"),
        ("hami-core", NO_ENFORCERS, "shared", "time-slicing time-slicing"),
        ("mps", BOTH, "shared", "mps time-slicing"),  # the second one's daemon does not answer
        ("mps", LIBRARY, "whole", "hami-core hami-core"),
        ("time-slicing", BOTH, "shared", "time-slicing time-slicing"),
        ("none", BOTH, "shared", "none none"),
        ("none", BOTH, "whole", "whole-device whole-device"),
    ],
)
def test_each_gpu_says_what_holds_shares_of_it(wanted, enforcers, mode, words):
    node = inventory(
        gpu(0, A), gpu(1, B), enforcers=enforcers, mode=DeviceMode(mode), enforcement=EnforcementChoice(wanted)
    )
    assert [device.enforcement.value for device in node.devices] == words.split()
    is_hami_core = words == "hami-core hami-core"
    assert node.enforcement is (Enforcement.HAMI_CORE if is_hami_core else Enforcement.NONE)  # for older schedulers


def test_gpus_for_mps_have_as_many_slots_as_it_has_clients_and_gpus_it_cannot_limit_are_as_ever():
    old, new = inventory(
        gpu(0, A, compute_capability="6.1"), gpu(1, B), enforcers=BOTH, slots=100, enforcement=EnforcementChoice.MPS
    ).devices
    assert (old.mode, old.slots, old.enforcement) == (DeviceMode.SHARED, 100, Enforcement.HAMI_CORE)
    assert (new.mode, new.slots, new.enforcement) == (DeviceMode.MPS, 48, Enforcement.TIME_SLICING)


@pytest.mark.parametrize(
    ("way", "wanted", "mode", "word"),
    [
        ("mps", "auto", "mps", "mps"),
        ("mps", "time-slicing", "time-slicing", "time-slicing"),
        ("timeSlicing", "auto", "time-slicing", "time-slicing"),
        ("timeSlicing", "mps", "time-slicing", "time-slicing"),
        ("timeSlicing", "none", "time-slicing", "none"),
    ],
)
def test_equal_parts_are_held_as_the_plugins_file_says(way, wanted, mode, word):
    file, *_ = plugin_file(
        {"version": "v1", "sharing": {way: {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}
    )
    settings = AgentSettings(node_name="n", enforcement=EnforcementChoice(wanted))
    basis = InventoryBasis(SharingConfig(file=file), INFO, (gpu(0, A),))
    (card,) = make_inventory(settings, basis, {}, BOTH, "1.0").devices
    assert (card.slots, card.mode.value, card.enforcement.value) == (4, mode, word)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param({"node_name": ""}, "node_name is empty", id="no node"),
        pytest.param({"node_name": "n", "slots": 0}, "invalid value 0 for slots", id="no slots"),
        pytest.param({"node_name": "n", "slots": 1001}, "invalid value 1001 for slots", id="too many slots"),
        pytest.param(
            {"node_name": "n", "mode": DeviceMode.MIG}, "invalid value mig for mode", id="a mode that it cannot do"
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, problem):
    with pytest.raises(ValueError, match=problem):
        AgentSettings(**settings)


def test_no_two_resources_share_a_socket_and_each_fits_where_sockets_are():
    names = ["nvidia.com/gpu", "nvidia.com/gpu.com", "nvidia.com/gpu.shared", "nvidia.com/gpu.com.shared"]
    longest = f"nvidia.com/gpu.{'x' * 48}"
    sockets = [str(AgentSettings(node_name="n").plugin_socket(name)) for name in (*names, longest)]
    assert len(set(sockets)) == len(sockets)
    assert max(map(len, sockets)) < 108


RENAMED = """\
resources: {gpus: [{pattern: "*T4*", name: gpu.small}, {pattern: "*A100*", name: gpu}]}
sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: gpu-0, devices: ["0"]}]}}
"""


@pytest.mark.parametrize(
    ("managed", "listed", "problems"),
    [
        ((), {2: "nvidia.com/gpu"}, 2),
        (("nvidia.com/gpu-0",), {0: "nvidia.com/gpu-0", 2: "nvidia.com/gpu"}, 1),
        (
            ("nvidia.com/gpu-0", "nvidia.com/gpu.small"),
            {0: "nvidia.com/gpu-0", 1: "nvidia.com/gpu.small", 2: "nvidia.com/gpu"},
            0,
        ),
    ],
)
def test_a_name_about_which_nobody_asks_the_scheduler_is_not_listed(managed, listed, problems):
    gpus = (gpu(0, A), gpu(1, B, name="Tesla T4"), gpu(2, "GPU-cccccccc-1111-2222-3333-444444444444"))
    settings = AgentSettings(node_name="n", managed_resources=managed)
    basis = InventoryBasis(config_of(settings.sharing, "f.yaml", RENAMED), INFO, gpus)
    found: list[str] = []
    made = make_inventory(settings, basis, {}, NO_ENFORCERS, "1.0", None, found)
    assert {each.index: each.resource for each in made.devices} == listed
    assert len(found) == problems
    for each in found:
        assert "add this name to the chart value scheduler.kubeScheduler.managedResources, or use another name" in each
        assert ("resources.gpus[0] gives device 1 the name nvidia.com/gpu.small" in each) != (
            "sharing.timeSlicing.resources[0] gives device 0 the name nvidia.com/gpu-0" in each
        )


def test_a_mig_profile_that_nobody_knows_is_named_and_not_listed():
    migs = (NodeMigDevice(uuid="m", profile="9g.1gb", memory_mib=1),)
    cut = gpu(0, A, mig=MigMode(enabled=True, pending=True), migs=migs)
    flags = DevicePluginFlags(mig_strategy=MigStrategy.MIXED)
    for managed, count in (((), 0), (("nvidia.com/mig-9g.1gb",), 1)):
        settings = AgentSettings(node_name="n", sharing=SharingSettings(flags=flags), managed_resources=managed)
        found: list[str] = []
        made = make_inventory(
            settings, InventoryBasis(config_of(settings.sharing), INFO, (cut,)), {}, NO_ENFORCERS, "1.0", None, found
        )
        assert len(made.devices) == count
        said = "The MIG profile gives device 0:0 the name nvidia.com/mig-9g.1gb, about which kube-scheduler"
        assert any(said in each for each in found) is not bool(count)
