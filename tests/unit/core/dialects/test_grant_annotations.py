import json

from purser.core.dialects import SHARING, environment, grant_annotations, hami, parse
from purser.core.mig import MigPlacement
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory

from .pods import container, pod

AT_NS = 1795471200000007000
INVENTORY = NodeInventory("n1", tuple(Device(f"GPU-{i}", i, "A100", 40000) for i in range(8)))


def grant(**held):
    parts = tuple(
        ContainerGrant(name, ContainerKind.APP, tuple(DeviceShare(f"GPU-{i}", 1000, 30) for i in indices))
        for name, indices in held.items()
    )
    return Grant("u-1", "team", "job", "n1", parts)


def recorded(spec, held):
    request = parse(spec)
    assert request is not None
    return grant_annotations(spec, request.systems, held, INVENTORY, AT_NS)


def test_instances_are_recorded_for_hamis_decoder_by_container_and_device():
    cut = Device("GPU-9", 9, "A100", 40960, slots=7, mig_kind="A100-40GB")
    inventory = NodeInventory("n1", (*INVENTORY.devices, cut))
    three, one = (DeviceShare("GPU-9", 4864, 14, MigPlacement(*at)) for at in (("3g.20gb", 4), ("1g.5gb+me", 0)))
    gone = DeviceShare("GPU-7", 4864, 14, MigPlacement("1g.5gb", 0))
    shares = {"a": (DeviceShare("GPU-1", 1000, 0), three), "b": (three, one, gone)}
    parts = tuple(ContainerGrant(name, ContainerKind.APP, each) for name, each in shares.items())
    spec = pod(container("setup", ContainerKind.INIT), container("a", gpu=2), container("b", gpu=3), mode="mig")
    request = parse(spec)
    assert request is not None
    record = grant_annotations(spec, request.systems, Grant("u-1", "team", "job", "n1", parts), inventory, AT_NS)
    assert record["hami.io/vgpu-devices-allocated"].startswith(";GPU-1,NVIDIA,1000,0:GPU-9,NVIDIA,4864,14:;GPU-9,")
    read = json.loads(record["hami.io/vgpu-mig-allocations"])
    for each in read:  # its decoder refuses a record that lacks any of these, or has some of the driver's names
        assert {key for key in each if each[key] or type(each[key]) is int} == {
            "containerIndex", "deviceIndex", "gpuUUID", "profile", "placement"
        }  # fmt: skip
        assert each["gpuUUID"] == "GPU-9"
    places = [[each["containerIndex"], each["deviceIndex"], each["profile"], each["placement"]] for each in read]
    assert places == [
        [1, 1, "3g.20gb", {"start": 4, "size": 4}],
        [2, 0, "3g.20gb", {"start": 4, "size": 4}],
        [2, 1, "1g.5gb+me", {"start": 0, "size": 1}],
    ]


def test_volcanos_record_has_the_indices_of_the_gpus_in_order():
    spec = pod(container("a", vnum=2), container("b", vmem=500))
    record = recorded(spec, grant(a=[7, 0], b=[0]))
    assert record == {
        "volcano.sh/gpu-index": "0,7",
        "volcano.sh/predicate-time": "1795471200000007000",
        "volcano.sh/gpu-assigned": "true",
    }


def test_volcanos_record_of_vgpus_has_the_devices_of_app_containers():
    spec = pod(container("setup", ContainerKind.INIT, vgpu=1), container("proxy"), container("a", vgpu=2))
    assert recorded(spec, grant(setup=[5], a=[3, 0])) == {
        "volcano.sh/vgpu-node": "n1",
        "volcano.sh/vgpu-time": "1795471200",
        "volcano.sh/vgpu-ids-new": ";GPU-3,NVIDIA,1000,30:GPU-0,NVIDIA,1000,30:",
    }


def test_a_gpu_that_the_inventory_lost_has_no_index():
    record = recorded(pod(container("a", vnum=2)), grant(a=[1, 9]))
    assert record["volcano.sh/gpu-index"] == "1"


def test_whole_gpus_in_nvidias_words_leave_no_foreign_record_unless_hamis_annotations_are_there():
    assert recorded(pod(container("a", gpu=2)), grant(a=[1, 2])) == {}
    for marked in ({"mode": "mig"}, {"mig_profiles": "4g"}):
        assert recorded(pod(container("a", gpu=2), **marked), grant(a=[1, 2]))["hami.io/vgpu-node"] == "n1"


def test_everything_recorded_is_forbidden_to_users_and_explained():
    spec = pod(container("a", mem=1), container("b", vmem=1), container("c", vgpu=1), container("d", gpumem=1))
    record = recorded(spec, grant(a=[1], b=[2], c=[3], d=[4]))
    assert len(record) == 14
    explained = {name for dialect in SHARING.values() for name, about in dialect.RECORDS.items() if about}
    on_hamis_nodes = hami.hami_node_annotations(spec, grant(a=[1]), 0, is_served_by_plugin=True)
    kais = {"received-resource-type"}  # pods in KAI's words: test_kai_tables.py
    assert {*record, *on_hamis_nodes, *kais, "hami.io/vgpu-mig-allocations", "volcano.sh/bind-phase"} == explained


def test_programs_find_the_variables_of_the_device_plugin_that_they_know():
    spec, held = pod(container("a", mem=1000), container("b", vmem=1000)), grant(a=[1], b=[2])
    known = {device.uuid: device for device in INVENTORY.devices}
    of = {part.container: environment(spec, held, part, known) for part in held.containers}
    assert of == {
        "a": {},
        "b": {
            "VOLCANO_GPU_ALLOCATED": "1000",
            "VOLCANO_GPU_TOTAL": "40000",
            "VOLCANO_GPU_MEMORY_TOTAL": "40000",
            "VOLCANO_GPU_FACTOR": "1",
        },
    }
