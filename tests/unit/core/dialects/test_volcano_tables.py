"""Volcano's tables of pod totals (getGPUMemoryOfPod, getGPUNumberOfPod and the sidecar commit), by Purser's one book.

Volcano adds a pod up before it looks for cards; Purser places containers one by one and adds up per card. Where all
containers of a pod are on one card the totals are the same.
"""

import pytest

from purser.core.dialects import DialectError, parse
from purser.core.dialects.volcano_choice import chosen_grant
from purser.core.ledger import pod_usage
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory

from .pods import container, pod

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def total_memory(*containers) -> int:
    """MiB taken of one card that holds the whole pod."""
    request = parse(pod(*(container(f"c{i}", kind, vmem=mib) for i, (kind, mib) in enumerate(containers))))
    parts = tuple(
        ContainerGrant(part.name, part.kind, (DeviceShare("GPU-0", part.devices.memory_mib, 0),))
        for part in request.containers
    )
    return pod_usage(Grant("u", "ns", "p", "n", parts))["GPU-0"].memory_mib


@pytest.mark.parametrize(
    ("containers", "total"),
    [
        pytest.param([(APP, 1), (APP, 3)], 4, id="containers add up"),
        pytest.param([(INIT, 1), (INIT, 3), (APP, 2)], 3, id="the largest init container counts alone"),
        pytest.param([(SIDECAR, 4), (APP, 4)], 8, id="a sidecar runs beside the containers"),
    ],
)
def test_memory_of_a_pod(containers, total):
    assert total_memory(*containers) == total


def cards(*containers) -> int:
    """Whole cards of a pod whose containers each have their own."""
    request = parse(pod(*(container(f"c{i}", kind, vnum=count) for i, (kind, count) in enumerate(containers))))
    return sum(part.devices.count for part in request.containers)


@pytest.mark.parametrize("containers", [[(APP, 1), (APP, 3)], [(SIDECAR, 1), (APP, 1)]], ids=["1 and 3", "1 beside 1"])
def test_number_of_a_pod(containers):
    assert cards(*containers) == sum(count for _, count in containers)


def test_different_an_init_container_with_more_gpus_than_the_container_after_it_is_refused():
    """Volcano counts three cards; kubelet would give the container any two of them, and no book could tell which."""
    with pytest.raises(DialectError, match='"c2" asks for 2 devices, and the earlier init container "c1" asks for 3'):
        cards((INIT, 1), (INIT, 3), (APP, 2))


def test_an_index_that_volcano_chose_is_the_devices_own_and_not_its_place_in_a_list():
    """NVML's: the inventory may be in another order, and lack a GPU that the driver has lost."""
    spec = pod(container(vmem=1))
    spec.annotations["volcano.sh/gpu-index"] = "2"
    there = (Device("GPU-c", 2, "T4", 15360), Device("GPU-d", 3, "T4", 15360), Device("GPU-a", 0, "T4", 15360))
    chosen = chosen_grant(spec, parse(spec), NodeInventory("n", there))
    assert chosen is not None
    assert list(chosen.uuids) == ["GPU-c"]
