"""GPUs that are cut on demand: instances never overlap and never leak, whatever comes and goes, and what is refused has
no place by any legal geometry."""

import importlib.util
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.fleet import Fleet, rule
from purser.core.fleet.arrays import Model as GpuModel
from purser.core.fleet.totals import GpuUse, gpu_use
from purser.core.ledger import OvercommitError
from purser.core.mig import MIG_KINDS, MigKind, MigPlacement, MigProfile
from purser.core.mig.choice import chooser
from purser.core.mig.on_demand import profile_for
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceMode,
    DeviceRequest,
    DeviceShare,
    Enforcement,
    Grant,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Evaluator, Placement, PolicySettings, Refusal, explain, kernels
from purser.core.placement.granted import to_grant
from purser.core.placement.place import place
from purser.core.placement.shape import columns_of, demand_of, largest_shape, need_of

A100, A30 = MIG_KINDS["A100-40GB"], MIG_KINDS["A30"]
GPU = "nvidia.com/gpu"
SIZES = {"A100-40GB": 40960, "A30": 24576}


def gpu(uuid: str, index: int, kind: str = "A100-40GB", held: Sequence[MigPlacement] = ()) -> Device:
    return Device(
        uuid,
        index,
        kind,
        SIZES[kind],
        slots=7,
        mode=DeviceMode.MIG,
        enforcement=Enforcement.MIG,
        mig_kind=kind,
        mig_held=tuple(held),
    )


def node(name: str, *kinds: str, held: Sequence[MigPlacement] = ()) -> NodeInventory:
    return NodeInventory(name, tuple(gpu(f"{name}-{at}", at, kind, held) for at, kind in enumerate(kinds)))


def asks(  # type: ignore[no-untyped-def]
    count: int = 1,
    resource: str = GPU,
    *,
    memory: int | None = None,
    percent: int | None = None,
    cores: int = 0,
    liked=(),
    by_mode=False,
):
    if memory is None and percent is None:
        percent, cores = 100, cores or 100
    amounts = {"memory_mib": memory, "memory_percent": percent, "cores_percent": cores}
    modes = (DeviceMode.MIG,) if by_mode else ()
    return DeviceRequest(count, **amounts, resource=resource, mig_profiles=liked, modes_allowed=modes)


def pod(uid: str, *parts: DeviceRequest, kinds: Sequence[ContainerKind] = ()) -> PodRequest:
    kinds = kinds or [ContainerKind.APP] * len(parts)
    containers = (
        ContainerRequest(f"c{at}", kind, part) for at, (part, kind) in enumerate(zip(parts, kinds, strict=True))
    )
    return PodRequest(uid, "ns", uid, tuple(containers))


ASKS = (
    asks(),
    asks(2),
    asks(memory=4000),
    asks(memory=9000),
    asks(2, memory=9000, cores=25, by_mode=True),
    asks(percent=50),
    asks(memory=4000, cores=50),
    asks(memory=30000),
    asks(memory=41000),
    asks(resource="nvidia.com/mig-1g.5gb"),
    asks(3, "nvidia.com/mig-1g.5gb"),
    asks(resource="nvidia.com/mig-1g.5gb.me"),
    asks(2, "nvidia.com/mig-2g.10gb"),
    asks(2, "nvidia.com/mig-3g.20gb"),
    asks(resource="nvidia.com/mig-2g.12gb"),
    asks(memory=4000, liked=("4g", "2g.12gb")),
)


class Model:
    """What lies where, as sets of slices; it knows nothing of masks, tables or choices."""

    def __init__(self, inventories: Sequence[NodeInventory]) -> None:
        self.devices = {device.uuid: device for each in inventories for device in each.devices}
        self.taken = {
            uuid: {piece for held in device.mig_held for piece in pieces(MIG_KINDS[device.mig_kind], held)}
            for uuid, device in self.devices.items()
        }

    def most(self, uuid: str, asked: DeviceRequest) -> int:
        """How many instances a container can have of a GPU."""
        kind = MIG_KINDS[self.devices[uuid].mig_kind]
        profile = wanted(kind, asked)
        if profile is None or (asked.count > 1 and asked.resource == GPU and not asked.modes_allowed):
            return 0
        return most(kind, profile, frozenset(self.taken[uuid]))

    def add(self, grant: Grant) -> None:
        for uuid, placement in instances(grant):
            each = pieces(MIG_KINDS[self.devices[uuid].mig_kind], placement)
            assert not each & self.taken[uuid]
            self.taken[uuid] |= each

    def remove(self, grant: Grant) -> None:
        for uuid, placement in instances(grant):
            self.taken[uuid] -= pieces(MIG_KINDS[self.devices[uuid].mig_kind], placement)


