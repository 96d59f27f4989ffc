"""The book: what it refuses, what it keeps, and that its sums are what a recount gives."""

from collections import defaultdict

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from tests.tiers import examples

from purser.core.fleet import Fleet
from purser.core.fleet.consistency import violations
from purser.core.fleet.live import LiveArrays
from purser.core.grant.quota import Demand
from purser.core.ledger import (
    NO_USAGE,
    DuplicateError,
    Ledger,
    LedgerError,
    OvercommitError,
    StateError,
    UnknownDeviceError,
    UnknownGrantError,
    Usage,
    find_overcommit,
    pod_usage,
)
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceMode,
    DeviceShare,
    Grant,
    GrantState,
    NodeInventory,
)

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


def device(uuid: str, memory: int = 1000, slots: int = 4) -> Device:
    return Device(uuid, int(uuid[1:]), "NVIDIA", memory, slots=slots)


def inventory(*uuids: str, node: str = "n") -> NodeInventory:
    return NodeInventory(node, tuple(device(uuid) for uuid in uuids))


def grant(uid: str, *shares: tuple[str, int, int], node: str = "n", kind: ContainerKind = APP) -> Grant:
    parts = tuple(DeviceShare(*share) for share in shares)
    return Grant(uid, "ns", f"pod-{uid}", node, (ContainerGrant("c", kind, parts),))


@pytest.fixture
def ledger() -> Ledger:
    book = Ledger()
    book.set_inventory(inventory("d0", "d1"))
    return book


@pytest.mark.parametrize(
    ("held", "asked", "problem"),
    [
        pytest.param(
            [("d0", 600, 0)],
            ("d0", 401, 0),
            "1001 MiB would be allocated, but the device has only 1000 MiB",
            id="memory",
        ),
        pytest.param([("d0", 1, 60)], ("d0", 1, 41), "101% of its compute would be allocated", id="compute"),
        pytest.param(
            [("d0", 1, 0)] * 4, ("d0", 1, 0), "slots would be allocated, but the device has only 4", id="slots"
        ),
        pytest.param([("d0", 1, 100)], ("d0", 1, 0), "one of them has exclusive use", id="joining a pod that is alone"),
        pytest.param(
            [("d0", 1, 0)], ("d0", 1, 100), "one of them has exclusive use", id="wanting to be alone beside others"
        ),
    ],
)
def test_a_reservation_beyond_the_device_is_refused_and_changes_nothing(
    ledger: Ledger, held: list[tuple[str, int, int]], asked: tuple[str, int, int], problem: str
) -> None:
    for i, share in enumerate(held):
        ledger.reserve(grant(f"held-{i}", share))
    before = dict(ledger.usage("n"))
    with pytest.raises(OvercommitError, match=problem):
        ledger.reserve(grant("new", asked))
    assert dict(ledger.usage("n")) == before
    assert ledger.grant("new") is None


def test_a_pod_holds_one_grant(ledger: Ledger) -> None:
    ledger.reserve(grant("a", ("d0", 1, 0)))
    with pytest.raises(DuplicateError):
        ledger.reserve(grant("a", ("d1", 1, 0)))


def test_a_device_that_the_node_does_not_have_is_refused(ledger: Ledger) -> None:
    with pytest.raises(UnknownDeviceError, match="no device d9"):
        ledger.reserve(grant("a", ("d9", 1, 0)))
    with pytest.raises(UnknownDeviceError):
        ledger.reserve(grant("a", ("d0", 1, 0), node="elsewhere"))


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((ContainerGrant("c", APP, (DeviceShare("d0", 1, 0), DeviceShare("d0", 1, 0))),), id="doubled"),
        pytest.param((ContainerGrant("c", APP, (DeviceShare("d0", -1, 0),)),), id="negative"),
        pytest.param(
            (
                ContainerGrant("a", APP, (DeviceShare("d0", 1, 100),)),
                ContainerGrant("b", APP, (DeviceShare("d0", 1, 0),)),
            ),
            id="alone, beside a container of its own pod",
        ),
    ],
)
def test_a_grant_that_contradicts_itself_is_refused(ledger: Ledger, parts: tuple[ContainerGrant, ...]) -> None:
    with pytest.raises(OvercommitError):
        ledger.reserve(Grant("a", "ns", "p", "n", parts))


def test_two_parts_of_a_device_that_is_divided_are_two_slots(ledger: Ledger) -> None:
    sliced = Device("d0", 0, "N", 1000, slots=4, replicas=4, mode=DeviceMode.TIME_SLICING)
    ledger.set_inventory(NodeInventory("n", (sliced,)))
    ledger.reserve(grant("a", ("d0", 250, 0), ("d0", 250, 0)))
    assert ledger.usage("n")["d0"] == Usage(2, 500, 0, pods=1)
    with pytest.raises(OvercommitError):
        ledger.reserve(grant("b", ("d0", 250, 0), ("d0", 250, 0), ("d0", 250, 0)))


