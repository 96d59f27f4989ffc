"""What a pod is to a policy."""

import msgspec
import pytest
from tests.unit.core.placement.policies.fleets import PAIRS, fleet_of, named

from purser.core.fleet.arrays import Model
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.model import ContainerRequest, DeviceMode, DeviceRequest, PodRequest
from purser.core.placement.shape import PodShape, largest_shape, need_milli, shape_of
from purser.core.placement.table import ShapeTable, place
from purser.core.pod.manifest import ContainerKind

REQUEST = DeviceRequest(2, memory_mib=4000, cores_percent=30, models_allowed=("T4",))


def pod(*requests: DeviceRequest) -> PodRequest:
    containers = tuple(ContainerRequest(f"c{n}", ContainerKind.APP, r) for n, r in enumerate(requests))
    return PodRequest("uid", "namespace", "name", containers)


@pytest.mark.parametrize(
    "change",
    [
        {"uuids_allowed": ("a",)},
        {"uuids_denied": ("a",)},
        {"uuids_required": ("a",)},
        {"numa_bind": True},
    ],
    ids=str,
)
def test_one_that_is_more_than_a_size_is_none(change: dict[str, object]) -> None:
    assert shape_of(pod(msgspec.structs.replace(REQUEST, **change))) is None


def test_models_and_modes_are_of_the_shape() -> None:
    asked = msgspec.structs.replace(REQUEST, models_denied=("T4-x",), modes_allowed=(DeviceMode.WHOLE,))
    shape = shape_of(pod(asked))
    assert shape is not None
    models = [
        Model("T4", 1000, "whole"),
        Model("T4-X", 1000, "whole"),
        Model("T4", 1000, "mig"),
        Model("A10", 1, "whole"),
    ]
    assert [shape.takes(model) for model in models] == [True, False, False, False]


def test_the_lead_of_several_containers_is_the_one_that_asks_for_the_most() -> None:
    shares = [DeviceRequest(1, memory_mib=900), DeviceRequest(2, memory_mib=100), DeviceRequest(1, memory_mib=1000)]
    request = msgspec.structs.replace(pod(*shares), cpu_milli=500)
    assert largest_shape(request) == PodShape(500, 0, 2, 100)


def test_more_than_a_whole_gpu_of_compute_is_a_whole_one() -> None:
    shape = shape_of(pod(DeviceRequest(1, memory_percent=10, cores_percent=130)))
    assert shape is not None
    assert shape.is_alone


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_however_much_is_asked_for_it_just_does_not_fit(pair: tuple[str, str]) -> None:
    fleet = fleet_of([FleetNodeFacts("node", (GpuFacts("T4", 16_000, 10),) * 2)])
    for request in (
        DeviceRequest(10**30, memory_mib=10**30),
        DeviceRequest(1, memory_mib=10**30, cores_percent=10**30),
    ):
        shape = shape_of(msgspec.structs.replace(pod(request), cpu_milli=10**30, memory_mib=10**30))
        assert shape is not None
        assert place(ShapeTable(fleet, named(pair)), shape) is None


@pytest.mark.parametrize(
    ("shape", "milli"),
    [
        pytest.param(PodShape(0, 0, 1, gpu_memory_mib=1), 1, id="rounded up"),
        pytest.param(PodShape(0, 0, 1, gpu_memory_percent=50), 500, id="percent"),
        pytest.param(PodShape(0, 0, 1, gpu_memory_percent=10, gpu_cores_percent=30), 300, id="compute is more"),
        pytest.param(PodShape(0, 0, 1, gpu_memory_mib=1, gpu_cores_percent=100), 1000, id="alone"),
        pytest.param(PodShape(0, 0, 1, gpu_memory_mib=32_000), 2000, id="more than there is"),
    ],
)
def test_what_a_pod_takes_of_an_idle_gpu(shape: PodShape, milli: int) -> None:
    assert need_milli(shape, 16_000) == milli


@pytest.mark.parametrize(
    ("words", "model", "takes"),
    [
        ((), "NVIDIA A100", True),
        (("a10",), "NVIDIA A100", True),
        (("=A10",), "A100", False),
        (("=A10", "=A100"), "A100", True),
        (("t4", "v100"), "NVIDIA A100", False),
    ],
)
def test_models(words: tuple[str, ...], model: str, takes: bool) -> None:
    assert PodShape(models=words).takes_model(model) is takes