@lru_cache(None)
def most(kind: MigKind, profile: MigProfile, taken: frozenset[object]) -> int:
    """By trying all."""
    there = (pieces(kind, MigPlacement(profile.name, start)) for start in profile.starts)
    return max((1 + most(kind, profile, taken | each) for each in there if not each & taken), default=0)


def instances(grant: Grant) -> Iterator[tuple[str, MigPlacement]]:
    for part in grant.containers:
        for share in part.shares:
            assert share.mig is not None
            yield share.uuid, share.mig


def pieces(kind: MigKind, placement: MigPlacement) -> frozenset[object]:
    profile = kind.profile(placement.profile)
    assert profile is not None and placement.start in profile.starts
    slices = range(placement.start, placement.start + profile.memory_slices)
    return frozenset([*slices, *(["media"] if profile.takes_media else [])])


def wanted(kind: MigKind, asked: DeviceRequest) -> MigProfile | None:
    amounts = asked.memory_mib or 0, asked.memory_percent or 0, asked.cores_percent
    return profile_for(kind.name, asked.resource, *amounts, asked.mig_profiles)


HELD = st.sampled_from([(), (), (MigPlacement("1g.5gb", 2),)])
STEPS = st.lists(st.tuples(st.integers(0, len(ASKS) - 1), st.booleans()), min_size=10, max_size=25)


@examples(60, most=1000)
@given(st.lists(st.tuples(st.integers(0, 3), HELD), min_size=1, max_size=3), STEPS, st.randoms(use_true_random=False))
def test_what_comes_and_goes_never_overlaps_and_never_leaks(nodes, steps, chance) -> None:  # type: ignore[no-untyped-def]
    """``--hypothesis-show-statistics`` says what was placed, how often, and how full GPUs became."""
    inventories = [
        NodeInventory(f"n{at}", (*node(f"n{at}", *["A100-40GB"] * count, held=held).devices, gpu(f"n{at}-x", 9, "A30")))
        for at, (count, held) in enumerate(nodes)
    ]
    fleet, model = Fleet(), Model(inventories)
    for each in inventories:
        fleet.set_inventory(each)
    evaluator, running = Evaluator(fleet), []
    names = [each.node for each in inventories]
    for number, (which, leaves) in enumerate(steps):
        if leaves and running:
            gone = running.pop(chance.randrange(len(running)))
            model.remove(gone)
            assert fleet.ledger.release(gone.pod_uid) == gone
        request = pod(f"p{number}", ASKS[which])
        found = evaluator.evaluate(request, names)
        assert_kernels_agree(evaluator, request)
        room = {each.node: [model.most(device.uuid, ASKS[which]) for device in each.devices] for each in inventories}
        assert found.fits == [name for name in names if sum(room[name]) >= ASKS[which].count]
        if not found.fits:
            event("refused", resource_of(request))
            continue
        best = found.fits[int(found.scores.argmax())]
        placed = evaluator.place(best, request)
        assert isinstance(placed, Placement)
        if ASKS[which].count == 1:
            assert_is_best(fleet, placed, ASKS[which])
        grant = to_grant(placed, request, next(each for each in inventories if each.node == best))
        assert grant.containers[0].enforcement is Enforcement.MIG
        fleet.ledger.reserve(grant)
        model.add(grant)
        running.append(grant)
        for uuid, placement in instances(grant):
            event("placed", f"{model.devices[uuid].mig_kind} {placement.profile}")
        assert not fleet.ledger.violations()
    event("most taken of a GPU, in pieces", max(len(taken) for taken in model.taken.values()))
    for grant in running:
        fleet.ledger.release(grant.pod_uid)
    assert all(state.usage.instances == () and state.usage.slots == 0 for each in fleet for state in each.devices)


def resource_of(request: PodRequest) -> str:
    return request.containers[0].devices.resource


def assert_kernels_agree(evaluator: Evaluator, request: PodRequest) -> None:
    arrays = evaluator._live.arrays
    asked = columns_of(arrays), arrays.live.nonzero()[0], demand_of(largest_shape(request), arrays.models)
    if importlib.util.find_spec("numba") is not None:
        for one, other in zip(kernels.choose("numba", True).look(*asked), rule.look(*asked), strict=True):
            assert (one == other).all()


