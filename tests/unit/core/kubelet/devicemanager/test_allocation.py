"""Which devices a container gets, what plugins are asked, and what a failure leaves behind."""

import pytest

from purser.core.kubelet.asks import Allocate, AnswerWithDevices, Ask, FailedAnswer, PreferredAllocation
from purser.core.kubelet.devicemanager import capacity, free_all_but, held_by, register, restore, stop, update
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.state import Allocation, DeviceManagerState, PluginOptions
from purser.core.pod.manifest import ContainerKind

from .parts import GPU, NEW, NIC, OLD, Given, container, failing, gpus, having, node, obliging, unwell

BOTH = pytest.mark.parametrize("version", [OLD, NEW])
HELD = ("uid", "c")


def failing_on(kind: type[Ask]) -> object:
    return lambda ask: failing(ask) if isinstance(ask, kind) else obliging(ask)


def restarted(*ids: str, by_list: list | None = None) -> DeviceManagerState:
    """A kubelet that starts again while one container holds devices; its plugin is back where it lists some."""
    state = restore({HELD: {GPU: Allocation({0: ids}, b"old")}}, [GPU], now=0.0)
    return state if by_list is None else update(register(state, GPU, PluginOptions()), GPU, by_list)


# --- what is taken


def test_a_container_holds_what_its_plugin_answered() -> None:
    done = Given(having(gpus(0, 1, (0, 1), None)), container(gpu=4))
    assert done.error is None
    assert held_by(done.state, HELD) == {
        GPU: Allocation({-1: ("gpu3",), 0: ("gpu0", "gpu2"), 1: ("gpu1", "gpu2")}, b"response")
    }
    assert done.state.allocated == {GPU: {"gpu0", "gpu1", "gpu2", "gpu3"}}
    assert {uid for uid, _ in done.state.held} == {"uid"}


def test_a_device_on_several_nodes_is_aligned_by_any_since_1_22_and_before_by_its_lowest_here() -> None:
    state = having(gpus((0, 1), 0))
    for version, expected in ((NEW, {"gpu0"}), ("v1.22.0", {"gpu0"}), ("v1.21.14", {"gpu0"})):
        assert Given(state, container(gpu=1), hint=Hint(0b10, True), on=node(version)).ids() == expected
    state = having(gpus((0, 1), 1))
    assert Given(state, container(gpu=1), hint=Hint(0b10, True), on=node("v1.22.0")).ids() == {"gpu0"}
    assert Given(state, container(gpu=1), hint=Hint(0b10, True), on=node("v1.21.14")).ids() == {"gpu1"}


# --- what plugins are asked


def test_a_request_carries_the_latest_device_state() -> None:
    state = having(gpus(0, 0), prefers=True, state=having(gpus(0, 1, prefix="nic"), NIC, prefers=True))
    wish = Hint(0b01, True)
    done = Given(state, container(gpu=1, nic=2), hint=wish)
    of_nic = [ask for ask in done.asked if ask.resource == NIC]
    assert [type(ask) for ask in of_nic] == [PreferredAllocation, Allocate]
    assert [set(ask.state.devices.held[HELD]) for ask in of_nic] == [{GPU}, {GPU}]
    assert [ask.state.devices.allocated[NIC] for ask in of_nic] == [{"nic0"}, {"nic0", "nic1"}]


def test_an_answer_of_the_wrong_kind_is_the_callers_mistake() -> None:
    with pytest.raises(TypeError, match="GetPreferredAllocation"):
        Given(having(gpus(0, 0), prefers=True), container(gpu=1), plugin=lambda ask: b"")
    with pytest.raises(TypeError, match="ContainerAllocateResponse"):
        Given(having(gpus(0, 0)), container(gpu=1), plugin=lambda ask: ("gpu0",))


# --- what is refused, and in which order


@BOTH
def test_a_changed_request_comes_before_everything_else(version: str) -> None:
    done = Given(restarted("gpu0", "gpu1"), container(gpu=1), on=node(version))
    assert done.error == f'pod "uid" container "c" changed request for resource "{GPU}" from 2 to 1'


