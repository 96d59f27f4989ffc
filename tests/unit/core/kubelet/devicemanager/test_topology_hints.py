"""What the topology manager gets, where the vectors do not say: restarts, odd devices, wide machines, sidecars."""

import pytest

from purser.core.kubelet.config import KubeletConfig
from purser.core.kubelet.devicemanager import capacity, hints, pod_hints, restore, stop, update
from purser.core.kubelet.devicemanager.requests import pod_request
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.machine import Machine, NumaNode
from purser.core.kubelet.masks import MOST_MASKS, mask_of
from purser.core.kubelet.state import Allocation, DeviceManagerState, KubeletNode, PluginDevice
from purser.core.kubelet.versions import behaviour
from purser.core.pod.manifest import ContainerKind

from .parts import GPU, NEW, OLD, Given, container, gpus, having, node, pod

BOTH = pytest.mark.parametrize("version", [OLD, NEW])


def told(
    state: DeviceManagerState,
    ask: int,
    *,
    on: KubeletNode | None = None,
    uid: str = "uid",
    reusable: frozenset[str] = frozenset(),
) -> object:
    of = container(gpu=ask)
    return hints(on or node(), state, pod(of, uid=uid), of, {GPU: reusable}).get(GPU, "no device resource")


def test_a_resource_that_no_plugin_ever_had_is_not_spoken_of() -> None:
    assert told(DeviceManagerState(), 1) == "no device resource"


@BOTH
def test_devices_without_a_numa_node_mean_no_preference(version: str) -> None:
    assert told(having(gpus(None, None)), 1, on=node(version)) is None


def test_an_empty_topology_is_one_for_old_kubelets_only() -> None:
    state = having(gpus((), ()))
    assert told(state, 1, on=node(OLD)) == ()
    assert told(state, 1, on=node(NEW)) is None


@BOTH
def test_before_a_plugin_is_back_from_a_restart_of_kubelet_there_is_no_preference(version: str) -> None:
    """Kubernetes issue 102552: pods are then admitted unaligned."""
    assert told(restore({}, [GPU], now=0.0), 1, on=node(version)) is None


@BOTH
def test_a_container_that_has_its_devices_gets_hints_from_these_alone(version: str) -> None:
    state = Given(having(gpus(0, 0, 1, 1)), container(gpu=1), hint=Hint(0b10, True), on=node(version)).state
    assert told(state, 1, on=node(version)) == (Hint(0b10, True), Hint(0b11, False))
    assert told(state, 2, on=node(version)) == ()


@BOTH
def test_a_held_device_that_the_plugin_no_longer_lists_has_no_place(version: str) -> None:
    """Kubelets of 1.36 crash here."""
    state = Given(having(gpus(0, 1)), container(gpu=2)).state
    assert told(update(state, GPU, gpus(0)), 2, on=node(version)) == ()


def test_reusable_devices_must_be_inside() -> None:
    state = Given(having(gpus(0, 0, 1, 1)), container("init", ContainerKind.INIT, gpu=1), hint=Hint(0b10, True)).state
    assert told(state, 2, reusable=frozenset({"gpu2"})) == (Hint(0b10, True), Hint(0b11, False))


def test_a_forgotten_resource_that_a_pod_holds_cannot_be_met_by_others() -> None:
    state = stop(Given(having(gpus(0, 1)), container(gpu=1)).state, GPU, now=0.0)
    state, _ = capacity(state, 1_000.0)
    assert told(state, 1, uid="other") == ()


@BOTH
def test_numa_nodes_that_the_machine_has_not_count_for_nothing(version: str) -> None:
    odd = [
        PluginDevice("a", numa_nodes=(-1,)),
        PluginDevice("b", numa_nodes=(10**15,)),
        PluginDevice("c", numa_nodes=(1, 7)),
    ]
    found = told(having(odd), 1, on=node(version))
    assert found == ((Hint(0b10, True),) if version == NEW else (Hint(0b10, True), Hint(0b11, False)))
    assert told(having(odd), 2, on=node(version)) == ()
    chosen = Given(having(odd), container(gpu=3), on=node(version), hint=Hint(0b10, True))
    assert chosen.ids() == {"a", "b", "c"}


@pytest.mark.parametrize("version", ["v1.33.0", NEW])
def test_a_machine_with_34_numa_nodes_of_which_two_hold_gpus_gets_three_hints(version: str) -> None:
    state = having(gpus(0, 0, 1, 1))
    assert told(state, 1, on=node(version, numa_nodes=34)) == (Hint(0b01, True), Hint(0b10, True), Hint(0b11, False))


def test_where_very_many_nodes_hold_the_resource_narrow_masks_and_the_widest_are_reported() -> None:
    found = told(having(gpus(*range(34))), 2, on=node(numa_nodes=34))
    assert len(found) <= MOST_MASKS + 1
    assert all(hint.preferred == (hint.mask.bit_count() == 2) for hint in found)
    assert found[-1] == Hint(mask_of(range(34)), False)


def test_numbers_of_numa_nodes_may_have_gaps() -> None:
    machine = Machine(numa_nodes=(NumaNode(0), NumaNode(8)))
    assert told(having(gpus(8, 8)), 1, on=KubeletNode(KubeletConfig(version=OLD), machine)) == (
        Hint(1 << 8, True),
        Hint(1 | 1 << 8, False),
    )


def test_ten_thousand_devices_are_counted_by_place() -> None:
    state = having(gpus(*(n % 8 for n in range(10_000))))
    found = told(state, 2_000, on=node(numa_nodes=8))
    assert {hint.mask.bit_count() for hint in found if hint.preferred} == {2}
    assert len(found) == 255 - 8


def test_a_pod_as_a_whole_asks_for_what_it_needs_at_one_time() -> None:
    state = having(gpus(0, 0, 1, 1))
    asked = pod(
        container("init", ContainerKind.INIT, gpu=3),
        container("side", ContainerKind.SIDECAR, gpu=1),
        container("later", ContainerKind.INIT, gpu=1),
        container("app", gpu=1),
    )
    assert pod_request(behaviour((1, 36, 2)), state, asked) == {GPU: 3}
    assert pod_hints(node(), state, asked) == {GPU: (Hint(0b11, True),)}


def test_a_sidecar_adds_to_the_init_containers_after_it_where_kubelet_knows_sidecars() -> None:
    asked = pod(
        container("side", ContainerKind.SIDECAR, gpu=2),
        container("init", ContainerKind.INIT, gpu=2),
        container("app", gpu=1),
    )
    state = having(gpus(0, 0, 1, 1))
    assert pod_request(behaviour((1, 29, 0)), state, asked) == {GPU: 4}
    assert pod_request(behaviour((1, 27, 0)), state, asked) == {GPU: 2}


def test_a_pod_that_holds_devices_already_gets_hints_from_all_of_them() -> None:
    held = {
        ("uid", "a"): {GPU: Allocation({0: ("gpu0",)})},
        ("uid", "b"): {GPU: Allocation({1: ("gpu1",)})},
        ("other", "c"): {GPU: Allocation({1: ("gpu2",)})},
    }
    state = having(gpus(0, 1, 1), state=restore(held, [GPU], now=0.0))
    assert pod_hints(node(), state, pod(container("a", gpu=1), container("b", gpu=1))) == {GPU: (Hint(0b11, False),)}