def test_containers_that_run_one_after_another_may_each_be_alone(ledger: Ledger) -> None:
    alone = (DeviceShare("d0", 1000, 100),)
    ledger.reserve(Grant("a", "ns", "p", "n", (ContainerGrant("i", INIT, alone), ContainerGrant("c", APP, alone))))
    assert ledger.usage("n")["d0"] == Usage(1, 1000, 100, pods=1, exclusive=1)


def test_gpus_asked_by_number_count_like_gpus_asked_by_memory() -> None:
    """volcano-sh/volcano#3824: whole-card pods were dropped when a node was rebuilt, and their cards given twice."""
    fleet = Fleet()
    fleet.set_inventory(inventory("d0", "d1"))
    fleet.ledger.reserve(grant("by-number", ("d0", 1000, 100), ("d1", 1000, 100)))
    fleet.set_inventory(msgspec.structs.replace(inventory("d0", "d1"), driver_version="2"))
    with pytest.raises(OvercommitError):
        fleet.ledger.reserve(grant("by-memory", ("d0", 1, 0)))


def test_a_gpu_that_vanished_is_not_given_out_again_and_its_pods_stay_on_the_book() -> None:
    """volcano-sh/volcano PR 2215: after one of four cards was gone, the old highest index still looked idle."""
    fleet = Fleet()
    fleet.set_inventory(inventory("d0", "d1", "d2", "d3"))
    for i in range(3):
        fleet.ledger.reserve(grant(f"full-{i}", (f"d{i}", 1000, 0)))
    fleet.ledger.reserve(grant("on-the-lost-card", ("d3", 10, 0)))
    fleet.set_inventory(inventory("d0", "d1", "d2"))
    with pytest.raises(UnknownDeviceError):
        fleet.ledger.reserve(grant("new", ("d3", 1, 0)))
    assert [state.device.uuid for state in fleet.node("n").devices] == ["d0", "d1", "d2"]
    assert fleet.ledger.usage("n")["d3"].memory_mib == 10
    assert [v.uuid for v in fleet.ledger.violations()] == ["d3"]


def test_what_the_cluster_already_holds_is_adopted_and_reported(ledger: Ledger) -> None:
    ledger.adopt(grant("a", ("d0", 900, 0)))
    ledger.adopt(grant("b", ("d0", 900, 0)))
    (violation,) = ledger.violations()
    assert (violation.node, violation.uuid) == ("n", "d0")
    assert "1800 MiB would be allocated, but the device has only 1000 MiB" in violation.problem


def test_adopting_the_same_grant_again_only_moves_it_forward(ledger: Ledger) -> None:
    held = grant("a", ("d0", 900, 0))
    ledger.reserve(held)
    ledger.adopt(held, GrantState.RUNNING)
    ledger.adopt(held, GrantState.BOUND)
    assert ledger.state("a") is GrantState.RUNNING
    assert ledger.usage("n")["d0"].memory_mib == 900


def test_what_the_api_server_stores_replaces_what_was_reserved(ledger: Ledger) -> None:
    ledger.reserve(grant("a", ("d0", 900, 0)))
    ledger.adopt(grant("a", ("d1", 800, 0)))
    assert dict(ledger.usage("n")) == {"d1": Usage(1, 800, 0, pods=1)}


def test_a_grant_never_goes_backwards(ledger: Ledger) -> None:
    ledger.reserve(grant("a", ("d0", 1, 0)))
    ledger.advance("a", GrantState.ALLOCATED)
    with pytest.raises(StateError):
        ledger.advance("a", GrantState.BOUND)
    with pytest.raises(UnknownGrantError):
        ledger.advance("nobody", GrantState.BOUND)
    with pytest.raises(UnknownGrantError):
        ledger.advance("a", GrantState.RUNNING, container="nobody")


def test_a_pod_is_as_far_as_its_least_advanced_container(ledger: Ledger) -> None:
    share = (DeviceShare("d0", 1, 0),)
    ledger.reserve(Grant("a", "ns", "p", "n", (ContainerGrant("x", APP, share), ContainerGrant("y", APP, share))))
    ledger.advance("a", GrantState.BOUND)
    ledger.advance("a", GrantState.ALLOCATED, container="x")
    assert (ledger.state("a"), ledger.state("a", "x")) == (GrantState.BOUND, GrantState.ALLOCATED)
    ledger.advance("a", GrantState.ALLOCATED, container="y")
    assert ledger.state("a") is GrantState.ALLOCATED