def test_an_unregistered_resource_is_worded_by_version() -> None:
    state = restore({("dead", "c"): {GPU: Allocation({0: ("gpu0",)})}}, [], now=0.0)
    assert Given(state, container(gpu=1), on=node(OLD)).error == f"can't allocate unregistered device {GPU}"
    assert Given(state, container(gpu=1), on=node(NEW)).error == f"cannot allocate unregistered device {GPU}"
    assert Given(state, container(gpu=0), on=node(OLD)).error is None
    assert Given(state, container(gpu=0), on=node(NEW)).error == f"cannot allocate unregistered device {GPU}"


def test_no_healthy_device_is_an_error_of_newer_kubelets_even_for_none() -> None:
    state = having(unwell(gpus(0)))
    text = f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
    assert Given(state, container(gpu=1), on=node(NEW)).error == text
    assert Given(state, container(gpu=0), on=node(NEW)).error == text
    assert Given(state, container(gpu=0), on=node(OLD)).error is None
    assert Given(state, container(gpu=1), on=node(OLD)).error.startswith("requested number of devices unavailable")


@pytest.mark.parametrize(
    ("version", "checks"),
    [("v1.25.9", False), ("v1.25.10", True), ("v1.26.4", False), ("v1.26.5", True), ("v1.27.1", False), (NEW, True)],
)
def test_after_a_reboot_newer_kubelets_refuse_devices_that_are_not_back(version: str, checks: bool) -> None:
    """Kubernetes issue 109595: older ones admit the pod with the answer of before."""
    waiting = Given(restarted("gpu0"), container(gpu=1), on=node(version))
    text = f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
    assert waiting.error == (text if checks else None)
    without = Given(restarted("gpu0", by_list=gpus(0, prefix="new")), container(gpu=1), on=node(version))
    text = f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {GPU}"
    assert without.error == (text if checks else None)
    assert without.state.held[HELD][GPU].response == b"old"


def test_a_container_that_runs_already_is_let_be_whatever_its_devices() -> None:
    for state in (restarted("gpu0"), restore({}, [GPU], now=0.0)):
        done = Given(state, container(gpu=1), is_running=True)
        assert (done.error, done.asked, done.state) == (None, [], state)


def test_a_container_that_has_its_devices_is_given_nothing_more() -> None:
    state = restarted("gpu0", by_list=gpus(0, 0))
    done = Given(state, container(gpu=1))
    assert (done.error, done.asked, done.state) == (None, [], state)


# --- what a failure leaves behind


def test_a_failed_allocate_frees_what_was_chosen_and_keeps_the_resources_before() -> None:
    state = having(gpus(0, prefix="nic"), NIC, having(gpus(0)))
    done = Given(
        state,
        container(gpu=1, nic=1),
        plugin=lambda ask: failing(ask) if ask.resource == NIC else obliging(ask),
    )
    assert done.error == "rpc error: code = Unknown desc = no"
    assert done.ids() == {"gpu0"} and done.ids(NIC) == set()
    assert done.state.allocated == {GPU: {"gpu0"}}


def test_an_empty_answer_leaves_the_devices_taken_until_kubelet_counts_again() -> None:
    text = "no containers return in allocation response &AllocateResponse{}"
    done = Given(having(gpus(0, 0)), container(gpu=1), plugin=lambda ask: FailedAnswer(text, is_empty_response=True))
    assert done.error == text and done.ids() == set()
    assert done.state.allocated == {GPU: {"gpu0"}}
    assert free_all_but(done.state, ["uid"]).allocated == {GPU: {"gpu0"}}, "nobody is gone: it does not count"
    other = Given(done.state, container(gpu=1), uid="gone").state
    assert free_all_but(other, ["uid"]).allocated == {}


def test_only_a_container_that_asks_for_devices_frees_those_of_pods_that_are_gone() -> None:
    held = Given(having(gpus(0, 0)), container(gpu=1), uid="gone").state
    assert Given(held, container(), active=["uid"]).state == held
    done = Given(held, container(gpu=2), active=["uid"])
    assert done.error is None and done.ids() == {"gpu0", "gpu1"}
    assert Given(held, container(gpu=2), active=None).error is not None, "kubelet does not know all pods yet"


