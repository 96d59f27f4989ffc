"""What the topology manager gets, where the vectors do not say: restarts, odd devices, wide machines, sidecars."""

import pytest

from purser.core.kubelet.devicemanager import capacity, hints, restore, stop
from purser.core.kubelet.devicemanager.requests import pod_request
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.masks import MAX_MASKS, mask_of
from purser.core.kubelet.state import DeviceManagerState, KubeletNode, PluginDevice
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


@BOTH
def test_before_a_plugin_is_back_from_a_restart_of_kubelet_there_is_no_preference(version: str) -> None:
    """Kubernetes issue 102552: pods are then admitted unaligned."""
    assert told(restore({}, [GPU], now=0.0), 1, on=node(version)) is None


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


def test_where_very_many_nodes_hold_the_resource_narrow_masks_and_the_widest_are_reported() -> None:
    found = told(having(gpus(*range(34))), 2, on=node(numa_nodes=34))
    assert len(found) <= MAX_MASKS + 1
    assert all(hint.preferred == (hint.mask.bit_count() == 2) for hint in found)
    assert found[-1] == Hint(mask_of(range(34)), False)


def test_ten_thousand_devices_are_counted_by_place() -> None:
    state = having(gpus(*(n % 8 for n in range(10_000))))
    found = told(state, 2_000, on=node(numa_nodes=8))
    assert {hint.mask.bit_count() for hint in found if hint.preferred} == {2}
    assert len(found) == 255 - 8


def test_a_sidecar_adds_to_the_init_containers_after_it_where_kubelet_knows_sidecars() -> None:
    asked = pod(
        container("side", ContainerKind.SIDECAR, gpu=2),
        container("init", ContainerKind.INIT, gpu=2),
        container("app", gpu=1),
    )
    state = having(gpus(0, 0, 1, 1))
    assert pod_request(behaviour((1, 29, 0)), state, asked) == {GPU: 4}
    assert pod_request(behaviour((1, 27, 0)), state, asked) == {GPU: 2}
