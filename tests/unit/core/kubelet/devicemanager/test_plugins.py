"""What the node says it has, from a plugin's registration until it is forgotten, and after a restart."""

from purser.core.kubelet.devicemanager import (
    Capacity,
    allocatable,
    capacity,
    is_device_resource,
    register,
    registered,
    restore,
    stop,
    update,
)
from purser.core.kubelet.devicemanager.plugins import ENDPOINT_STOP_GRACE_PERIOD_S
from purser.core.kubelet.state import Allocation, DeviceManagerState, PluginDevice, PluginOptions

from .parts import GPU, gpus, having


def said(state: DeviceManagerState, now: float = 0.0) -> Capacity:
    return capacity(state, now)[1]


def test_a_plugin_that_registered_has_no_capacity_before_its_first_list() -> None:
    state = register(DeviceManagerState(), GPU, PluginOptions())
    assert said(state) == Capacity({}, {}, ())
    assert not is_device_resource(state, GPU)


def test_healthy_and_unhealthy_devices_are_capacity_and_only_healthy_ones_allocatable() -> None:
    state = having([*gpus(0, 0), PluginDevice("ill", healthy=False)])
    assert said(state) == Capacity({GPU: 3}, {GPU: 2}, ())
    assert registered(state) == {GPU: ("gpu0", "gpu1")}
    assert [device.id for device in allocatable(state)[GPU]] == ["gpu0", "gpu1"]


def test_an_id_that_is_listed_twice_is_in_both_sets_when_its_health_differs() -> None:
    state = having([PluginDevice("a", numa_nodes=(0,)), PluginDevice("a", healthy=False, numa_nodes=(1,))])
    assert said(state) == Capacity({GPU: 2}, {GPU: 1}, ())
    assert state.resources[GPU].devices["a"].numa_nodes == (1,)


def test_during_the_grace_a_resource_without_its_plugin_keeps_its_capacity() -> None:
    state = stop(having(gpus(0, 0)), GPU, now=100.0)
    assert said(state, 100.0 + ENDPOINT_STOP_GRACE_PERIOD_S) == Capacity({GPU: 2}, {GPU: 0}, ())


def test_after_the_grace_period_the_resource_is_zero_and_then_forgotten() -> None:
    state, after = capacity(stop(having(gpus(0, 0)), GPU, now=100.0), 100.5 + ENDPOINT_STOP_GRACE_PERIOD_S)
    assert after == Capacity({GPU: 0}, {GPU: 0}, (GPU,))
    assert not is_device_resource(state, GPU)
    assert allocatable(state) == registered(state) == {}
    assert said(state, 5_000.0) == after


def test_a_plugin_that_comes_back_within_the_grace_has_healthy_devices_with_its_first_list() -> None:
    state = register(stop(having(gpus(0, 0)), GPU, now=0.0), GPU, PluginOptions())
    assert said(state, 2 * ENDPOINT_STOP_GRACE_PERIOD_S) == Capacity({GPU: 2}, {GPU: 0}, ())
    assert said(update(state, GPU, gpus(0)), 2 * ENDPOINT_STOP_GRACE_PERIOD_S) == Capacity({GPU: 1}, {GPU: 1}, ())


def test_a_plugin_that_comes_back_after_the_grace_starts_again() -> None:
    state, _ = capacity(stop(having(gpus(0, 0)), GPU, now=0.0), 2 * ENDPOINT_STOP_GRACE_PERIOD_S)
    state = register(state, GPU, PluginOptions())
    assert said(state, 2 * ENDPOINT_STOP_GRACE_PERIOD_S) == Capacity({}, {}, ())
    assert said(update(state, GPU, gpus(0)), 2 * ENDPOINT_STOP_GRACE_PERIOD_S) == Capacity({GPU: 1}, {GPU: 1}, ())


def test_the_end_of_a_plugin_that_nobody_knows_changes_nothing() -> None:
    assert stop(DeviceManagerState(), GPU, now=0.0) == DeviceManagerState()


def test_a_plugin_that_stops_before_its_first_list_is_never_reported_gone() -> None:
    state = stop(register(DeviceManagerState(), GPU, PluginOptions()), GPU, now=0.0)
    assert said(state, 2 * ENDPOINT_STOP_GRACE_PERIOD_S) == Capacity({}, {}, ())


def test_a_resource_that_a_pod_holds_stays_one_of_devices_when_it_is_forgotten() -> None:
    held = {("uid", "c"): {GPU: Allocation({0: ("gpu0",)})}}
    state, _ = capacity(restore(held, [GPU], now=0.0), 2 * ENDPOINT_STOP_GRACE_PERIOD_S)
    assert is_device_resource(state, GPU)


def test_after_a_restart_resources_have_no_devices_until_their_plugin_is_back() -> None:
    held = {("uid", "c"): {GPU: Allocation({0: ("gpu0",)}, b"x")}}
    state = restore(held, {GPU: ("gpu0", "gpu1")}, now=50.0)
    assert said(state, 50.0) == Capacity({GPU: 0}, {GPU: 0}, ())
    assert state.allocated == {GPU: {"gpu0"}}
    assert said(having(gpus(0, 0), state=state), 10_000.0) == Capacity({GPU: 2}, {GPU: 2}, ())
    assert said(state, 50.5 + ENDPOINT_STOP_GRACE_PERIOD_S).removed == (GPU,)