def test_a_failed_question_leaves_the_aligned_devices_taken() -> None:
    state = having(gpus(0, 1, 1), prefers=True)
    done = Given(state, container(gpu=2), hint=Hint(0b01, True), plugin=failing_on(PreferredAllocation))
    text = "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = no"
    assert done.error == text
    assert done.state.held == {} and done.state.allocated == {GPU: {"gpu0"}}


def test_a_shortage_leaves_a_resource_that_counts_as_known() -> None:
    done = Given(having(gpus(0)), container(gpu=2))
    assert done.state.allocated == {GPU: frozenset()}


def test_init_devices_of_a_plugin_that_is_gone_end_at_its_stopped_endpoint_on_old_kubelets() -> None:
    first = Given(having(gpus(0)), container("init", ContainerKind.INIT, gpu=1), on=node(OLD))
    state = stop(first.state, GPU, now=0.0)
    app = container("app", gpu=1)
    assert Given(state, app, reusable=first.reusable, on=node(OLD)).error == f"endpoint {GPU} has been stopped"
    assert Given(state, app, reusable=first.reusable, on=node(NEW)).error is not None
    forgotten, _ = capacity(state, 1_000.0)
    last = Given(forgotten, app, reusable=first.reusable, on=node(OLD))
    assert last.error == f"can't allocate unregistered device {GPU}"


# --- init containers


def test_the_shortage_of_a_container_that_reuses_devices_counts_without_them_and_keeps_them_taken() -> None:
    first = Given(having(gpus(0, 0)), container("init", ContainerKind.INIT, gpu=1))
    second = Given(first.state, container("a", gpu=3), reusable=first.reusable)
    assert second.error == f"requested number of devices unavailable for {GPU}. Requested: 2, Available: 1"
    assert second.reusable == first.reusable


# --- what plugins tell while they are asked


def meanwhile(after: DeviceManagerState) -> object:
    """A plugin that answers everything; the node has changed to this by then."""
    return lambda ask: AnswerWithDevices(obliging(ask), after)


def test_devices_that_fall_ill_during_a_call_are_not_given_out_after_it() -> None:
    before = having(gpus(0, 0, prefix="nic"), NIC, having(gpus(0)))
    after = update(before, NIC, unwell(gpus(0, 0, prefix="nic")))
    done = Given(before, container(gpu=1, nic=1), plugin=meanwhile(after))
    assert done.error == f"no healthy devices present; cannot allocate unhealthy devices {NIC}"
    assert (done.ids(), done.ids(NIC)) == ({"gpu0"}, set())
    assert done.state.resources == after.resources


def test_a_resource_that_is_listed_during_a_call_is_given_out_after_it() -> None:
    before = having(gpus(0))
    done = Given(before, container(gpu=1, nic=1), plugin=meanwhile(having(gpus(0, prefix="nic"), NIC, before)))
    assert (done.error, done.ids(NIC)) == (None, {"nic0"})


def test_a_plugin_that_ends_after_its_preferred_allocation_is_not_asked_to_allocate() -> None:
    before = having(gpus(0, 0), prefers=True)
    done = Given(before, container(gpu=1), plugin=meanwhile(stop(before, GPU, 1.0)))
    assert done.error == f"endpoint {GPU} has been stopped"
    assert [type(ask) for ask in done.asked] == [PreferredAllocation]
    assert done.state.allocated == {}


def test_of_two_devices_that_fall_ill_while_the_plugin_is_asked_one_may_still_be_taken() -> None:
    before = having(gpus(0, 0), prefers=True)
    done = Given(before, container(gpu=1), plugin=meanwhile(update(before, GPU, unwell(gpus(0, 0)))))
    assert (done.error, done.ids()) == (None, {"gpu0"})


def test_what_a_container_holds_is_where_the_newest_list_says() -> None:
    before = having(gpus(0))
    done = Given(before, container(gpu=1), plugin=meanwhile(update(before, GPU, gpus(1))))
    assert done.state.held[HELD][GPU].devices_per_numa == {1: ("gpu0",)}


def test_who_holds_what_is_none_of_the_plugins_half() -> None:
    before = having(gpus(0))
    stray = Given(before, container("other", gpu=1)).state
    done = Given(before, container(gpu=1), plugin=meanwhile(stray))
    assert (set(done.state.held), done.state.allocated) == ({HELD}, {GPU: {"gpu0"}})
