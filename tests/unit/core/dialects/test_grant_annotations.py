from purser.core.dialects import SHARING, grant_annotations, parse
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory

from .pods import container, pod

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
    return grant_annotations(spec, request.systems, held, INVENTORY)


def test_hamis_record_lists_every_container_in_order():
    spec = pod(container("setup", ContainerKind.INIT), container("a", mem=1000), container("b", gpu=2))
    record = recorded(spec, grant(a=[3], b=[0, 1]))
    assert record == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-devices-allocated": ";GPU-3,NVIDIA,1000,30:;GPU-0,NVIDIA,1000,30:GPU-1,NVIDIA,1000,30:;",
    }


def test_volcanos_record_has_the_indices_of_the_gpus_in_order():
    spec = pod(container("a", vnum=2), container("b", vmem=500))
    record = recorded(spec, grant(a=[7, 0], b=[0]))
    assert record == {"volcano.sh/gpu-index": "0,7"}


def test_a_gpu_that_the_inventory_lost_has_no_index():
    record = recorded(pod(container("a", vnum=2)), grant(a=[1, 9]))
    assert record == {"volcano.sh/gpu-index": "1"}


def test_whole_gpus_in_nvidias_words_leave_no_foreign_record():
    assert recorded(pod(container("a", gpu=2)), grant(a=[1, 2])) == {}


def test_everything_recorded_is_forbidden_to_users_and_explained():
    spec = pod(container("a", mem=1), container("b", vmem=1))
    record = recorded(spec, grant(a=[1], b=[2]))
    assert len(record) == 3
    assert set(record) <= {name for dialect in SHARING.values() for name, about in dialect.RECORDS.items() if about}
