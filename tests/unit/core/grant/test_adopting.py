"""What another scheduler has given a pod and Purser cannot take over: each message names its own cause."""

from typing import Any

import pytest

from purser.core.grant.adopting import AdoptionError, adopted_grant
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    Grant,
    NodeInventory,
    PodRequest,
)

GPUS = ("GPU-1", "GPU-2")


def given(*uuids: str) -> Grant:
    shares = tuple(DeviceShare(uuid, 0, 0) for uuid in uuids)
    return Grant("u", "ns", "p", "n", (ContainerGrant("c", ContainerKind.APP, shares),))


def asks(count: int = 1, **fields: Any) -> PodRequest:
    devices = DeviceRequest(count, memory_mib=1024, **fields)
    return PodRequest("u", "ns", "p", (ContainerRequest("c", ContainerKind.APP, devices),))


def node(cordoned: tuple[str, ...] = (), **fields: Any) -> NodeInventory:
    devices = tuple(Device(uuid, index, "T4", 16384, **fields) for index, uuid in enumerate(GPUS))
    return NodeInventory("n", devices, cordoned=cordoned)


@pytest.mark.parametrize(
    ("chosen", "request_", "inventory", "problem"),
    [
        (given("GPU-1"), asks(2), node(), 'container "c" asks for 2 GPUs but was given 1'),
        (given("GPU-1", "GPU-1"), asks(2), node(), 'container "c" was given the same GPU twice'),
        (given("GPU-3"), asks(), node(), "the node has no GPU GPU-3"),
        (given("GPU-1"), asks(), node(resource="nvidia.com/gpu.shared"), "is listed as nvidia.com/gpu.shared, but"),
        (given("GPU-1"), asks(), node(mig_kind="A100-40GB"), "GPU GPU-1 is partitioned on demand"),
        (given("GPU-1"), asks(), node(replicas=2, slots=2), "GPU GPU-1 is divided into replicas"),
        (given("GPU-1"), asks(), node(healthy=False), "GPU GPU-1 is unhealthy"),
        (given("GPU-1"), asks(), node(cordoned=("GPU-1",)), "GPU GPU-1 is cordoned"),
        (given("GPU-1"), asks(uuids_denied=("GPU-1",)), node(), "GPU GPU-1 is excluded by the pod's annotations"),
    ],
)
def test_what_cannot_be_taken_over_is_named(
    chosen: Grant, request_: PodRequest, inventory: NodeInventory, problem: str
) -> None:
    with pytest.raises(AdoptionError) as refused:
        adopted_grant(request_, chosen, inventory)
    assert problem in str(refused.value)


def test_the_chosen_devices_are_taken_with_the_amounts_asked_for() -> None:
    grant = adopted_grant(asks(2), given("GPU-2", "GPU-1"), node())
    [part] = grant.containers
    assert [(share.uuid, share.memory_mib) for share in part.shares] == [("GPU-2", 1024), ("GPU-1", 1024)]