def assert_is_best(fleet: Fleet, placed: Placement, asked: DeviceRequest) -> None:
    """Least room lost, of equals the fullest; and where on the GPU the next requests get the most."""
    share = placed.containers[0].shares[0]
    found = {}
    for each in fleet:
        for state in each.devices:
            kind = MIG_KINDS[state.device.mig_kind]
            if (profile := wanted(kind, asked)) is None:
                continue
            loss = chooser(kind).loss(profile.name, state.mig_mask)
            if loss is not None:
                found[state.device.uuid] = (round(loss, 6), -state.mig_mask.bit_count())
                if state.device.uuid == share.uuid:
                    assert share.mig == chooser(kind).choose(profile.name, state.mig_mask)
                    assert share.memory_mib == profile.memory_mib
    assert found[share.uuid] == min(found.values())


@pytest.mark.parametrize(
    ("asked", "profile"),
    [
        (asks(), "7g.40gb"),
        (asks(memory=1), "1g.5gb"),
        (asks(memory=4865), "1g.10gb"),
        (asks(memory=4864, cores=15), "2g.10gb"),
        (asks(percent=12, cores=14), "1g.5gb"),
        (asks(percent=50), "3g.20gb"),
        (asks(percent=51), "7g.40gb"),
        (asks(memory=100, cores=50), "4g.20gb"),
        (asks(memory=40193), None),
        (asks(resource="nvidia.com/mig-1g.5gb.me"), "1g.5gb+me"),
        (asks(resource="nvidia.com/mig-4g.24gb"), None),
        (asks(memory=8000, liked=("4g",)), "4g.20gb"),
        (asks(memory=8000, liked=("4g.24gb", "1g.5gb", "1g", "3g")), "1g.10gb"),
        (asks(memory=8000, cores=20, liked=("1g.5gb+me", "1g")), "2g.10gb"),
        (asks(liked=("1g",)), "7g.40gb"),
    ],
)
def test_a_request_gets_the_smallest_profile_that_has_what_it_asks_for(
    asked: DeviceRequest, profile: str | None
) -> None:
    found = wanted(A100, asked)
    assert (found and found.name) == profile


APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
SMALL, HALF, WHOLE = asks(memory=4000), asks(percent=50), asks()
NAMED = [asks(resource=f"nvidia.com/mig-{profile}") for profile in ("1g.5gb", "3g.20gb", "7g.40gb")]


@pytest.mark.parametrize(
    ("containers", "profiles", "taken"),
    [
        ([(INIT, WHOLE), (APP, SMALL)], "7g 7g", 8),
        ([(INIT, SMALL), (APP, HALF)], "3g 3g", 4),
        ([(INIT, HALF), (INIT, SMALL), (SIDECAR, SMALL), (APP, SMALL)], "3g 3g 3g 1g", 5),
        ([(INIT, asks(memory=8000)), (APP, asks(memory=4000, cores=40))], "3g 3g", 4),
        ([(INIT, SMALL), (APP, asks(2, memory=9000, cores=20, by_mode=True))], "2g 2g 2g", 4),
        ([(INIT, HALF), (APP, asks(2, memory=4000, by_mode=True))], "3g 1g 1g", 6),
        ([(INIT, NAMED[1]), (APP, NAMED[0])], "3g 1g", 5),
    ],
)
def test_containers_after_init_containers_share_an_instance_that_is_large_enough_for_all(
    containers: list[tuple[ContainerKind, DeviceRequest]], profiles: str, taken: int
) -> None:
    """As kubelet hands the GPU on, and starts no container before it has the answers for all."""
    fleet = Fleet()
    fleet.set_inventory(inventory := node("n", "A100-40GB"))
    request = pod("p", *(asked for _, asked in containers), kinds=[kind for kind, _ in containers])
    placed = Evaluator(fleet).place("n", request)
    assert isinstance(placed, Placement)
    shares = [share for part in placed.containers for share in part.shares]
    found = [A100.profile(share.mig.profile) for share in shares if share.mig]
    assert " ".join(each.name.partition(".")[0] for each in found if each) == profiles
    assert [share.memory_mib for share in shares] == [each.memory_mib for each in found if each]
    fleet.ledger.reserve(to_grant(placed, request, inventory))
    assert fleet.node("n").devices[0].mig_mask.bit_count() == taken  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("gpus", "containers", "said"),
    [
        (1, [(INIT, SMALL), (APP, WHOLE)], "no room for 7g.40gb (GPU 0: 1g.5gb at 6)"),
        (1, [(INIT, WHOLE), (APP, SMALL)], "no room for 7g.40gb (GPU 0: 1g.5gb at 6)"),
        (
            2,
            [(INIT, WHOLE), (APP, asks(2, memory=4000, by_mode=True))],
            "no room for 1g.5gb in addition to what the pod's other containers",
        ),
        (1, [(INIT, NAMED[1]), (APP, NAMED[2])], "no room for 7g.40gb (GPU"),
        (
            2,
            [(INIT, NAMED[2]), (APP, NAMED[2]), (APP, NAMED[1]), (APP, NAMED[1])],
            "3g.20gb in addition to what the pod's",
        ),
    ],
)
def test_a_pod_whose_containers_find_no_room_together_is_refused_for_the_one_that_needs_it(
    gpus: int, containers: list[tuple[ContainerKind, DeviceRequest]], said: str
) -> None:
    fleet = Fleet()
    fleet.set_inventory(node("n", *["A100-40GB"] * gpus))
    fleet.ledger.reserve(grant("a", MigPlacement("1g.5gb", 6)))
    request = pod("p", *(asked for _, asked in containers), kinds=[kind for kind, _ in containers])
    refusals = Evaluator(fleet).evaluate(request, ["n"]).refusals
    assert said in explain(refusals, request, fleet)


