"""The table of what differs between kubelets."""

import pytest

from purser.core.kubelet.versions import behaviour, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [("v1.29.4-gke.100", (1, 29, 4)), ("1.20", (1, 20, 0)), ("v1.36.2+k3s1", (1, 36, 2))],
)
def test_a_version_is_read_from_what_nodes_say(text, version) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "newest", "v1", "9" * 5000 + ".1"])
def test_what_is_no_version_is_an_error(text) -> None:
    with pytest.raises(ValueError):
        parse_version(text)


def test_nodes_that_say_ever_new_versions_do_not_fill_the_memory() -> None:
    for patch in range(1000):
        behaviour((1, 36, patch))
    assert behaviour.cache_info().currsize <= 256


def test_versions_beyond_the_newest_known_one_behave_like_it() -> None:
    assert behaviour((1, 99, 0)) == behaviour((1, 37, 2))
