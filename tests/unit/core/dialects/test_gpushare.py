"""gpushare's words: what its users' pods ask for, and what they and its tools find afterwards."""

import json

import msgspec
import pytest

from purser.core.dialects import DialectError, default_limits, environment, grant_annotations, parse
from purser.core.fleet import Fleet
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory, PodRequest
from purser.core.placement import Placement, place

from .pods import container, pod

INVENTORY = NodeInventory("n1", (Device("GPU-a", 0, "T4", 15360, slots=4), Device("GPU-b", 1, "A10", 24564, slots=4)))
DEVICES = {device.uuid: device for device in INVENTORY.devices}


def labelled(spec, count):
    return msgspec.structs.replace(spec, labels={"aliyun.com/gpu-count": count})


def request_of(spec) -> PodRequest:
    request = parse(spec)
    assert request is not None
    return request


def share(name, gib, *uuids, kind=ContainerKind.APP):
    return ContainerGrant(name, kind, tuple(DeviceShare(uuid, 1024 * gib, 0) for uuid in uuids))


def test_a_label_divides_the_memory_among_gpus():
    spec = labelled(pod(container(gpumem=8)), "2")
    (found,) = request_of(spec).containers
    assert (found.devices.count, found.devices.memory_mib) == (2, 4096)
    assert default_limits(spec) == {"train": {"nvidia.com/gpu": "2"}}


@pytest.mark.parametrize(
    ("count", "said"), [("3", "a multiple of 3"), ("x", "is not a number of GPUs"), ("0", "not a nu")]
)
def test_a_label_that_makes_no_sense_is_refused(count, said):
    with pytest.raises(DialectError, match=said):
        parse(labelled(pod(container(gpumem=8)), count))


def test_a_label_without_the_words_says_nothing():
    assert parse(labelled(pod(container()), "x")) is None


def test_the_published_example_of_best_fit():
    """8138 MiB, in GiB, with 12, 8, 4 and 16 GiB free: the GPU that has the least left over."""
    fleet = Fleet()
    fleet.set_inventory(
        NodeInventory(
            "n1", tuple(Device(f"GPU-{i}", i, "T4", gib * 1024, slots=4) for i, gib in enumerate((12, 8, 4, 16)))
        )
    )
    state = fleet.node("n1")
    assert state is not None
    found = place(state, request_of(pod(container(gpumem=8), gpu_policy="best-fit", node_policy="best-fit")))
    assert isinstance(found, Placement)
    assert [each.uuid for part in found.containers for each in part.shares] == ["GPU-1"]


def test_two_containers_that_ask_both_find_their_share():
    """gpushare's own plugin finds no pod for either."""
    spec = pod(container("proxy"), container("a", gpumem=1), container("b", gpumem=2))
    held = Grant("u", "ns", "p", "n1", (share("a", 1, "GPU-b"), share("b", 2, "GPU-b")))
    record = grant_annotations(spec, request_of(spec).systems, held, INVENTORY, 7)
    assert json.loads(record.pop("scheduler.framework.gpushare.allocation")) == {"1": {"1": 1}, "2": {"1": 2}}
    assert record == {
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_DEV": "23",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "7",
    }
    assert environment(spec, held, held.containers[1], DEVICES) == {
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "2",
        "ALIYUN_COM_GPU_MEM_DEV": "23",
    }


def test_a_share_on_two_gpus_names_both():
    spec, held = (
        labelled(pod(container("a", gpumem=8)), "2"),
        Grant("u", "ns", "p", "n1", (share("a", 4, "GPU-b", "GPU-a"),)),
    )
    record = grant_annotations(spec, request_of(spec).systems, held, INVENTORY, 7)
    assert record["ALIYUN_COM_GPU_MEM_IDX"] == "0,1"
    assert json.loads(record["scheduler.framework.gpushare.allocation"]) == {"0": {"0": 4, "1": 4}}
    assert environment(spec, held, held.containers[0], DEVICES)["ALIYUN_COM_GPU_MEM_CONTAINER"] == "8"


def test_a_gpu_that_the_node_lost_has_no_index():
    spec, held = pod(container("a", gpumem=1)), Grant("u", "ns", "p", "n1", (share("a", 1, "gone"),))
    record = grant_annotations(spec, request_of(spec).systems, held, INVENTORY, 7)
    assert (record["ALIYUN_COM_GPU_MEM_IDX"], record["ALIYUN_COM_GPU_MEM_DEV"]) == ("", "0")