def test_an_instance_that_is_listed_by_itself_comes_before_one_that_is_made() -> None:
    listed = Device("mig", 1, "A100", 4864, mode=DeviceMode.MIG, resource="nvidia.com/mig-1g.5gb", parent="other")
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", (gpu("gpu", 0), listed)))
    request = pod("p", asks(2, "nvidia.com/mig-1g.5gb"))
    placed = Evaluator(fleet).place("n", request)
    assert isinstance(placed, Placement)
    assert [share.uuid for share in placed.containers[0].shares] == ["mig", "gpu"]


def test_a_refusal_says_what_is_in_the_way_of_which_profile() -> None:
    fleet = Fleet()
    fleet.set_inventory(node("n", "A100-40GB", held=[MigPlacement("1g.5gb", 2)]))
    fleet.ledger.reserve(grant("a", MigPlacement("3g.20gb", 4)))
    request = pod("p", asks(resource="nvidia.com/mig-3g.20gb"))
    found = Evaluator(fleet).evaluate(request, ["n"])
    assert explain(found.refusals, request, fleet) == (
        "node(s) had no suitable GPU: 1 GPU on 1 node has no room for 3g.20gb"
        " (GPU 0: 3g.20gb at 4, 1g.5gb at 2 (not held by a pod))"
    )
    assert found.refusals["n"].resolvable
    whole = Evaluator(fleet).evaluate(pod("p", asks(resource="nvidia.com/mig-7g.40gb")), ["n"])
    assert not whole.refusals["n"].resolvable  # the administrator's instance stays
    larger = pod("p", asks(memory=50000))
    refusals = Evaluator(fleet).evaluate(larger, ["n"]).refusals
    assert "a GPU instance larger than the GPU's largest MIG profile" in explain(refusals, larger, fleet)


def grant(uid: str, placement: MigPlacement | None) -> Grant:
    part = ContainerGrant("c", ContainerKind.APP, (DeviceShare("n-0", 19968, 42, placement),))
    return Grant(uid, "ns", uid, "n", (part,))


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        (MigPlacement("4g.20gb", 0), "4g.20gb at 0 overlaps with 1g.5gb at 2"),
        (MigPlacement("1g.5gb", 2), "1g.5gb at 2 overlaps"),
        (MigPlacement("3g.20gb", 1), "begins at 0, 4, not at 1"),
        (MigPlacement("2g.12gb", 0), "has no profile 2g.12gb"),
        (None, "does not name one of its instances"),
    ],
)
def test_the_book_refuses_what_overlaps_or_names_no_place(placement: MigPlacement | None, problem: str) -> None:
    fleet = Fleet()
    fleet.set_inventory(node("n", "A100-40GB", held=[MigPlacement("1g.5gb", 2)]))
    fleet.ledger.reserve(grant("a", MigPlacement("3g.20gb", 4)))
    with pytest.raises(OvercommitError, match=problem):
        fleet.ledger.reserve(grant("b", placement))
    fleet.ledger.adopt(grant("b", placement))  # another scheduler's
    assert problem in fleet.ledger.violations()[0].problem
    fleet.ledger.release("b")
    assert not fleet.ledger.violations()


def test_preemption_counts_the_places_that_victims_leave() -> None:
    fleet = Fleet()
    fleet.set_inventory(inventory := node("n", "A100-40GB"))
    for uid, start in (("a", 0), ("b", 4)):
        fleet.ledger.reserve(grant(uid, MigPlacement("3g.20gb", start)))
    request = pod("p", asks(resource="nvidia.com/mig-4g.20gb"))
    refused = Evaluator(fleet).evaluate(request, ["n"])
    assert refused.refusals["n"].resolvable
    without = {uid: fleet.without("n", {uid}) for uid in "ab"}
    assert isinstance(place(without["b"], request), Refusal)
    placed = place(without["a"], request)
    assert isinstance(placed, Placement)
    assert to_grant(placed, request, inventory).containers[0].shares[0].mig == MigPlacement("4g.20gb", 0)