def test_release_is_idempotent_and_leaves_nothing(ledger: Ledger) -> None:
    held = grant("a", ("d0", 1, 0))
    ledger.reserve(held)
    assert ledger.release("a") == held
    assert ledger.release("a") is None
    assert (dict(ledger.usage("n")), list(ledger.grants()), ledger.namespace_usage("ns")) == ({}, [], Demand())


def test_a_pod_that_uses_nothing_of_a_quota_is_released_after_the_others(ledger: Ledger) -> None:
    ledger.reserve(grant("a", ("d0", 0, 0)))
    ledger.reserve(grant("b", ("d1", 500, 0)))
    ledger.release("b")
    assert ledger.release("a") is not None
    assert ledger.namespace_usage("ns") == Demand()


def test_released_as_a_state_releases(ledger: Ledger) -> None:
    ledger.reserve(grant("a", ("d0", 1, 0)))
    ledger.advance("a", GrantState.RELEASED)
    assert ledger.grant("a") is None


NODES, UUIDS, UIDS = ("n", "m"), ("d0", "d1", "d2"), tuple("abcdefgh")
shares = st.builds(DeviceShare, st.sampled_from(UUIDS), st.integers(0, 1000), st.sampled_from((0, 10, 50, 100)))
parts = st.lists(
    st.builds(
        ContainerGrant,
        st.sampled_from(("x", "y", "z")),
        st.sampled_from(ContainerKind),
        st.lists(shares, min_size=1, max_size=2, unique_by=lambda share: share.uuid).map(tuple),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda part: part.container,
)
grants = st.builds(Grant, st.sampled_from(UIDS), st.just("ns"), st.just("p"), st.sampled_from(NODES), parts.map(tuple))
inventories = st.builds(
    lambda node, uuids: inventory(*sorted(uuids), node=node),
    st.sampled_from(NODES),
    st.sets(st.sampled_from(UUIDS)),
)


class Book(RuleBasedStateMachine):
    """Any history of a book: it never overcommits by its own reservations, and its sums are a recount's."""

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.ledger = self.fleet.ledger
        self.live = LiveArrays(self.fleet)
        self.inventories: dict[str, NodeInventory] = {}

    @rule(new=inventories)
    def inventory_changes(self, new: NodeInventory) -> None:
        self.fleet.set_inventory(new)
        self.inventories[new.node] = new

    @rule(node=st.sampled_from(NODES))
    def node_goes(self, node: str) -> None:
        self.fleet.remove_node(node)
        self.inventories.pop(node, None)

    @rule(target=known, new=grants)
    def reserve(self, new: Grant) -> str:
        before = {v.uuid for v in self.ledger.violations(new.node)}
        try:
            self.ledger.reserve(new)
        except LedgerError:
            return new.pod_uid
        assert {v.uuid for v in self.ledger.violations(new.node)} <= before
        assert before.isdisjoint(pod_usage(new))
        return new.pod_uid

    @rule(target=known, new=grants, state=st.sampled_from((GrantState.BOUND, GrantState.RUNNING)))
    def adopt(self, new: Grant, state: GrantState) -> str:
        self.ledger.adopt(new, state)
        return new.pod_uid

    @rule(uid=known)
    def bind(self, uid: str) -> None:
        before = self.ledger.state(uid)
        try:
            self.ledger.advance(uid, GrantState.BOUND)
        except LedgerError:
            assert before in (None, GrantState.RUNNING)

    @rule(uid=consumes(known))
    def release(self, uid: str) -> None:
        self.ledger.release(uid)
        assert self.ledger.state(uid) is None

    @invariant()
    def everything_is_a_recount(self) -> None:
        assert violations(self.fleet, self.live) == ()
        assert self.fleet.names() == sorted(self.inventories)

    @invariant()
    def what_is_overcommitted_is_reported(self) -> None:
        for name in self.inventories:
            reported = {violation.uuid for violation in self.ledger.violations(name)}
            for state in self.fleet.node(name).devices:
                over = find_overcommit(state.device, self.ledger.usage(name).get(state.device.uuid, NO_USAGE))
                assert bool(over) == (state.device.uuid in reported)

    @invariant()
    def equal_states_share_a_class(self) -> None:
        by_key = defaultdict(set)
        for state in self.fleet:
            by_key[state.key].add(self.fleet.classes().get(state.name))
        assert all(len(numbers) == 1 for numbers in by_key.values())
        assert len({n for numbers in by_key.values() for n in numbers}) == len(by_key)


Book.TestCase.settings = examples(25, stateful_step_count=30)
TestAnyHistory = Book.TestCase
