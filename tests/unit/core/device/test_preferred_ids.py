"""Which ids the agent prefers for a grant, and which it takes."""

import pytest

from purser.core.device.answers import are_granted_devices, least_wanted_ids, preferred_ids

A, B = "GPU-a", "GPU-b"
FREE = ("GPU-a::0", "GPU-a::1", "GPU-a::10", "GPU-b::0")


@pytest.mark.parametrize(
    ("granted", "must_include", "preferred"),
    [
        pytest.param([B, A], [], ("GPU-b::0", "GPU-a::0"), id="the lowest of each, in the grant's order"),
        pytest.param([A], ["GPU-a::10"], ("GPU-a::10",), id="what must be included"),
        pytest.param([A, A], [], ("GPU-a::0", "GPU-a::1"), id="two parts of one device"),
        pytest.param([A, A], ["GPU-a::1"], ("GPU-a::1", "GPU-a::0"), id="one of two must be included"),
        pytest.param([A, B, A], [], ("GPU-a::0", "GPU-b::0", "GPU-a::1"), id="two of one and one of another"),
        pytest.param([B, B], [], None, id="more than are to be had"),
        pytest.param([A, B], ["GPU-a::0", "GPU-a::1"], None, id="two of one where one was granted"),
        pytest.param([A], ["GPU-b::0"], None, id="one of another device"),
    ],
)
def test_ids_are_those_of_the_grant(granted: list[str], must_include: list[str], preferred: object) -> None:
    assert preferred_ids(granted, len(granted), FREE, must_include) == preferred
    if isinstance(preferred, tuple):
        assert are_granted_devices(granted, preferred)
        assert not are_granted_devices(granted, preferred[1:])


def test_what_a_container_holds_is_taken_last_though_kubelet_offers_it() -> None:
    held = {"GPU-a::0", "GPU-b::0"}
    assert preferred_ids([A, A], 2, FREE, [], held) == ("GPU-a::1", "GPU-a::10")
    assert preferred_ids([A, B], 2, FREE, [], held) == ("GPU-a::1", "GPU-b::0")
    assert preferred_ids([A], 1, FREE, ["GPU-a::0"], held) == ("GPU-a::0",)
    assert least_wanted_ids(1, FREE, []) == ("GPU-b::0",)
    assert least_wanted_ids(1, FREE, [], held) == ("GPU-a::1",)
    assert least_wanted_ids(4, FREE, [], held) == ("GPU-a::1", "GPU-a::10", "GPU-b::0", "GPU-a::0")
