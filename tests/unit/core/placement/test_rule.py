"""Whether a GPU takes a container: each obstacle, which of several is reported, and what is left without one."""

from functools import reduce
from operator import or_

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.core.fleet import rule
from purser.core.fleet.facts import ABSENT, CORDONED, DISPUTED, UNHEALTHY
from purser.core.placement.reasons import OF_OBSTACLE, Reason

GPU = {
    "closed": 0,
    "also": 0,
    "of_model": 0,
    "slots": 10,
    "slots_free": 9,
    "alone": 0,
    "memory_free": 8000,
    "memory": 8000,
    "cores": 100,
    "cores_free": 50,
    "cores_asked": 50,
    "whole": False,
    "idle": False,
}
"""In use, with exactly what a share asks for."""
IDLE_WHOLE = {"slots_free": 10, "cores_free": 100, "cores_asked": 100, "whole": True}

OTHER = {"of_model": rule.OTHER_MODEL}
REFUSED = {
    Reason.NOT_HEALTHY: [{"closed": UNHEALTHY}, {"closed": UNHEALTHY | CORDONED | DISPUTED, **OTHER}],
    Reason.CORDONED: [{"closed": CORDONED}, {"closed": CORDONED | DISPUTED}],
    Reason.DISPUTED: [{"closed": DISPUTED}],
    Reason.TYPE_MISMATCH: [OTHER, {**OTHER, "also": rule.OTHER_UUID, "slots_free": 0}],
    Reason.UUID_MISMATCH: [{"also": rule.OTHER_UUID}, {"also": rule.OTHER_UUID | rule.OVER_QUOTA, "slots_free": 0}],
    Reason.NOT_ENFORCED: [{"of_model": rule.UNENFORCED, "slots_free": 0}],
    Reason.SLOTS_EXHAUSTED: [{"slots_free": 0}, {"slots_free": -1, "memory_free": 0}, {"slots": 0, "slots_free": 0}],
    Reason.QUOTA_NOT_FIT: [{"also": rule.OVER_QUOTA, "memory_free": 0}],
    Reason.INSUFFICIENT_MEMORY: [{"memory_free": 7999}, {"memory_free": 7999, "cores_free": 0}],
    Reason.INSUFFICIENT_CORES: [{"cores_free": 49}, {**IDLE_WHOLE, "slots_free": 9, "cores_free": 99}],
    Reason.CORES_EXHAUSTED: [{"cores_asked": 0, "cores_free": 0}],
    Reason.EXCLUSIVE_CONFLICT: [
        {"idle": True, "memory_free": 0},
        {**IDLE_WHOLE, "slots_free": 9},
        {"alone": 1, "cores": 200},
    ],
}
TAKEN = [
    {},
    IDLE_WHOLE,
    {"idle": True, "slots_free": 10},
    {"cores_asked": 0, "cores_free": 1},
    {"cores_asked": 0, "cores": 0, "cores_free": 0},
    {"memory": 0, "memory_free": 0},
]


@pytest.mark.parametrize(("reason", "gpu"), [(reason, gpu) for reason, gpus in REFUSED.items() for gpu in gpus])
def test_the_first_obstacle_is_the_reason(reason: Reason, gpu: dict[str, int]) -> None:
    assert OF_OBSTACLE[rule.first(rule.obstacles(**GPU | gpu))] is reason


@pytest.mark.parametrize("gpu", TAKEN)
def test_a_gpu_with_just_what_is_asked_takes_the_container(gpu: dict[str, int]) -> None:
    assert rule.obstacles(**GPU | gpu) == 0


def test_a_missing_gpu_has_no_obstacles() -> None:
    assert rule.first(rule.obstacles(**GPU | {"closed": ABSENT, "slots": 0, "slots_free": 0})) not in OF_OBSTACLE


def test_no_two_obstacles_share_a_bit() -> None:
    own = [value for name, value in vars(rule).items() if type(value) is int and name.isupper() and name[0] != "_"]
    bits = [UNHEALTHY, CORDONED, DISPUTED, ABSENT, *own]
    assert len(bits) == len(OF_OBSTACLE) + 1
    assert sum(bits) == reduce(or_, bits)


def test_every_reason_that_a_gpu_can_give_is_tried() -> None:
    assert REFUSED.keys() | {Reason.NO_MIG_PLACE, Reason.SHARES_DIFFER} == set(OF_OBSTACLE.values())


@given(st.lists(st.sampled_from([gpu for gpus in (*REFUSED.values(), TAKEN) for gpu in gpus]), min_size=1))
def test_many_gpus_at_once_are_as_one_by_one(gpus: list[dict[str, int]]) -> None:
    columns = {name: np.array([(GPU | gpu)[name] for gpu in gpus]) for name in GPU}
    assert rule.obstacles(**columns).tolist() == [int(rule.obstacles(**GPU | gpu)) for gpu in gpus]


@pytest.mark.parametrize(
    ("left", "gpu"),
    [
        (500, {}),
        (250, {"memory_free": 250}),
        (0, {"cores_free": 0}),
        (0, {"slots_free": 0}),
        (0, {"held": True}),
        (0, {"memory_free": -1}),
        (0, {"cores": 0, "cores_free": 0}),
        (0, {"memory": 0, "memory_free": 0}),
        (333, {"memory": 3, "memory_free": 1}),
    ],
)
def test_what_is_left_is_the_less_of_memory_and_compute_for_later_pods(left: int, gpu: dict[str, int]) -> None:
    share = {"memory": 1000, "memory_free": 600, "cores": 100, "cores_free": 50, "slots_free": 1, "held": False}
    assert rule.left_milli(**share | gpu) == left
