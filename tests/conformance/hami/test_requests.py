"""HAMi's tables of requests: TestGenerateResourceRequests and TestMutateAdmissionDefaultsExclusiveCore (v2.10).

HAMi fills defaults in its webhook and reads requests in its scheduler; Purser reads both from the pod in one step. Rows
marked DIFFERENT are refused with a sentence where HAMi clamps a number or leaves the pod without a GPU in silence.
"""

import pytest

from purser.core.dialects import DialectError, default_limits, parse
from purser.core.model import ContainerKind
from purser.core.pod.manifest import ContainerSpec, PodManifest

GPU, MEM, PERCENT, CORES = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)


def pod_with(limits, requests=None):
    container = ContainerSpec("c", ContainerKind.APP, limits, requests or {})
    return PodManifest("u", "default", "p", {}, (container,))


def read(limits, requests=None):
    """(Nums, Memreq, MemPercentagereq, Coresreq) in HAMi's terms: 0 MiB and 101 percent mean not set."""
    request = parse(pod_with(limits, requests)).containers[0].devices
    return (request.count, request.memory_mib or 0, request.memory_percent or 101, request.cores_percent)


@pytest.mark.parametrize(
    ("limits", "requests", "wanted"),
    [
        pytest.param({GPU: "2", MEM: "4096"}, {}, (2, 4096, 101, 0), id="two cards with 4096 MiB each"),
        pytest.param({GPU: "1", PERCENT: "50"}, {}, (1, 0, 50, 0), id="half of a card's memory"),
        pytest.param({GPU: "1", PERCENT: "0", MEM: "2000"}, {}, (1, 2000, 101, 0), id="MiB win over a percentage of 0"),
        pytest.param({GPU: "1", CORES: "50"}, {}, (1, 0, 100, 50), id="half of a card's cores"),
        # The table has 0 cores here; but HAMi's webhook has set gpucores to 100 before (next table).
        pytest.param({GPU: "1"}, {}, (1, 0, 100, 100), id="one card"),
        pytest.param({}, {GPU: "1"}, (1, 0, 100, 100), id="one card in requests alone"),
    ],
)
def test_requests(limits, requests, wanted):
    assert read(limits, requests) == wanted


def test_no_resources_are_no_request():
    assert parse(pod_with({})) is None


@pytest.mark.parametrize("percent", ["150", "101", str(2**32 + 50), "-1"])
def test_different_a_percentage_out_of_range_is_refused_not_taken_for_100(percent):
    with pytest.raises(DialectError, match="1 to 100"):
        parse(pod_with({GPU: "1", PERCENT: percent}))


@pytest.mark.parametrize("memory", ["16Gi", "16.0Gi"])
def test_different_memory_with_a_unit_is_refused_not_dropped(memory):
    with pytest.raises(DialectError, match="use 16384"):
        parse(pod_with({GPU: "1", MEM: memory}))


@pytest.mark.parametrize(
    ("limits", "requests", "cores"),
    [
        pytest.param({GPU: "1"}, {}, 100, id="a card and nothing else is exclusive"),
        pytest.param({GPU: "1", PERCENT: "100"}, {}, 100, id="all of its memory is exclusive"),
        pytest.param({GPU: "1"}, {PERCENT: "100"}, 100, id="all of its memory in requests is exclusive"),
        pytest.param({GPU: "1", PERCENT: "50"}, {}, 0, id="half of its memory is not"),
        pytest.param({GPU: "1", CORES: "70"}, {}, 70, id="cores in limits stay"),
        pytest.param({GPU: "1"}, {CORES: "55"}, 55, id="cores in requests stay"),
        pytest.param({GPU: "1", MEM: "8192"}, {}, 0, id="MiB are not"),
    ],
)
def test_exclusive_core_default(limits, requests, cores):
    assert read(limits, requests)[3] == cores


def test_different_the_exclusive_default_is_derived_and_not_written_into_the_pod():
    assert default_limits(pod_with({GPU: "1"})) == {}


def test_different_a_request_without_limit_gets_one_because_the_api_server_refuses_it_otherwise():
    assert default_limits(pod_with({}, {GPU: "1", CORES: "55"})) == {"c": {GPU: "1", CORES: "55"}}


@pytest.mark.parametrize("resource", [MEM, PERCENT, CORES])
def test_a_share_without_a_count_gets_one_gpu(resource):
    assert default_limits(pod_with({resource: "50"})) == {"c": {GPU: "1"}}
