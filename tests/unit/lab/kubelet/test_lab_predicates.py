"""Whether a node has room for a pod, in kubelet's words."""

import pytest

from purser.lab.kubelet.admission import AdmissionError
from purser.lab.kubelet.predicates import check_room

ALLOCATABLE = {"pods": "2", "cpu": "1500m", "memory": "1Gi"}


def pod(cpu="0", memory="0"):
    requests = {"cpu": cpu, "memory": memory}
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}


def refusal(wanted, *others):
    with pytest.raises(AdmissionError) as caught:
        check_room(wanted, others, ALLOCATABLE)
    return caught.value.reason, caught.value.message


def test_what_fits_is_admitted():
    check_room(pod("500m", "512Mi"), [pod("1", "512Mi")], ALLOCATABLE)


def test_cpus_are_counted_in_thousandths():
    assert refusal(pod("600m"), pod("1")) == (
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 600, used: 1000, capacity: 1500",
    )


def test_memory_is_counted_in_bytes():
    assert refusal(pod(memory="1Gi"), pod(memory="1")) == (
        "OutOfmemory",
        "Node didn't have enough resource: memory, requested: 1073741824, used: 1, capacity: 1073741824",
    )


def test_too_many_pods_are_named_before_all_else():
    assert refusal(pod("9"), pod(), pod()) == (
        "OutOfpods",
        "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2",
    )


def test_a_pod_that_asks_for_nothing_is_not_short_of_what_others_overdrew():
    check_room(pod(), [pod("9")], ALLOCATABLE)
