"""What is kept of a node for nominated pods: GPUs, and the network devices of pools with them."""

import random

import msgspec
import pytest
from tests import tiers
from tests.unit.core.placement.test_nics import VF, bind, fleet_of, inventory, pairs, pod

from purser.core.fleet import NominatedUsage
from purser.core.grant.quota import UNLIMITED
from purser.core.model import GpuNic
from purser.core.placement import Evaluator, Placement, PolicySettings, Refusal, best, place, to_grant
from purser.core.placement.yielding import without_kept_nodes
from purser.kube import SystemClock
from purser.scheduler.cache.nominations import Nominations
from purser.scheduler.cache.readings import Readings

POLICY = PolicySettings()
REQUIRED, PREFERRED = GpuNic.REQUIRED, GpuNic.PREFERRED


def asks(name, gpus, vfs, priority=0, gpu_nic=REQUIRED):
    return msgspec.structs.replace(pod(name, gpus, vfs, gpu_nic=gpu_nic), priority=priority)


def nominations_of(fleet):
    return Nominations(fleet, SystemClock(), Readings())


def place_id(switch):
    return inventory().pools[0].places[switch].id


def test_network_devices_of_pairs_are_kept_and_others_get_none_of_them():
    fleet = fleet_of(inventory(vfs=(1, 1, 0, 0)))
    bind(fleet, asks("low", 1, 1))
    kept = nominations_of(fleet)
    kept.nominate(asks("high", 2, 2, priority=10), "n", {"low"})
    other = asks("other", 1, 1)
    found = kept.held("n", other, POLICY)
    assert found.pools == {(VF, place_id(0)): 1, (VF, place_id(1)): 1}
    evaluator = Evaluator(fleet, POLICY)
    assert isinstance(evaluator.place("n", other), Placement), "but for the nominated pod it would fit"
    refused = evaluator.place("n", other, held=found)
    assert isinstance(refused, Refusal)
    assert refused.detail == "0 of the 1 pair that a container needs"
    fits = evaluator.place("n", asks("third", 1, 1, gpu_nic=PREFERRED), held=found)
    assert isinstance(fits, Placement)
    assert fits.pools == ()
    assert not kept.held("n", asks("higher", 1, 1, priority=11), POLICY), "it does not yield"


def test_two_nominated_pods_keep_devices_of_their_own():
    fleet = fleet_of(inventory(vfs=(2, 0, 0, 0)))
    kept = nominations_of(fleet)
    for name in ("one", "two"):
        kept.nominate(asks(name, 1, 1, priority=10), "n", ())
    found = kept.held("n", asks("p", 1, 1), POLICY)
    assert found.pools == {(VF, place_id(0)): 2}
    assert len(found.usage) == 2


def test_pairs_that_are_kept_draw_no_other_pod_to_the_node():
    fleet = fleet_of(inventory("a", vfs=(1, 0, 0, 0)), inventory("b", vfs=(1, 0, 0, 0)))
    kept, evaluator, asked = nominations_of(fleet), Evaluator(fleet, POLICY), asks("p", 1, 1, gpu_nic=PREFERRED)
    kept.nominate(asks("high", 1, 1, priority=10), "a", ())
    found = evaluator.evaluate(asked, ["a", "b"])
    assert (best(found), found.pairs) == ("a", {"a": 1, "b": 1})
    beside = without_kept_nodes(found, fleet, asked, POLICY, UNLIMITED, {"a": kept.held("a", asked, POLICY)})
    assert (best(beside), beside.fits) == ("b", ["a", "b"])
    assert beside.scores[1] - beside.scores[0] == pytest.approx(1000)
    unscored = evaluator.evaluate(asked, ["a", "b"], scored=False)
    again = without_kept_nodes(unscored, fleet, asked, POLICY, UNLIMITED, {"a": kept.held("a", asked, POLICY)})
    assert again.scores.tolist() == [0, 0]


def test_what_is_kept_adds_up():
    one = NominatedUsage(pools={("a", "x"): 1})
    assert (one + NominatedUsage(pools={("a", "x"): 2, ("b", "x"): 1})).pools == {("a", "x"): 3, ("b", "x"): 1}
    assert one and not NominatedUsage()
    node = fleet_of(inventory()).node("n")
    assert node.plus(NominatedUsage()) is node
    assert node.plus(one).plus(one).pools_taken == {("a", "x"): 2}


@pytest.mark.parametrize("seed", range((24, 400, 20_000)[tiers.TIER]))
def test_whatever_others_get_meanwhile_a_nominated_pod_gets_its_pairs(seed):
    """Others come while its victims go, each placed beside what is kept."""
    chance = random.Random(seed)
    fleet = fleet_of(inventory(vfs=[chance.choice((0, 1, 2)) for _ in range(4)]))
    victims = []
    for number in range(chance.randrange(1, 5)):
        request = asks(f"low-{number}", chance.choice((1, 2)), chance.choice((1, 2)), gpu_nic=PREFERRED)
        if isinstance(place(fleet.node("n"), request, POLICY), Placement):
            victims.append(bind(fleet, request).pod_uid)
    kept, gpus, vfs = nominations_of(fleet), chance.choice((1, 2, 3)), chance.choice((1, 2, 3))
    high = asks("high", gpus, vfs, priority=10)
    promised = place(fleet.without("n", victims), high, POLICY)
    if isinstance(promised, Refusal):
        return
    kept.nominate(high, "n", victims)
    for number in range(6):
        other = asks(f"other-{number}", chance.choice((1, 2)), 1, gpu_nic=chance.choice((REQUIRED, PREFERRED)))
        placed = Evaluator(fleet, POLICY).place("n", other, held=kept.held("n", other, POLICY))
        if isinstance(placed, Placement):
            fleet.ledger.reserve(to_grant(placed, other, fleet.node("n").inventory))
        if victims and chance.random() < 0.5:
            fleet.ledger.release(victims.pop())
    for uid in victims:
        fleet.ledger.release(uid)
    assert pairs(fleet, bind(fleet, high)) == min(gpus, vfs)
