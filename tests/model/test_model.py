"""The protocol explored, as far as there is time: nothing is found, and every broken variant is."""

import pytest

from tests.model.agent import Agents, Memory
from tests.model.cluster import WITHOUT_AWAY, Size
from tests.model.moves_of_nodes import heard
from tests.model.parts import Booked, Listed, PodVersion, grant
from tests.model.scheduler import Machine
from tests.model.search import explore, wander
from tests.model.space import Space
from tests.model.variants import VARIANTS
from tests.model.world import World

LARGE = Size(nodes=2, gpus=2, pods=3, schedulers=2)


def test_without_faults_all_states_are_explored():
    found = explore(Space(World(LARGE._replace(faults=0))), 100_000)
    assert (found.problem, found.is_whole) == ("", True)
    assert found.states > 3000


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.name)
def test_a_broken_rule_is_found(variant):
    with variant.world() as world:
        shortest, hasty = (explore(Space(world, is_eager=is_eager), 50_000) for is_eager in (False, True))
    assert shortest.problem, shortest
    assert hasty.problem, hasty
    assert len(hasty.story) <= len(shortest.story)
    print(f"{variant.name}. {shortest}")


def test_a_grant_that_was_bound_counts_though_its_annotation_was_never_seen():
    """A user removes it before the scheduler's watch has shown the Binding that was carried out."""
    machine, wanted = Machine((("node0", 1),)), grant("pod0.0", "node0", "node0-gpu0")
    bound = PodVersion("pod0", "pod0.0", "node0", wanted)
    machine.hear("pod0", PodVersion("pod0", "pod0.0"))
    machine.reserve(wanted)
    machine.answered(wanted, "ok", bound)
    machine.hear("pod0", bound._replace(grant=None))
    assert [held for held, _ in machine.knowledge().grants] == [wanted]
    machine.hear("pod0", None)
    assert not machine.knowledge().grants
    assert not machine.knowledge().verified


def test_a_refused_binding_does_not_release_what_a_watch_has_shown():
    """Of two leaders that chose alike, one's Binding is carried out; then the pod's owner removes the grant."""
    machine, wanted = Machine((("node0", 1),)), grant("pod0.0", "node0", "node0-gpu0")
    bound = PodVersion("pod0", "pod0.0", "node0", wanted, "Running")
    machine.hear("pod0", PodVersion("pod0", "pod0.0"))
    machine.reserve(wanted)
    machine.hear("pod0", bound)
    machine.hear("pod0", bound._replace(grant=None))
    machine.answered(wanted, "refused", bound._replace(grant=None))
    assert [held for held, _ in machine.knowledge().grants] == [wanted]


def test_what_kubelet_lists_is_held_though_the_api_server_has_no_such_pod():
    """Two leaders granted one GPU twice. A pod that is deleted by force runs until kubelet hears of it."""
    first, second = (grant(f"{name}.0", "node0", "node0-gpu0") for name in ("pod0", "pod1"))
    runs, asks = Listed("pod0", "pod0.0", "node0-gpu0::0"), Listed("pod1", "pod1.0")
    api = (PodVersion("pod1", "pod1.0", "node0", second),)
    memory, free = Memory((Booked(first, runs.id),), api), ("node0-gpu0::1",)
    (refused,) = Agents(1).allocate("node0", memory, api, (runs, asks), free, "")
    (given,) = Agents(1).allocate("node0", memory, api, (asks,), free, "")
    assert (refused.gpu, given.gpu) == ("", "node0-gpu0")


def test_what_kubelet_lists_is_held_though_the_agent_released_its_pod():
    """The same, once the agent has heard of the deletion: kubelet hears of it later, and the pod runs until then."""
    first, second = (grant(f"{name}.0", "node0", "node0-gpu0") for name in ("pod0", "pod1"))
    runs, asks = Listed("pod0", "pod0.0", "node0-gpu0::0"), Listed("pod1", "pod1.0")
    api = (PodVersion("pod1", "pod1.0", "node0", second),)
    agents, memory = Agents(1), Memory((Booked(first, runs.id),), (PodVersion("pod0", "pod0.0", "node0", first),))
    released = heard(memory, "pod0", None)
    assert (released.book, released.released) == ((), (first,))
    assert agents.sweep("node0", memory._replace(heard=()), api).released == (first,)
    for listing, gpu in (((runs, asks), ""), ((asks,), "node0-gpu0")):
        (answer,) = agents.allocate("node0", released, api, listing, ("node0-gpu0::1",), "")
        assert answer.gpu == gpu


@pytest.mark.parametrize("has_heard", [False, True])
def test_a_pod_that_was_booked_for_another_gets_no_room_that_the_other_has(has_heard):
    """Two leaders granted one GPU twice. pod1 was taken for pod0, whose former namesake kubelet still listed; then
    kubelet asks for pod0 itself, and the agent may not even have heard of pod1."""
    first, second = (grant(f"{name}.0", "node0", "node0-gpu0") for name in ("pod0", "pod1"))
    api = tuple(PodVersion(each.pod, each.pod_uid, "node0", each) for each in (first, second))
    listing = (Listed("pod0", "pod0.0"), Listed("pod1", "pod1.0", "node0-gpu0::0"))
    memory = Memory((Booked(first, "node0-gpu0::0"),), api if has_heard else ())
    (answer,) = Agents(1).allocate("node0", memory, api, listing, ("node0-gpu0::1",), "")
    assert (answer.gpu, "does not fit" in answer.why or "was admitted first" in answer.why) == ("", True)


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["agent", "net"])
def test_with_a_fault_all_states_are_explored(kind):
    found = explore(Space(World(LARGE._replace(kinds=frozenset({kind})))), 1_000_000)
    assert (found.problem, found.is_whole) == ("", True), found
    print(kind, found)


@pytest.mark.gate
def test_random_histories_with_faults_have_no_violation():
    found = wander(World(LARGE._replace(faults=5, kinds=WITHOUT_AWAY)), 40, 100, seed=7)
    assert not found.problem, found
