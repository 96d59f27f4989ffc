import pytest

from purser.lab.scenario.matching import difference

FOUND = {
    "spec": {"on": True, "count": 3, "name": "gpu-0 is away"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Degraded", "status": "False"}]},
}


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"spec": {"on": True}},
        {"spec": {"name": "*away"}},
        {"spec": {"name": "gpu-0 is away", "other": None}},
        {"status": {"conditions": [{"type": "Degraded", "status": "False"}]}},
        {"status": {"conditions": [{"type": "Degraded"}, {"type": "Ready"}]}},
    ],
)
def test_a_part_of_an_object_matches(wanted):
    assert difference(wanted, FOUND) == ""


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"spec": {"on": None}}, "spec.on is True"),
        ({"spec": {"count": True}}, "spec.count is 3"),
        ({"spec": {"count": "3"}}, "spec.count is 3"),
        ({"spec": {"name": "away"}}, "spec.name is gpu-0 is away"),
        ({"other": {"field": 1}}, "other is not set"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "status.conditions is"),
    ],
)
def test_the_difference_is_named(wanted, said):
    assert difference(wanted, FOUND).startswith(said)