def test_all_policies_and_both_kernels_choose_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    has_numba = importlib.util.find_spec("numba") is not None
    for policy in ("purser", "binpack", "spread", "fragmentation"):
        for kernel in ("numpy", "numba" if has_numba else ""):
            monkeypatch.setattr(kernels, "used", kernels.choose(kernel, has_numba))
            fleet = Fleet()
            for name, starts in (("a", (0,)), ("b", (0, 1)), ("c", ())):
                fleet.set_inventory(node(name, "A100-40GB"))
                for start in starts:
                    share = DeviceShare(f"{name}-0", 4864, 14, MigPlacement("1g.5gb", start))
                    part = ContainerGrant("c", ContainerKind.APP, (share,))
                    fleet.ledger.reserve(Grant(f"{name}{start}", "ns", f"{name}{start}", name, (part,)))
            evaluator = Evaluator(fleet, PolicySettings(policy))
            scores = [
                tuple(evaluator.evaluate(pod("p", asked), ["a", "b", "c"]).scores) for asked in (ASKS[0], *ASKS[9:13])
            ]
            found.add(tuple(scores))
    assert len(found) == 1


def test_a_gpu_is_full_once_no_instance_has_a_place_and_typical_pods_know_what_must_be_left() -> None:
    fleet = Fleet()
    fleet.set_inventory(node("n", "A100-40GB"))
    use = lambda: gpu_use(fleet.node("n").devices[0])  # noqa: E731
    assert use() is GpuUse.IDLE
    fleet.ledger.reserve(grant("a", MigPlacement("3g.20gb", 0)))
    assert use() is GpuUse.SHARED
    fleet.ledger.reserve(grant("b", MigPlacement("3g.20gb", 4)))
    assert use() is GpuUse.FULL
    model, tables = GpuModel("A100", 40960, mig_kind="A100-40GB"), chooser(A100)
    shape = largest_shape(pod("p", asks(resource="nvidia.com/mig-1g.5gb")))
    assert 0 < need_of(shape, model) <= tables.left_milli[0b0111_1111 - 1]
    assert need_of(largest_shape(pod("p", asks())), model) == 1000


def test_gpus_that_are_not_cut_are_preferred_by_the_policy_beside_those_that_are() -> None:
    whole = [Device(f"whole-{at}", at, "A100", 40960, slots=10) for at in (5, 6)]
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", (*(gpu(f"gpu-{at}", at) for at in range(5)), *whole)))
    for used in (0, 20000):
        if used:
            part = ContainerGrant("c", ContainerKind.APP, (DeviceShare("whole-6", used, 0),))
            fleet.ledger.reserve(Grant("other", "ns", "other", "n", (part,)))
        for asked, expected in ((asks(2, memory=1000), {"whole-5", "whole-6"}), (asks(memory=1000), {"whole-6"})):
            placed = Evaluator(fleet, PolicySettings("purser")).place("n", pod("p", asked))
            assert isinstance(placed, Placement)
            if used or asked.count == 2:
                assert {share.uuid for share in placed.containers[0].shares} == expected


PARTS = st.lists(st.tuples(st.integers(0, len(ASKS) - 1), st.sampled_from(ContainerKind)), min_size=1, max_size=4)


@examples(60)
@given(
    st.lists(st.sampled_from(["A100-40GB", "A30"]), min_size=1, max_size=4),
    st.lists(PARTS, min_size=3, max_size=6),
    st.sampled_from(["purser", "binpack", "spread"]),
)
def test_what_fits_of_pods_with_several_containers_is_granted(
    kinds: list[str], pods: list[list[tuple[int, ContainerKind]]], policy: str
) -> None:
    fleet = Fleet()
    fleet.set_inventory(inventory := node("n", *kinds))
    evaluator = Evaluator(fleet, PolicySettings(policy))
    for number, parts in enumerate(pods):
        request = pod(f"p{number}", *(ASKS[which] for which, _ in parts), kinds=[kind for _, kind in parts])
        found, placed = evaluator.evaluate(request, ["n"]), evaluator.place("n", request)
        assert bool(found.fits) == isinstance(placed, Placement)
        if isinstance(placed, Placement):
            fleet.ledger.reserve(to_grant(placed, request, inventory))
        else:
            assert explain(found.refusals, request, fleet).strip()[-1] != ":"
