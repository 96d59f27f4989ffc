"""A pod on a node: rows of containers, kubelet's reuse of init containers' devices, and that grants always fit."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.fleet import Fleet, NodeState, node_state, rule
from purser.core.ledger import Usage
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceMode,
    DeviceRequest,
    Enforcement,
    GpuPolicy,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Placement, Reason, Refusal, place, to_grant

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


def cards(*memory: int, **facts: object) -> tuple[Device, ...]:
    return tuple(
        msgspec.structs.replace(Device(f"d{i}", i, "NVIDIA", mib, slots=4), **facts) for i, mib in enumerate(memory)
    )


def node(*devices: Device, used: dict[str, int] | None = None) -> NodeState:
    usage = {uuid: Usage(1, memory, 0, pods=1) for uuid, memory in (used or {}).items()}
    return node_state(NodeInventory("n", devices), usage)


def pod(*containers: tuple[ContainerKind, DeviceRequest], policy: tuple[GpuPolicy, ...] = ()) -> PodRequest:
    parts = tuple(ContainerRequest(f"c{i}", kind, request) for i, (kind, request) in enumerate(containers))
    return PodRequest("u", "ns", "p", parts, gpu_policy=policy)


def ask(count: int = 1, memory: int = 100, cores: int = 0, **more: object) -> DeviceRequest:
    return msgspec.structs.replace(DeviceRequest(count, memory_mib=memory, cores_percent=cores), **more)


def devices_of(verdict: Placement | Refusal) -> list[list[str]]:
    assert isinstance(verdict, Placement), verdict
    return [[share.uuid for share in part.shares] for part in verdict.containers]


def test_the_app_container_gets_the_init_containers_device_first() -> None:
    """kubelet hands it on before it asks for more."""
    request = pod((INIT, ask()), (APP, ask(2)), policy=(GpuPolicy.SPREAD,))
    init, app = devices_of(place(node(*cards(1000, 1000, 1000), used={"d2": 500}), request))
    assert app[0] == init[0] and len(set(app)) == 2


def test_an_init_container_avoids_devices_that_its_app_cannot_have() -> None:
    """Binpack alone would send it to the fuller card, and kubelet would then hand that one on to the app."""
    request = pod((INIT, ask(memory=100)), (APP, ask(memory=600)))
    assert devices_of(place(node(*cards(1000, 1000), used={"d1": 500}), request)) == [["d0"], ["d0"]]


def test_init_containers_take_one_anothers_devices() -> None:
    request = pod((INIT, ask()), (INIT, ask(2)), (APP, ask(3)))
    first, second, app = devices_of(place(node(*cards(1000, 1000, 1000, 1000)), request))
    assert first == second[:1] and second == app[:2]


def test_a_later_app_container_is_free_to_go_elsewhere() -> None:
    request = pod((INIT, ask(memory=900)), (APP, ask(memory=900)), (APP, ask(memory=900)))
    init, first, second = devices_of(place(node(*cards(1000, 1000)), request))
    assert init == first != second


def test_a_sidecar_takes_the_device_and_stays_on_it() -> None:
    request = pod((INIT, ask(memory=800)), (SIDECAR, ask(memory=300)), (APP, ask(memory=800)))
    init, sidecar, app = devices_of(place(node(*cards(1000, 1000)), request))
    assert init == sidecar != app


def test_an_init_container_on_its_own_binds_nobody_after_it() -> None:
    assert len(devices_of(place(node(*cards(1000)), pod((INIT, ask()))))) == 1


def test_a_gpu_held_alone_takes_nobody_even_if_its_compute_is_over_booked() -> None:
    state = node_state(
        NodeInventory("n", cards(1000, cores_percent=200)), {"d0": Usage(1, 0, 100, pods=1, exclusive=1)}
    )
    verdict = place(state, pod((APP, ask(cores=10))))
    assert isinstance(verdict, Refusal)
    assert verdict.counts == ((Reason.EXCLUSIVE_CONFLICT, 1),)


@pytest.mark.parametrize(
    ("used", "memory", "resolvable"),
    [
        pytest.param({"d0": 500}, 600, True, id="it would fit once others are gone"),
        pytest.param({"d0": 500}, 1001, False, id="it would not fit an empty node"),
        pytest.param({}, 1001, False, id="nobody is there who could go"),
    ],
)
def test_a_refusal_says_whether_preemption_could_help(used: dict[str, int], memory: int, resolvable: bool) -> None:
    verdict = place(node(*cards(1000), used=used), pod((APP, ask(memory=memory))))
    assert isinstance(verdict, Refusal)
    assert verdict.resolvable is resolvable


def test_a_node_without_devices_says_so() -> None:
    verdict = place(node(), pod((APP, ask())))
    assert isinstance(verdict, Refusal)
    assert verdict.message == "NodeInsufficientDevice"


def test_modes_and_models_select_devices() -> None:
    state = node(*cards(1000), Device("x", 1, "NVIDIA A100-SXM4-80GB", 1000, slots=4))
    assert devices_of(place(state, pod((APP, ask(models_allowed=("a100",)))))) == [["x"]]
    assert devices_of(place(state, pod((APP, ask(models_denied=("a100",)))))) == [["d0"]]


def test_numa_binding_of_an_app_also_binds_its_init_container() -> None:
    devices = (*cards(1000, numa_nodes=(0,)), *(Device(f"x{i}", i + 1, "N", 1000, numa_nodes=(1,)) for i in range(2)))
    state = node(*devices, used={"d0": 800})  # what binpack alone would give to the init container
    init, app = devices_of(place(state, pod((INIT, ask()), (APP, ask(2, numa_bind=True)))))
    assert set(app) == {"x0", "x1"} and init[0] in app


@pytest.mark.parametrize(
    ("cores", "enforcement"), [(100, Enforcement.WHOLE_DEVICE), (50, Enforcement.HAMI_CORE), (0, Enforcement.HAMI_CORE)]
)
def test_a_grant_says_what_its_devices_enforce(cores: int, enforcement: Enforcement) -> None:
    inventory = NodeInventory("n", cards(1000, enforcement=Enforcement.HAMI_CORE))
    request = pod((APP, ask(cores=cores)))
    placement = place(node_state(inventory, {}), request)
    assert isinstance(placement, Placement)
    grant = to_grant(placement, request, inventory)
    assert (grant.pod_uid, grant.node, grant.containers[0].enforcement) == ("u", "n", enforcement)


@pytest.mark.parametrize(
    ("replicas", "word", "fits"),
    [
        (1, Enforcement.TIME_SLICING, True),
        (4, Enforcement.TIME_SLICING, False),
        (4, Enforcement.MPS, True),
        (1, Enforcement.MPS, True),
    ],
)
def test_who_requires_enforcement_gets_a_gpu_alone_or_an_enforced_part_of_one(replicas, word, fits) -> None:  # type: ignore[no-untyped-def]
    whole = DeviceRequest(1, memory_percent=100, cores_percent=100, held_by=(Enforcement.MPS,))
    verdict = place(node(*cards(1000, replicas=replicas, enforcement=word)), pod((APP, whole)))
    assert isinstance(verdict, Placement) == fits
    assert fits or verdict.counts == ((Reason.NOT_ENFORCED, 1),)


requests = st.builds(
    DeviceRequest,
    count=st.integers(1, 3),
    memory_mib=st.integers(0, 1200),
    cores_percent=st.sampled_from((0, 30, 60, 100)),
    numa_bind=st.booleans(),
) | st.builds(DeviceRequest, count=st.integers(1, 3), memory_percent=st.just(100), cores_percent=st.just(100))
containers = st.lists(st.tuples(st.sampled_from(ContainerKind), requests), min_size=1, max_size=4).map(
    lambda parts: sorted(parts, key=lambda part: part[0] is APP)
)
policies = st.lists(st.sampled_from(GpuPolicy), min_size=1, max_size=2, unique=True).map(tuple)


ALONE = DeviceRequest(1, memory_percent=100, cores_percent=100)


def sliced(*parts: int, **more: object) -> tuple[Device, ...]:
    devices = enumerate(parts)
    cut = (Device(f"d{i}", i, "NVIDIA", 1000, slots=n, replicas=n, mode=DeviceMode.TIME_SLICING) for i, n in devices)
    return tuple(msgspec.structs.replace(device, **more) for device in cut)


def parts_taken(**taken: int) -> dict[str, Usage]:
    return {uuid: Usage(n, n * 250, 0, pods=n) for uuid, n in taken.items()}


@pytest.mark.parametrize(
    ("count", "packed", "taken", "chosen"),
    [
        pytest.param(1, False, {"d0": 2, "d1": 1}, ["d1"], id="a part of the GPU with the fewest taken"),
        pytest.param(1, True, {"d0": 2, "d1": 3}, ["d1"], id="packed: of the one with the most"),
        pytest.param(1, True, {"d0": 2, "d1": 4}, ["d0"], id="of one that has any left"),
        pytest.param(3, False, {"d0": 1}, ["d1", "d0", "d1"], id="several are spread"),
        pytest.param(3, True, {"d0": 1}, ["d0", "d0", "d0"], id="packed: several are together"),
        pytest.param(2, False, {"d0": 3, "d1": 3}, ["d0", "d1"], id="the last ones"),
    ],
)
def test_parts_are_taken_as_the_device_plugin_takes_them(
    count: int, packed: bool, taken: dict[str, int], chosen: list[str]
) -> None:
    state = node_state(NodeInventory("n", sliced(4, 4, packed=packed)), parts_taken(**taken))
    found = place(state, pod((APP, msgspec.structs.replace(ALONE, count=count)), policy=(GpuPolicy.BINPACK,)))
    assert devices_of(found) == [chosen]
    assert isinstance(found, Placement)
    assert {(share.memory_mib, share.cores_percent) for share in found.containers[0].shares} == {(250, 0)}


@pytest.mark.parametrize(
    ("devices", "wanted", "told"),
    [
        pytest.param(sliced(4), ask(memory=100), "1/1 CardTypeMismatch", id="amounts are not for parts"),
        pytest.param(
            sliced(4, one_each=True),
            msgspec.structs.replace(ALONE, count=2),
            "1/1 CardTypeMismatch",
            id="one part, where the file says so",
        ),
        pytest.param(
            sliced(2),
            msgspec.structs.replace(ALONE, count=3),
            "1/1 AllocatedCardsInsufficientRequest",
            id="more parts than there are",
        ),
        pytest.param(
            cards(1000, mode=DeviceMode.MIG, resource="nvidia.com/mig-1g.5gb"),
            ALONE,
            "1/1 CardTypeMismatch",
            id="another resource",
        ),
    ],
)
def test_what_parts_do_not_take(devices: tuple[Device, ...], wanted: DeviceRequest, told: str) -> None:
    verdict = place(node(*devices), pod((APP, wanted)))
    assert isinstance(verdict, Refusal)
    assert verdict.message == told


def test_init_containers_of_another_resource_hand_nothing_on() -> None:
    mig = msgspec.structs.replace(ALONE, resource="nvidia.com/mig-1g.5gb")
    (small,) = cards(100, mode=DeviceMode.MIG, resource="nvidia.com/mig-1g.5gb", uuid="MIG-1")
    assert devices_of(place(node(small, *cards(1000)), pod((INIT, mig), (APP, ALONE)))) == [["MIG-1"], ["d0"]]


@examples(60)
@given(st.lists(st.tuples(containers, policies), max_size=8), st.lists(st.integers(0, 1), min_size=1, max_size=4))
def test_whatever_placement_decides_the_book_accepts(
    pods: list[tuple[list[tuple[ContainerKind, DeviceRequest]], tuple[GpuPolicy, ...]]], numas: list[int]
) -> None:
    fleet = Fleet()
    devices = tuple(Device(f"d{i}", i, "N", 1000, slots=3, numa_nodes=(numa,)) for i, numa in enumerate(numas))
    devices += sliced(4, uuid="sliced", index=9)
    fleet.set_inventory(NodeInventory("n", devices))
    for number, (parts, policy) in enumerate(pods):
        request = msgspec.structs.replace(pod(*parts, policy=policy), uid=str(number))
        state = fleet.node("n")
        placement = place(state, request)
        if isinstance(placement, Refusal):
            assert placement.counts
            continue
        for part, container in zip(placement.containers, request.containers, strict=True):
            parts = [share.uuid for share in part.shares].count("sliced")
            assert len({share.uuid for share in part.shares} - {"sliced"}) + parts == container.devices.count
            assert not parts or container.devices.is_plain
        fleet.ledger.reserve(to_grant(placement, request, state.inventory))
    assert fleet.ledger.violations() == ()


@examples(100)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1000)), min_size=1, max_size=6), st.integers(1, 3), policies
)
def test_numa_binding_finds_a_set_whenever_one_exists(
    found: list[tuple[int, int]], count: int, policy: tuple[GpuPolicy, ...]
) -> None:
    devices = tuple(Device(f"d{i}", i, "N", 1000, numa_nodes=(numa,)) for i, (numa, _) in enumerate(found))
    used = {f"d{i}": memory for i, (_, memory) in enumerate(found) if memory}
    state = node_state(NodeInventory("n", devices), {u: Usage(0, memory) for u, memory in used.items()})
    enough = [sum(1 for numa, memory in found if numa == home and memory <= 500) >= count for home in range(3)]
    verdict = place(state, pod((APP, ask(count, memory=500, numa_bind=True)), policy=policy))
    assert isinstance(verdict, Placement) is any(enough)


def test_equal_parts_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, real = [], rule.obstacles
    monkeypatch.setattr(rule, "obstacles", lambda **facts: looks.append(1) or real(**facts))
    state = node_state(NodeInventory("n", sliced(100, 100)), {})
    found = place(state, pod(*[(APP, ALONE)] * 40))
    assert isinstance(found, Placement)
    assert sorted(uuid for each in devices_of(found) for uuid in each) == ["d0"] * 20 + ["d1"] * 20
    assert len(looks) <= 40 * 4, "free and taken, of two devices"


@pytest.mark.parametrize("count", [1, 2])
def test_gpus_of_unknown_memory_are_given_whole(count: int) -> None:
    whole = DeviceRequest(count, memory_percent=100, cores_percent=100)
    (given,) = devices_of(place(node(*cards(0, 0, slots=1)), pod((APP, whole))))
    assert len(set(given)) == count
