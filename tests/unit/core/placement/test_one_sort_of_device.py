"""No container gets MIG devices and whole GPUs together, whatever a node lists under one name; and of GPUs that are cut
on demand several instances only if it asks for MIG devices."""

from collections.abc import Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.core.placement.test_instances import asks, gpu, pod

from purser.core.fleet import Fleet
from purser.core.ledger import OvercommitError
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceMode,
    DeviceRequest,
    DeviceShare,
    Grant,
    MigPlacement,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Evaluator, Placement, PolicySettings, Refusal, explain
from purser.core.placement.granted import to_grant
from purser.core.placement.place import place
from purser.core.placement.preemption import Occupant, least

SMALL = "nvidia.com/mig-1g.5gb"
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


def whole(uuid: str, index: int, resource: str = "nvidia.com/gpu") -> Device:
    return Device(uuid, index, "A100", 40960, slots=10, resource=resource)


def listed(uuid: str, index: int, resource: str = "nvidia.com/gpu") -> Device:
    return Device(uuid, index, "A100", 4864, mode=DeviceMode.MIG, resource=resource, parent=f"of-{uuid}")


def divided(uuid: str, index: int, parent: str = "") -> Device:
    memory = 4864 if parent else 40960
    return Device(uuid, index, "A100", memory, slots=4, replicas=4, mode=DeviceMode.TIME_SLICING, parent=parent)


SORTS = {
    "whole": whole,
    "cut": gpu,
    "single": listed,
    "mixed": lambda uuid, at: listed(uuid, at, SMALL),
    "misnamed": lambda uuid, at: whole(uuid, at, SMALL),
    "parts": divided,
    "parts of a MIG device": lambda uuid, at: divided(uuid, at, f"of-{uuid}"),
}
ASKS = {
    "1": asks(),
    "2": asks(2),
    "3": asks(3),
    "shares": asks(2, memory=4000),
    "share": asks(memory=4000),
    "profile": asks(resource=SMALL),
    "profiles": asks(3, SMALL),
    "by mode": DeviceRequest(2, memory_mib=4000, modes_allowed=(DeviceMode.MIG,)),
}


def nodes(sorts: Sequence[Sequence[str]]) -> list[NodeInventory]:
    return [
        NodeInventory(f"n{number}", tuple(SORTS[sort](f"n{number}-{at}", at) for at, sort in enumerate(each)))
        for number, each in enumerate(sorts)
    ]


def is_mig(device: Device) -> bool:
    return bool(device.mig_kind or device.parent)


def assert_of_one_sort(part: ContainerGrant, asked: DeviceRequest, devices: dict[str, Device]) -> None:
    assert len({is_mig(devices[uuid]) for uuid in part.uuids}) == 1
    cut = [share for share in part.shares if share.mig is not None]
    assert len(cut) < 2 or asked.resource == SMALL or asked.modes_allowed


def room(states: Sequence[tuple[Device, int]], asked: DeviceRequest) -> int:
    """Of an empty node, the most devices or parts of one sort that a container can have; it knows of no profile that
    is larger than the smallest."""
    most = {True: 0, False: 0}
    for device, instances in states:
        if device.mig_kind:
            fits = asked.resource == SMALL or asked.count == 1 or bool(asked.modes_allowed)
            most[True] += instances * fits
        elif device.resource == asked.resource and (not asked.modes_allowed or device.mode is DeviceMode.MIG):
            most[is_mig(device)] += device.replicas if asked.is_plain else device.replicas == 1
    return max(most.values())


PARTS = st.lists(
    st.tuples(st.sampled_from(sorted(ASKS)), st.sampled_from([APP, INIT, SIDECAR])), min_size=1, max_size=3
)


