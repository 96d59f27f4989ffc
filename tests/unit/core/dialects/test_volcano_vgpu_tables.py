"""Volcano's published tables for vGPUs (``vgpu/utils_test.go``, ``deviceshare_test.go``): from a pod to the GPUs that
may take it."""

import msgspec
import pytest

from purser.core.dialects import parse
from purser.core.fleet import Fleet
from purser.core.model import Device, NodeInventory
from purser.core.placement import Placement, place, to_grant

from .pods import container, pod


def gpus(*memory: int, slots: int = 4, model: str = "NVIDIA-Tesla V100-SXM2-32GB") -> tuple[Device, ...]:
    return tuple(Device(f"GPU-{place}", place, model, mib, slots=slots) for place, mib in enumerate(memory))


class Node:
    """A node to which pods are bound one after the other."""

    def __init__(self, *devices: Device) -> None:
        self.fleet = Fleet()
        self.has(*devices)

    def has(self, *devices: Device) -> None:
        self.inventory = NodeInventory("n", devices)
        self.fleet.set_inventory(self.inventory)

    def takes(self, spec, uid: str = "u") -> list[str]:
        """The uuids of the GPUs that the pod gets; none where it does not fit."""
        request, state = parse(spec), self.fleet.node("n")
        assert request is not None and state is not None
        found = place(state, request)
        if not isinstance(found, Placement):
            return []
        grant = to_grant(found, request, self.inventory)
        self.fleet.ledger.reserve(msgspec.structs.replace(grant, pod_uid=uid))
        return sorted(grant.uuids)


SHARE = {"vgpu": 1, "vgpumem": 4096, "vgpucores": 25}


@pytest.mark.parametrize(
    ("annotations", "fits"),
    [
        ({"use_type": "NVIDIA"}, True),
        ({"use_type": "nvidia"}, True),
        ({"use_type": "AMD,NVIDIA,INTEL"}, True),
        ({"use_type": "AMD,INTEL,MLU"}, False),
        ({"nouse_type": "NVIDIA"}, False),
        ({"nouse_type": "AMD,NVIDIA,INTEL"}, False),
        ({"nouse_type": "AMD,INTEL,MLU"}, True),
        ({"vgpu_use_uuid": "  "}, True),
        ({"vgpu_use_uuid": ", ,"}, True),
        ({"vgpu_use_uuid": "GPU-1, GPU-0"}, True),
        ({"vgpu_use_uuid": "GPU-1,, GPU-0,"}, True),
        ({"vgpu_use_uuid": "GPU-00"}, False),
        ({"vgpu_use_uuid": "GPU"}, False),
        ({"vgpu_nouse_uuid": "GPU-1, GPU-0"}, False),
        ({"vgpu_use_uuid": "GPU-0", "vgpu_nouse_uuid": "GPU-0"}, False),
        ({"vgpu_mode": "hami-core"}, True),
        ({"vgpu_mode": "mig"}, False),
    ],
    ids=str,
)
def test_which_gpus_suit_a_pod(annotations, fits):
    assert bool(Node(*gpus(16384)).takes(pod(container(**SHARE), **annotations))) == fits


def test_lists_of_gpus_choose_one_of_two():
    for annotations in ({"vgpu_use_uuid": "GPU-0"}, {"vgpu_nouse_uuid": "GPU-1"}, {"nouse_uuid": "GPU-1"}):
        assert Node(*gpus(16384, 16384)).takes(pod(container(**SHARE), **annotations)) == ["GPU-0"]


def test_without_memory_a_pod_takes_all_of_each_gpu_however_large():
    """Also Volcano's 4714: a percentage is of each GPU's own memory."""
    node = Node(*gpus(30000, 20000, 30000))
    assert len(node.takes(pod(container(vgpu=3, vgpucores=100)))) == 3
    assert node.takes(pod(container(vgpumem=1)), "b") == []
    halves = Node(*gpus(16000, 8000))
    assert all(len(halves.takes(pod(container(vgpu=2, vgpupercent=50)), name)) == 2 for name in "ab")
    assert halves.takes(pod(container(vgpumem=1)), "c") == []


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ({"vgpumem": 9000}, {"vgpumem": 8000}, False),
        ({"vgpumem": 100, "vgpucores": 60}, {"vgpumem": 100, "vgpucores": 50}, False),
        ({"vgpumem": 100, "vgpucores": 60}, {"vgpumem": 100}, True),
        ({"vgpumem": 100}, {"vgpumem": 100, "vgpucores": 100}, False),
        ({"vgpumem": 100, "vgpucores": 100}, {"vgpumem": 100}, False),
    ],
    ids=str,
)
def test_what_two_pods_need_to_meet_on_a_gpu(first, second, meet):
    node = Node(*gpus(16384))
    assert node.takes(pod(container(**first)), "a") == ["GPU-0"]
    assert bool(node.takes(pod(container(**second)), "b")) == meet


# What Volcano's first sharing and its vGPUs got wrong, by the number of the change or the report.


def test_2215_an_index_that_moved_is_no_other_gpu():
    """After a restart without the first GPU the others have its indices; what pods hold is known by uuid."""
    first, second = gpus(1000, 1000)
    node = Node(first, second)
    held = {uuid for name in "ab" for uuid in node.takes(pod(container(vmem=600)), name)}
    assert held == {first.uuid, second.uuid}
    node.has(Device(second.uuid, 0, second.model, 1000, slots=4))
    assert node.takes(pod(container(vmem=600)), "c") == []
    assert node.takes(pod(container(vmem=400)), "d") == [second.uuid]


def test_5252_both_policies_choose_among_gpus_in_use():
    """Its spread gave every GPU the same score, of which a test that looked at one side knew nothing."""
    first = pod(container(vgpumem=1000), vgpu_use_uuid="GPU-1")
    for policy, wanted in (("binpack", ["GPU-1"]), ("spread", ["GPU-0"])):
        node = Node(*gpus(16384, 16384))
        assert node.takes(first, "a") == ["GPU-1"]
        assert node.takes(pod(container(vgpumem=1000), gpu_policy=policy), "b") == wanted
