"""What pods leave of a node beside its GPUs."""

from purser.core.fleet import node_state
from purser.core.fleet.free_resources import MANY, FreeResources
from purser.core.fleet.live import node_facts
from purser.core.model import NodeInventory
from purser.core.pod.requests import EffectiveRequests


def test_what_pods_take_is_not_free() -> None:
    assert FreeResources(4000, 8192, 110).less(EffectiveRequests(1500, 192), 2) == FreeResources(2500, 8000, 108)


def test_a_node_that_gave_more_than_it_has_has_nothing_left() -> None:
    assert FreeResources(4000, 8192, 1).less(EffectiveRequests(5000, 9000), 2) == FreeResources(0, 0, 0)


def test_what_is_not_limited_stays_so() -> None:
    assert FreeResources(memory_free_mib=10).less(EffectiveRequests(5000, 4), 2) == FreeResources(MANY, 6, MANY)


def test_a_live_node_has_what_is_left_within_what_arrays_can_count() -> None:
    state = node_state(NodeInventory("n"), {})
    known = node_facts(state, FreeResources(1000, 10**30, -5))
    assert (known.cpu_free_milli, known.memory_free_mib, known.pods_free) == (1000, MANY, 0)
    unknown = node_facts(state)
    assert (unknown.cpu_free_milli, unknown.memory_free_mib, unknown.pods_free) == (MANY, MANY, MANY)