@pytest.mark.gate
@examples(300)
@given(
    st.lists(st.lists(st.sampled_from(sorted(SORTS)), min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(PARTS, min_size=1, max_size=8),
    st.sampled_from(["purser", "binpack", "spread", "topology-aware"]),
)
def test_no_grant_of_a_container_mixes(
    sorts: list[list[str]], pods: list[list[tuple[str, ContainerKind]]], policy: str
) -> None:
    inventories = nodes(sorts)
    devices = {device.uuid: device for each in inventories for device in each.devices}
    fleet = Fleet()
    for each in inventories:
        fleet.set_inventory(each)
    settings = PolicySettings(gpu=(policy,)) if policy == "topology-aware" else PolicySettings(policy)
    evaluator = Evaluator(fleet, settings)
    for number, parts in enumerate(pods):
        request = pod(f"p{number}", *(ASKS[word] for word, _ in parts), kinds=[kind for _, kind in parts])
        found = evaluator.evaluate(request, [each.node for each in inventories])
        for each in inventories:
            placed = evaluator.place(each.node, request)
            assert isinstance(placed, Placement) or each.node not in found.fits
            if isinstance(placed, Refusal):
                assert explain(found.refusals, request, fleet)
                continue
            grant = to_grant(placed, request, each)
            for part, asked in zip(grant.containers, request.containers, strict=True):
                assert_of_one_sort(part, asked.devices, devices)
            fleet.ledger.reserve(grant)
            event("placed")
            break
    assert not fleet.ledger.violations()


@examples(200)
@given(
    st.lists(st.sampled_from(sorted(SORTS)), min_size=1, max_size=6),
    st.sampled_from(["1", "2", "3", "profile", "profiles"]),
)
def test_an_empty_node_is_refused_only_where_no_sort_has_enough(sorts: list[str], word: str) -> None:
    (inventory,) = nodes([sorts])
    asked = ASKS[word]
    per_gpu = 1 if asked.resource != SMALL else 7
    fits = room([(device, per_gpu) for device in inventory.devices], asked) >= asked.count
    fleet = Fleet()
    fleet.set_inventory(inventory)
    request = pod("p", asked)
    evaluator = Evaluator(fleet)
    assert evaluator.evaluate(request, ["n0"]).fits == ["n0"] * fits
    assert isinstance(evaluator.place("n0", request), Placement) is fits


@pytest.mark.parametrize(
    "sorts", [["cut", "whole", "whole"], ["whole", "single", "single"], ["single", "whole", "whole"]], ids=" ".join
)
@pytest.mark.parametrize("words", [["1", "2"], ["2", "1"]], ids=" then ".join)
def test_a_container_that_wants_one_leaves_the_other_sort_to_one_that_wants_two(
    sorts: list[str], words: list[str]
) -> None:
    (inventory,) = nodes([sorts])
    fleet = Fleet()
    fleet.set_inventory(inventory)
    request = pod("p", *(ASKS[word] for word in words))
    assert Evaluator(fleet).evaluate(request, ["n0"]).fits == ["n0"]
    assert isinstance(Evaluator(fleet).place("n0", request), Placement)


def test_preemption_makes_no_room_by_mixing() -> None:
    """Four pods on whole GPUs leave for two GPUs; none leaves where only an instance would be the second."""
    for sorts, gone in ((["cut", "cut", "whole", "whole"], ["p2", "p3"]), (["cut", "cut", "whole"], None)):
        (inventory,) = nodes([sorts])
        fleet = Fleet()
        fleet.set_inventory(inventory)
        for at, device in enumerate(inventory.devices):
            mig = MigPlacement("7g.40gb", 0) if device.mig_kind else None
            share = DeviceShare(device.uuid, 40192, 100, mig)
            fleet.ledger.reserve(Grant(f"p{at}", "ns", f"p{at}", "n0", (ContainerGrant("c", APP, (share,)),)))
        request = pod("p", asks(2))
        lower = [Occupant(f"p{at}") for at in range(len(sorts))]

        def fits(gone: frozenset[str], fleet: Fleet = fleet, request: PodRequest = request) -> bool:
            state = fleet.without("n0", gone)
            return state is not None and isinstance(place(state, request), Placement)

        victims = least("n0", lower, fits)
        assert (victims and sorted(victims.uids)) == gone
        assert Evaluator(fleet).evaluate(request, ["n0"]).refusals["n0"].resolvable is bool(gone)


@pytest.mark.parametrize(
    ("sorts", "word", "said"),
    [
        (
            ["cut", "cut", "whole"],
            "2",
            "2 GPUs on 1 node do not match the pod's request: 2 whole GPUs for one container, but on GPUs in MIG mode "
            "a container gets one GPU instance, or several if it asks for MIG devices by name, such as "
            "nvidia.com/mig-1g.5gb",
        ),
        (
            ["whole", "single"],
            "2",
            "2 GPUs on 1 node are available, but 2 whole GPUs or 2 MIG devices are needed on one node, because no "
            "container can have both",
        ),
    ],
)
def test_a_refusal_names_the_cause_and_what_to_do(sorts: list[str], word: str, said: str) -> None:
    (inventory,) = nodes([sorts])
    fleet = Fleet()
    fleet.set_inventory(inventory)
    request = pod("p", ASKS[word])
    assert said in explain(Evaluator(fleet).evaluate(request, ["n0"]).refusals, request, fleet)


@pytest.mark.parametrize(("allowed", "named"), [(("A100",), False), (("H100",), True)])
def test_models_are_named_only_where_they_are_in_the_way(allowed: tuple[str, ...], named: bool) -> None:
    (inventory,) = nodes([["cut", "cut", "whole"]])
    fleet = Fleet()
    fleet.set_inventory(inventory)
    request = pod("p", DeviceRequest(2, memory_percent=100, cores_percent=100, models_allowed=allowed))
    said = explain(Evaluator(fleet).evaluate(request, ["n0"]).refusals, request, fleet)
    assert ("a model with" in said) is named


def test_the_ledger_refuses_a_grant_that_mixes() -> None:
    (inventory,) = nodes([["whole", "single", "cut"]])
    fleet = Fleet()
    fleet.set_inventory(inventory)
    uuids = [device.uuid for device in inventory.devices]
    shares = [DeviceShare(uuids[0], 40960, 100), DeviceShare(uuids[1], 4864, 100)]
    instance = DeviceShare(uuids[2], 40192, 100, MigPlacement("7g.40gb", 0))
    for mixed in (shares, [shares[0], instance]):
        with pytest.raises(OvercommitError, match="container c holds both whole GPUs and MIG devices"):
            fleet.ledger.reserve(Grant("p", "ns", "p", "n0", (ContainerGrant("c", APP, tuple(mixed)),)))
    parts = tuple(ContainerGrant(f"c{at}", APP, (share,)) for at, share in enumerate([*shares, instance]))
    fleet.ledger.reserve(Grant("p", "ns", "p", "n0", parts))  # each container has one sort
