"""What a pod takes of a node's CPU and memory, as kube-scheduler counts it."""

import msgspec
import pytest
import yaml
from tests.reported_files import reported

from purser.adapters.pods import pod_spec
from purser.core.dialects import parse
from purser.core.explaining.filters import requested_amounts
from purser.core.kubernetes.quantities import QuantityError, QuantityLike
from purser.core.pod.manifest import ContainerKind, ContainerSpec, PodManifest
from purser.core.pod.requests import EffectiveRequests, pod_resources
from purser.kube.objects import Container, Pod, PodSpec, ResourceRequirements

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def container(kind: ContainerKind, cpu: str = "", memory: str = "", **more: dict[str, str]) -> ContainerSpec:
    named = {word: value for word, value in (("cpu", cpu), ("memory", memory)) if value}
    return ContainerSpec("c", kind, more.get("limits", {}), more.get("requests", named))


def pod(*containers: ContainerSpec, **overhead: str) -> PodManifest:
    return PodManifest("u", "ns", "p", {}, containers, overhead=overhead)


@pytest.mark.parametrize(
    ("containers", "cpu_milli"),
    [
        pytest.param([], 0, id="nothing asked for"),
        pytest.param([(APP, "1"), (APP, "500m")], 1500, id="app containers run together"),
        pytest.param([(INIT, "2"), (INIT, "3"), (APP, "1")], 3000, id="init containers run one by one before them"),
        pytest.param([(INIT, "1"), (APP, "1"), (APP, "1")], 2000, id="and count only where they ask for more"),
        pytest.param([(SIDECAR, "1"), (APP, "2")], 3000, id="sidecars stay beside the app"),
        pytest.param([(SIDECAR, "1"), (INIT, "4"), (APP, "2")], 5000, id="and beside init containers after them"),
        pytest.param([(INIT, "4"), (SIDECAR, "1"), (APP, "2")], 4000, id="but not beside those before them"),
        pytest.param([(SIDECAR, "1"), (INIT, "4"), (SIDECAR, "3"), (APP, "2")], 6000, id="all sidecars beside the app"),
        pytest.param([(APP, "0.0001")], 1, id="parts of a thousandth count as one"),
    ],
)
def test_cpu_is_the_most_that_containers_ask_for_at_one_time(
    containers: list[tuple[ContainerKind, str]], cpu_milli: int
) -> None:
    assert pod_resources(pod(*(container(*each) for each in containers))).cpu_milli == cpu_milli


def test_cpu_and_memory_may_peak_at_different_times() -> None:
    asked = pod_resources(pod(container(INIT, "4", "1Gi"), container(APP, "1", "8Gi")))
    assert asked == EffectiveRequests(4000, 8192)


def test_a_request_counts_before_a_limit_and_a_limit_where_there_is_no_request() -> None:
    limits = {"cpu": "4", "memory": "4Gi"}
    assert pod_resources(pod(container(APP, limits=limits, requests={"cpu": "1"}))) == EffectiveRequests(1000, 4096)
    assert pod_resources(pod(container(APP, limits=limits, requests={"memory": "0"}))) == EffectiveRequests(4000, 0)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "8", "memory": "9Gi"}}, {"cpu": 8250, "memory": 9 << 30}),
        ({"limits": {"cpu": "8"}, "requests": {"memory": "9Gi"}}, {"cpu": 8250, "memory": 9 << 30}),
        ({"limits": {"cpu": "8"}, "requests": {"cpu": "6"}}, {"cpu": 6250, "memory": 1 << 30}),
        ({"requests": {"hugepages-2Mi": "4Mi"}}, {"cpu": 4250, "memory": 1 << 30, "hugepages-2Mi": 4 << 20}),
    ],
)
def test_what_a_pod_asks_for_as_a_whole_counts_instead(
    resources: dict[str, dict[str, str]], expected: dict[str, int]
) -> None:
    """Kubernetes 1.34; resource by resource, and the runtime class's is added."""
    containers = (Container("c", resources=ResourceRequirements(requests={"cpu": "4", "memory": "1Gi"})),)
    overhead: dict[str, QuantityLike] = {"cpu": "250m"}
    asked = ResourceRequirements(dict(resources.get("limits", {})), dict(resources.get("requests", {})))
    found = pod_spec(Pod(spec=PodSpec(containers=containers, overhead=overhead, resources=asked)))
    assert pod_resources(found) == EffectiveRequests(expected["cpu"], expected["memory"] >> 20)
    assert requested_amounts(found) == {"pods": 1, **expected}


def test_a_reported_pod_whose_container_names_no_cpu() -> None:
    body = yaml.safe_load(reported("pod-level-cpu.yaml").read_text())
    assert pod_resources(pod_spec(msgspec.convert(body, Pod, strict=False))) == EffectiveRequests(64_000, 64 << 10)


def test_what_the_runtime_class_adds_is_added_to_the_peak() -> None:
    asked = pod_resources(pod(container(INIT, "4"), container(APP, "1"), cpu="250m", memory="120Mi"))
    assert asked == EffectiveRequests(4250, 120)


@pytest.mark.parametrize(("memory", "mib"), [("1Mi", 1), ("1048577", 1), ("2097151.5", 2), ("1M", 0), ("1e9", 953)])
def test_memory_is_whole_mib(memory: str, mib: int) -> None:
    assert pod_resources(pod(container(APP, "1", memory))).memory_mib == mib


@pytest.mark.parametrize("spec", [pod(container(APP, "plenty")), pod(container(INIT, "1", "1 Gi")), pod(cpu="x")])
def test_an_amount_that_is_no_quantity_is_an_error(spec: PodManifest) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        pod_resources(spec)


def gpu_pod(**limits: str) -> PodManifest:
    return pod(container(APP, limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", **limits}), cpu="1")


def test_a_pod_that_asks_for_devices_says_what_it_takes_beside_them() -> None:
    spec = gpu_pod(cpu="2", memory="3Gi")
    spec = msgspec.structs.replace(spec, containers=(*spec.containers, container(APP, "1", "1Gi")))
    request = parse(spec)
    assert request is not None
    assert (request.cpu_milli, request.memory_mib) == (4000, 4096)


def test_the_api_servers_defaults_change_nothing() -> None:
    written = gpu_pod(cpu="2", memory="3Gi")
    [only] = written.containers
    filled = msgspec.structs.replace(only, requests=only.limits)
    assert parse(msgspec.structs.replace(written, containers=(filled,))) == parse(written)


def test_what_cannot_be_read_is_nothing_to_policies() -> None:
    request = parse(gpu_pod(cpu="plenty", memory="3Gi"))
    assert request is not None
    assert (request.cpu_milli, request.memory_mib) == (0, 0)
