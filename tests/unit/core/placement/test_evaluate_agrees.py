"""All nodes at once or each by itself: the same fit, and the others are refused in the same words."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.fleet import Fleet
from purser.core.grant.quota import UNLIMITED, QuotaLimits
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceMode,
    DeviceRequest,
    DeviceShare,
    Enforcement,
    GpuPolicy,
    Grant,
    MigPlacement,
    NodeInventory,
    NodePolicy,
    PodRequest,
)
from purser.core.placement import (
    DeviceAssignment,
    Evaluator,
    Placement,
    PolicySettings,
    Refusal,
    decide,
    explain,
    place,
)

NAMES = [f"n{number}" for number in range(5)]
MIG = ["nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me"]
UUIDS = [f"{name}-{index}" for name in NAMES for index in range(4)]

DEVICES = st.builds(
    Device,
    uuid=st.just(""),
    index=st.just(0),
    model=st.sampled_from(["NVIDIA A100", "NVIDIA A10", "Tesla T4"]),
    memory_mib=st.sampled_from([0, 1000, 15360, 40537]),
    slots=st.sampled_from([0, 1, 2, 10]),
    cores_percent=st.sampled_from([0, 100, 100, 100, 200]),
    mode=st.sampled_from(DeviceMode),
    healthy=st.sampled_from([True, True, True, False]),
    resource=st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/gpu.shared"]),
    one_each=st.sampled_from([False, False, True]),
    packed=st.booleans(),
    enforcement=st.sampled_from([Enforcement.HAMI_CORE, Enforcement.MPS, Enforcement.TIME_SLICING]),
).map(lambda each: msgspec.structs.replace(each, replicas=max(each.slots, 1)) if each.packed else each)
PLACED = st.sampled_from(
    [MigPlacement("1g.5gb", start) for start in (0, 3, 6)]
    + [MigPlacement("1g.5gb+me", 1), MigPlacement("3g.20gb", 4), MigPlacement("2g.12gb", 2), MigPlacement("9g.9gb", 0)]
)
CUT = st.builds(
    Device,
    uuid=st.just(""),
    index=st.just(0),
    model=st.sampled_from(["NVIDIA A100", "NVIDIA A30"]),
    memory_mib=st.just(40960),
    slots=st.sampled_from([7, 7, 7, 2, 0]),
    mode=st.just(DeviceMode.MIG),
    healthy=st.sampled_from([True, True, True, False]),
    enforcement=st.just(Enforcement.MIG),
    mig_kind=st.sampled_from(["A100-40GB", "A100-40GB", "A30", "unheard-of"]),
    mig_held=st.lists(PLACED, max_size=1).map(tuple),
)
SHARES = st.tuples(
    st.sampled_from(UUIDS),
    st.sampled_from([0, 500, 1000, 40537, 50000]),
    st.sampled_from([0, 30, 100, 130]),
    st.none() | PLACED,
)


@st.composite
def inventories(draw: st.DrawFn, name: str) -> NodeInventory:
    devices = tuple(
        msgspec.structs.replace(device, uuid=f"{name}-{index}", index=index)
        for index, device in enumerate(draw(st.lists(DEVICES | CUT if draw(st.booleans()) else DEVICES, max_size=4)))
    )
    return NodeInventory(name, devices, cordoned=tuple(d.uuid for d in devices if draw(st.integers(0, 9)) == 0))


@st.composite
def device_requests(draw: st.DrawFn) -> DeviceRequest:
    in_percent = draw(st.booleans())
    return DeviceRequest(
        count=draw(st.sampled_from([1, 1, 1, 2, 3, 8])),
        memory_mib=None if in_percent else draw(st.sampled_from([0, 1, 500, 1000, 15360, 10**12])),
        memory_percent=draw(st.sampled_from([1, 50, 100])) if in_percent else None,
        cores_percent=draw(st.sampled_from([0, 0, 30, 100, 130])),
        models_allowed=draw(st.sampled_from([(), (), ("a10",), ("=Tesla T4",), ("T4", "A100")])),
        models_denied=draw(st.sampled_from([(), (), ("T4",)])),
        uuids_allowed=draw(st.sampled_from([(), (), ("n0-0", "n1-0", "n2-1"), ("nowhere",)])),
        uuids_denied=draw(st.sampled_from([(), (), ("n0-0", "n1-1")])),
        numa_bind=draw(st.integers(0, 9)) == 0,
        modes_allowed=draw(st.sampled_from([(), (), (DeviceMode.WHOLE, DeviceMode.SHARED), (DeviceMode.MIG,)])),
        resource=draw(st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/gpu.shared", *MIG])),
        held_by=draw(st.sampled_from([(), (), (Enforcement.HAMI_CORE, Enforcement.MPS), (Enforcement.MIG,)])),
    )


@st.composite
def requests(draw: st.DrawFn) -> PodRequest:
    parts = draw(st.lists(device_requests(), min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 3]))))
    containers = tuple(
        ContainerRequest(f"c{place}", draw(st.sampled_from(ContainerKind)), part) for place, part in enumerate(parts)
    )
    words = draw(st.sampled_from([(), (), *((word,) for word in GpuPolicy)]))
    return PodRequest("new", "ns", "p", containers, gpu_policy=words, cpu_milli=draw(st.sampled_from([0, 4000])))


LEFT = st.sampled_from(
    [UNLIMITED, UNLIMITED, QuotaLimits(800), QuotaLimits(1000, 50), QuotaLimits(None, 30), QuotaLimits(0, 0)]
)


def put(fleet: Fleet, number: int, share: tuple[str, int, int, MigPlacement | None]) -> None:
    part = ContainerGrant("c", ContainerKind.APP, (DeviceShare(*share),))
    uuid = share[0]
    fleet.ledger.adopt(Grant(f"pod-{number}", "ns", "p", uuid.partition("-")[0], (part,)), fleet_state())


def fleet_state():  # type: ignore[no-untyped-def]
    from purser.core.model import GrantState

    return GrantState.RUNNING


@examples(100)
@given(data=st.data())
def test_all_at_once_is_as_one_by_one(data: st.DataObject) -> None:
    fleet, policy = Fleet(), PolicySettings(data.draw(st.sampled_from([NodePolicy.BINPACK, NodePolicy.PURSER])))
    evaluator = Evaluator(fleet, policy)
    for _ in range(data.draw(st.integers(1, 4))):  # what is kept from the step before must not show
        for name in data.draw(st.lists(st.sampled_from(NAMES), unique=True)):
            fleet.set_inventory(data.draw(inventories(name)))
        for number, share in enumerate(data.draw(st.lists(SHARES, max_size=6))):
            put(fleet, number, share)
        request, left = data.draw(requests()), data.draw(LEFT)
        found = evaluator.evaluate(request, NAMES, left)
        for name in NAMES:
            check(fleet, evaluator, name, request, left, found)
        assert found.fits == [name for name in NAMES if name in found.fits]
        assert len(found.scores) == len(found.fits)


def check(fleet: Fleet, evaluator: Evaluator, name: str, request: PodRequest, left: QuotaLimits, found) -> None:  # type: ignore[no-untyped-def]
    node = fleet.node(name)
    if node is None:
        assert found.refusals[name].message == "node unregistered"
        return
    verdict = decide(node, request, evaluator.policy, left)
    assert (name in found.fits) == isinstance(verdict, DeviceAssignment) != (name in found.refusals)
    if isinstance(verdict, DeviceAssignment):
        placement = evaluator.place(name, request, left)
        assert isinstance(placement, Placement)
        preference = evaluator._preference(request, evaluator._live.arrays.rows[name])
        assert placement == place(node, request, evaluator.policy, left, preference)
        evaluator.why(request, placement)
    elif len(request.containers) == 1:  # of several, the one that is refused by itself is reported
        assert told(found.refusals[name]) == told(verdict)
        alone = evaluator.evaluate(request, [name], left)
        assert explain(alone.refusals, request, fleet) == explain({name: verdict}, request, fleet)


def told(refusal: Refusal) -> object:
    return (refusal.message, refusal.counts, refusal.container, refusal.resolvable, refusal.count_needed)
