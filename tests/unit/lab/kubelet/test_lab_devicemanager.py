import json
from pathlib import Path
from random import Random

import pytest

from purser.lab.kubelet.devicemanager import (
    GRACE_S,
    AllocationError,
    DeviceManager,
    PluginDevice,
    PluginOptions,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "device_allocate.json").read_text())["vectors"]


def manager_with(*ids, unhealthy=(), version=(1, 36), preferred=True):
    manager = DeviceManager(version, Random(1))
    manager.register("gpu", PluginOptions(preferred_allocation=preferred))
    manager.update("gpu", [PluginDevice(id_, id_ not in unhealthy) for id_ in ids])
    return manager


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["id"]))
def test_devices_are_chosen_as_the_real_kubelet_chose_them(vector):
    manager = DeviceManager((1, 36), Random(vector["id"]))
    manager.register("r", PluginOptions(preferred_allocation=vector["plugin_has_preferred"]))
    manager.update(
        "r",
        [PluginDevice(id_, id_ in vector["healthy"], tuple(nodes or ())) for id_, nodes in vector["devices"].items()],
    )
    manager.hold(("other", "c"), "r", vector["allocated_before"], b"")
    hint = vector["hint"]
    calls = []

    def allocate():
        mask = hint["mask"] if hint else None
        plan = manager.plan(("pod", "c"), "r", vector["request"], reusable=vector["reusable"], mask=mask)
        if plan is None:
            return frozenset()
        if plan.question is None:
            return manager.choose(plan)
        question = plan.question
        calls.append((sorted(question.available), sorted(question.must_include), question.size))
        return manager.choose(plan, vector["plugin_preferred_response"] or ())

    if vector["error"]:
        with pytest.raises(AllocationError) as caught:
            allocate()
        assert str(caught.value) == vector["error"]
        return
    chosen = allocate()
    expected_calls = [(sorted(c["available"]), sorted(c["must_include"]), c["size"]) for c in vector["plugin_call"]]
    if not vector["reusable"]:
        assert calls == expected_calls
    assert len(calls) == len(expected_calls)
    assert len(chosen) == vector["request"]
    if vector["deterministic"]:
        assert sorted(chosen) in [sorted(result) for result in vector["distinct_results"]]


def test_without_a_mask_the_plugin_is_asked_over_everything_free():
    manager = manager_with("a", "b", "c", "d")
    manager.hold(("other", "c"), "gpu", ["a"], b"")
    plan = manager.plan(("pod", "c"), "gpu", 2)
    assert sorted(plan.question.available) == ["b", "c", "d"]
    assert (plan.question.must_include, plan.question.size) == ((), 2)
    assert manager.choose(plan, ["d", "c"]) == {"c", "d"}


def test_foreign_and_missing_answers_are_filled_up():
    manager = manager_with("a", "b", "c")
    plan = manager.plan(("pod", "c"), "gpu", 2)
    chosen = manager.choose(plan, ["b", "nonsense"])
    assert "b" in chosen
    assert len(chosen) == 2
    assert chosen <= {"a", "b", "c"}


def test_devices_of_init_containers_come_first_and_are_part_of_the_request():
    manager = manager_with("a", "b", "c")
    manager.hold(("pod", "init"), "gpu", ["b"], b"")
    plan = manager.plan(("pod", "main"), "gpu", 2, reusable={"b"})
    assert plan.question.must_include == ("b",)
    assert sorted(plan.question.available) == ["a", "b", "c"]
    assert plan.question.size == 2
    one = manager.plan(("pod", "main"), "gpu", 1, reusable={"b"})
    assert one.question is None
    assert manager.choose(one) == {"b"}


def test_a_pod_that_is_gone_gives_its_devices_back_when_somebody_asks():
    manager = manager_with("a")
    manager.hold(("old", "c"), "gpu", ["a"], b"")
    with pytest.raises(AllocationError, match="Requested: 1, Available: 0"):
        manager.plan(("new", "c"), "gpu", 1)
    manager.free_all_but({"new"})
    assert manager.choose(manager.plan(("new", "c"), "gpu", 1), ["a"]) == {"a"}


def test_a_stopped_plugin_keeps_its_capacity_for_five_minutes():
    manager = manager_with("a", "b", unhealthy="b")
    assert manager.capacity(0.0).capacity == {"gpu": 2}
    assert manager.capacity(0.0).allocatable == {"gpu": 1}
    manager.stop("gpu", 10.0)
    during = manager.capacity(10.0 + GRACE_S)
    assert (during.capacity, during.allocatable) == ({"gpu": 2}, {"gpu": 0})
    after = manager.capacity(10.1 + GRACE_S)
    assert (after.capacity, after.allocatable, after.removed) == ({"gpu": 0}, {"gpu": 0}, ("gpu",))
    with pytest.raises(AllocationError, match="cannot allocate unregistered device gpu"):
        manager.plan(("pod", "c"), "gpu", 1)


def test_after_a_restart_allocations_are_known_and_devices_are_not():
    before = manager_with("a", "b")
    before.hold(("pod", "c"), "gpu", ["a"], b"response")
    after = DeviceManager((1, 36), Random(1))
    after.restore(before.allocations(), before.registered(), now=0.0)
    assert after.held("pod", "c")["gpu"].device_ids == {"a"}
    assert after.capacity(0.0).capacity == {"gpu": 0}
    with pytest.raises(AllocationError, match="no healthy devices present"):
        after.plan(("new", "c"), "gpu", 1)
    assert after.plan(("pod", "c"), "gpu", 1, is_running=True) is None
    after.register("gpu", PluginOptions())
    after.update("gpu", [PluginDevice("a"), PluginDevice("b")])
    assert after.choose(after.plan(("new", "c"), "gpu", 1)) == {"b"}


def test_a_changed_request_is_an_error():
    manager = manager_with("a", "b")
    manager.hold(("pod", "c"), "gpu", ["a"], b"")
    with pytest.raises(AllocationError, match='container "c" changed request for resource "gpu" from 1 to 2'):
        manager.plan(("pod", "c"), "gpu", 2)


def test_a_resource_without_its_first_list_has_no_capacity():
    manager = DeviceManager((1, 36), Random(1))
    manager.register("gpu", PluginOptions())
    assert manager.capacity(0.0).capacity == {}
    assert not manager.is_device_resource("gpu")
    old = DeviceManager((1, 20), Random(1))
    with pytest.raises(AllocationError, match="can't allocate unregistered device gpu"):
        old.plan(("pod", "c"), "gpu", 1)
