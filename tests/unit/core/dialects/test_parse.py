import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.texts import any_text

from purser.core import dialects
from purser.core.dialects import DialectError, hami, nvidia, parse
from purser.core.model import ContainerKind, DeviceMode, DeviceRequest, GpuNic, GpuPolicy, NodePolicy, ScoreWeights
from purser.core.names import GPU_NIC_ANNOTATION, INIT_RESOURCES_ANNOTATION
from purser.core.pod.manifest import ContainerSpec, PodManifest

from .pods import container, pod, spell

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def request_of(*containers, **annotations) -> DeviceRequest:
    parsed = parse(pod(*containers, **annotations))
    assert parsed is not None
    return parsed.containers[0].devices


def problems_of(*containers, **annotations) -> tuple[str, ...]:
    with pytest.raises(DialectError) as caught:
        parse(pod(*containers, **annotations))
    return caught.value.problems


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"gpu": 2}, DeviceRequest(2, memory_percent=100, cores_percent=100)),
        ({"mem": 4096}, DeviceRequest(1, memory_mib=4096)),
        ({"gpu": 2, "mem": "3k"}, DeviceRequest(2, memory_mib=3000)),
        ({"gpu": 2, "mem": "12e3"}, DeviceRequest(2, memory_mib=12000)),
        ({"percent": 50}, DeviceRequest(1, memory_percent=50)),
        ({"cores": 30}, DeviceRequest(1, memory_percent=100, cores_percent=30)),
        ({"mem": 4096, "cores": 100}, DeviceRequest(1, memory_mib=4096, cores_percent=100)),
        ({"mem": 4096, "percent": 50}, DeviceRequest(1, memory_mib=4096)),
        ({"mem": 4096, "percent": 0}, DeviceRequest(1, memory_mib=4096)),
        ({"gpu": 1, "cores": 0}, DeviceRequest(1, memory_percent=100, cores_percent=0)),
        ({"vmem": 8000}, DeviceRequest(1, memory_mib=8000)),
        ({"vnum": 3}, DeviceRequest(3, memory_percent=100, cores_percent=100)),
        ({"vnum": 3, "gpu": 3}, DeviceRequest(3, memory_percent=100, cores_percent=100)),
        ({"vmem": 8000, "gpu": 1, "priority": 1}, DeviceRequest(1, memory_mib=8000)),
        ({"vgpu": 2}, DeviceRequest(2, memory_percent=100)),
        ({"vgpumem": 3000}, DeviceRequest(1, memory_mib=3000)),
        ({"vgpu": 1, "vgpumem": 3000, "vgpucores": 50}, DeviceRequest(1, memory_mib=3000, cores_percent=50)),
        ({"vgpu": 1, "vgpupercent": 50}, DeviceRequest(1, memory_percent=50)),
        ({"vgpumem": 3000, "vgpupercent": 50}, DeviceRequest(1, memory_mib=3000)),
        ({"vgpu": 3, "vgpucores": 100}, DeviceRequest(3, memory_percent=100, cores_percent=100)),
        ({"vgpu": 1, "vgpumem": 0}, DeviceRequest(1, memory_percent=100)),
        ({"gpumem": 3}, DeviceRequest(1, memory_mib=3072)),
        ({"gpumem": 3, "gpu": 1}, DeviceRequest(1, memory_mib=3072)),
        ({"shared": 2}, DeviceRequest(2, memory_percent=100, cores_percent=100, resource="nvidia.com/gpu.shared")),
        (
            {"mig": 1, "gpu": 0, "cores": 0},
            DeviceRequest(1, memory_percent=100, cores_percent=100, resource="nvidia.com/mig-1g.5gb"),
        ),
    ],
    ids=str,
)
def test_limits_become_a_request(limits, wanted):
    assert request_of(container(**limits)) == wanted


@pytest.mark.parametrize(
    "limits", [{}, {"gpu": 0}, {"vmem": 0}, {"gpu": 0, "mem": 0, "cores": 0}, {"priority": 1}], ids=str
)
def test_a_container_without_any_device_makes_no_request(limits):
    assert parse(pod(container(**limits), mode="nonsense is nobody's business here")) is None


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"mem": "16Gi"}, 'container "train": nvidia.com/gpumem "16Gi" must be in MiB without a suffix: use 16384'),
        ({"mem": "512Mi"}, "512"),
        ({"mem": "1.5Gi"}, "1536"),
        ({"mem": "16G"}, "exceeds the memory of any device: use 15258"),
        ({"mem": str(16 * 2**30)}, "exceeds the memory of any device: use 16384"),
        ({"mem": "much"}, "must be in MiB without a suffix, as a whole number such as 16384"),
        ({"mem": "1e99"}, "exceeds the memory of any device"),
        ({"mem": "1e999999999"}, "must be in MiB without a suffix"),
        ({"mem": -5}, "is not an amount of memory"),
        ({"percent": -1}, 'nvidia.com/gpumem-percentage "-1" is out of range'),
        ({"percent": 101}, "of one GPU's memory from 1 to 100"),
        ({"percent": 101, "mem": 100}, "of one GPU's memory from 1 to 100"),
        ({"percent": "12.5"}, "is not an integer: must be a"),
        ({"percent": 2**32 + 50}, "is out of range"),
        ({"cores": 101}, 'nvidia.com/gpucores "101" is out of range: must be a percentage of one GPU from 0 to 100'),
        ({"cores": -1, "gpu": 1}, "is out of range"),
        ({"gpu": -1}, 'nvidia.com/gpu "-1" is out of range: must be a number of GPUs from 1 to 1024'),
        ({"gpu": "500m"}, "is not an integer: must be a"),
        ({"mig": 0.5}, 'nvidia.com/mig-1g.5gb "0.5" is not an integer: must be a number of devices from 1 to 1024'),
        ({"mig": 1, "gpu": 1}, "mixes nvidia.com/gpu and nvidia.com/mig-1g.5gb: a MIG device has its own memory"),
        (
            {"mig": 1, "mem": 1},
            "a MIG device has its own memory and compute, so ask for only nvidia.com/mig-1g.5gb",
        ),
        ({"shared": 1, "mem": 100}, "mixes nvidia.com/gpu.shared and nvidia.com/gpumem"),
        ({"gpu": 1, "mem": 10, "priority": 2}, 'priority "2" is out of range: must be 0 (high) or 1 (low)'),
        ({"vmem": "8Gi"}, 'volcano.sh/gpu-memory "8Gi" must be in MiB without a suffix: use 8192'),
        ({"vmem": 8, "vnum": 1}, "asks for both volcano.sh/gpu-memory and volcano.sh/gpu-number"),
        (
            {"vgpu": 1, "vnum": 1},
            "mixes volcano.sh/gpu-number and volcano.sh/vgpu-number: use the resources of only one",
        ),
        (
            {"vgpu": 1, "vgpucores": 101},
            'volcano.sh/vgpu-cores "101" is out of range: must be a percentage of one GPU from 0 to 100',
        ),
        (
            {"gpumem": 8138},
            'aliyun.com/gpu-mem "8138" is out of range: must be a number of GiB of GPU memory from 1 to 1023',
        ),
        ({"gpumem": "8Gi"}, 'aliyun.com/gpu-mem "8Gi" is not an integer: must be a number of GiB of GPU memory'),
        ({"gpumem": 8, "gpucount": 1}, "the number of GPUs with the pod label aliyun.com/gpu-count"),
        (
            {"gpumem": 8, "mem": 8},
            "mixes nvidia.com/gpumem and aliyun.com/gpu-mem: use the resources of only one system",
        ),
        ({"gpumem": 8, "gpu": 2}, 'nvidia.com/gpu "2" conflicts with gpushare\'s resources, which ask for 1'),
        ({"vgpu": 2, "gpu": 1}, 'nvidia.com/gpu "1" conflicts with Volcano\'s resources, which ask for 2'),
        ({"vnum": 2, "gpu": 1}, 'nvidia.com/gpu "1" conflicts with Volcano\'s resources, which ask for 2'),
        ({"vmem": 8, "gpu": "x"}, 'nvidia.com/gpu "x" conflicts with Volcano\'s resources, which ask for 1'),
        (
            {"vmem": 8, "mem": 8},
            "mixes nvidia.com/gpumem and volcano.sh/gpu-memory: use the resources of only one system",
        ),
    ],
    ids=str,
)
def test_a_limit_without_sense_is_refused_with_the_number_to_write(limits, says):
    (problem,) = problems_of(container(**limits))
    assert problem.startswith('container "train"')
    assert says in problem


def test_all_problems_of_a_pod_are_reported_at_once():
    problems = problems_of(container("a", mem="1Gi", cores=200), container("b", percent=-1, gpu=1), numa="maybe")
    assert len(problems) == 4


def test_selectors_apply_to_every_container():
    parsed = parse(
        pod(
            container("a", gpu=1),
            container("b", mem=100),
            use_type="A100, H100,,",
            nouse_type="MIG",
            use_uuid="GPU-1,GPU-1",
            nouse_uuid="",
            numa="True",
            mode="mig,hami-core",
            mig_profiles="4g, 3g.20gb,4g",
        )
    )
    assert parsed is not None
    for part in parsed.containers:
        assert part.devices.models_allowed == ("A100", "H100")
        assert part.devices.models_denied == ("MIG",)
        assert part.devices.uuids_allowed == ("GPU-1",)
        assert part.devices.uuids_denied == ()
        assert part.devices.numa_bind
        assert part.devices.modes_allowed == (DeviceMode.MIG, DeviceMode.SHARED)
        assert part.devices.mig_profiles == ("4g", "3g.20gb")


def test_policies_and_weights_are_read_in_either_vocabulary():
    own = parse(pod(container(gpu=1), node_policy="spread", gpu_policy="numa, binpack"))
    theirs = parse(
        pod(
            container(gpu=1),
            hami_node_policy="spread",
            hami_gpu_policy="numa, binpack",
            weights="memory=3,slot=0,core=1",
        )
    )
    both = parse(pod(container(gpu=1), node_policy="spread", hami_node_policy="spread"))
    assert own.node_policy == theirs.node_policy == both.node_policy == NodePolicy.SPREAD
    assert own.gpu_policy == theirs.gpu_policy == (GpuPolicy.NUMA, GpuPolicy.BINPACK)
    assert theirs.weights == ScoreWeights(slot=0, core=1, memory=3)
    assert own.weights == ScoreWeights()


@pytest.mark.parametrize(
    ("annotations", "node", "gpus"),
    [
        ({"node_policy": "purser"}, "purser", ()),
        ({"node_policy": " fragmentation = 3, spread "}, "fragmentation=3,spread=1", ()),
        ({"hami_node_policy": "best-fit"}, "best-fit", ()),
        ({"gpu_policy": "fragmentation, mutex"}, "", (GpuPolicy.FRAGMENTATION, GpuPolicy.MUTEX)),
        ({"hami_gpu_policy": "topology,spread"}, "", (GpuPolicy.TOPOLOGY_AWARE, GpuPolicy.SPREAD)),
        ({"node_policy": " ", "gpu_policy": ""}, "", ()),
        ({}, "", ()),
    ],
    ids=str,
)
def test_any_policy_may_be_named_in_either_vocabulary(annotations, node, gpus):
    parsed = parse(pod(container(gpu=1), **annotations))
    assert (parsed.node_policy, parsed.gpu_policy) == (node, gpus)


def test_a_pod_that_requires_it_says_of_each_container_what_would_hold_it():
    parts = parse(
        pod(container("a", mem=1000), container("b", gpu=2, mem=1000), container("c", gpu=1), enforcement="required")
    )
    assert [part.devices.held_by for part in parts.containers] == [
        ("mig", "mps", "hami-core", "whole-device"),
        ("mig", "hami-core", "whole-device"),  # a container is the client of one MPS daemon
        ("mig", "mps", "hami-core", "whole-device"),  # of a GPU that is divided it would get a part
    ]
    assert not any(part.devices.held_by for part in parse(pod(container(mem=1000))).containers)


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        (
            {"node_policy": "binpak"},
            "purser.dev/node-policy: unknown policy 'binpak' for nodes: must be one of best-fit,",
        ),
        (
            {"hami_gpu_policy": "binpack,frgamentation"},
            "hami.io/gpu-scheduler-policy: unknown policy 'frgamentation' for GPUs",
        ),
        ({"gpu_policy": "spread", "hami_gpu_policy": "numa"}, "differ: keep only one of them"),
        ({"numa": "yes"}, "nvidia.com/numa-bind: must be true or false"),
        (
            {"enforcement": "Required"},
            'purser.dev/enforcement "Required" is not valid: set it to "required", or remove it',
        ),
        (
            {"mode": "passthrough"},
            '"passthrough" for annotation nvidia.com/vgpu-mode: must be one of hami-core, mig, mps',
        ),
        ({"mig_profiles": "4g,20gb"}, '"20gb" is not a MIG profile: use one such as 4g.20gb or 4g'),
        (
            {"weights": "slot=1,core=1"},
            "must name slot, core and memory exactly once each: use a value such as slot=1,core=1,memory=1",
        ),
        ({"weights": "slot=0,core=0,memory=0"}, "has no weight greater than 0"),
        ({"weights": "slot=1,core=1,memory=-1"}, "has a weight that is not an integer from 0 to 1000000"),
        ({"weights": "slot=1,core=1,memory=1,disk=1"}, "once each"),
        ({"weights": "slot=1,core=1,memory=1,memory=2"}, "once each"),
        ({"weights": "slot==1,core=1,memory=1"}, "not an integer"),
        ({"weights": "slot,core=1,memory=1"}, "not an integer"),
        ({"weights": "slot=99999999,core=1,memory=1"}, "not an integer"),
        ({"use_type": ",".join(map(str, range(2000)))}, "lists 2000 names, more than the maximum of 1024"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_invalid_annotation_is_refused(annotations, says):
    (problem,) = problems_of(container(gpu=1), **annotations)
    assert says in problem


@pytest.mark.parametrize(
    "containers",
    [
        [("i", INIT, 1), ("a", APP, 1)],
        [("i", INIT, 2), ("a", APP, 3), ("b", APP, 1)],
        [("i", INIT, 1), ("j", INIT, 2), ("a", APP, 2)],
        [("s", SIDECAR, 2), ("i", INIT, 1), ("a", APP, 1)],
        [("i", INIT, 4), ("a", APP, 0)],
        [("i", INIT, 1), ("s", SIDECAR, 1), ("a", APP, 3)],
    ],
    ids=str,
)
def test_init_containers_whose_devices_go_on_for_certain_are_served(containers):
    parsed = parse(pod(*(container(name, kind, gpu=count) for name, kind, count in containers)))
    assert [part.name for part in parsed.containers] == [name for name, _, count in containers if count]


@pytest.mark.parametrize(
    ("containers", "who"),
    [
        ([("i", INIT, 2), ("a", APP, 1)], ("i", "a")),
        ([("i", INIT, 2), ("j", INIT, 1), ("a", APP, 2)], ("i", "j")),
        ([("i", INIT, 3), ("s", SIDECAR, 2), ("a", APP, 1)], ("i", "s")),
        ([("i", INIT, 2), ("j", INIT, 4), ("a", APP, 3)], ("j", "a")),
    ],
    ids=str,
)
def test_init_containers_whose_devices_go_on_by_chance_are_refused(containers, who):
    (problem,) = problems_of(*(container(name, kind, gpu=count) for name, kind, count in containers))
    assert f'init container "{who[0]}"' in problem
    assert f'container "{who[1]}" asks for' in problem


def test_each_resource_has_a_pool_of_its_own():
    assert parse(pod(container("i", INIT, mig=2), container("a", gpu=1))) is not None
    (problem,) = problems_of(container("i", INIT, mig=2), container("j", INIT, gpu=1), container("a", gpu=1))
    assert (
        problem == "init containers ask for both nvidia.com/gpu and nvidia.com/mig-1g.5gb: all init containers must "
        "ask for the same resource"
    )


@pytest.mark.parametrize(
    ("limits", "requests", "added"),
    [
        ({"gpu": 1}, {}, {}),
        ({"mem": 100}, {}, {"gpu": 1}),
        ({"gpu": 3, "mem": 100}, {"gpu": 3}, {}),
        ({"vmem": 100}, {}, {"gpu": 1}),
        ({"vnum": 3}, {}, {"gpu": 3}),
        ({"vgpu": 2, "vgpumem": 8}, {}, {"gpu": 2}),
        ({"vgpumem": 8}, {}, {"gpu": 1}),
        ({"gpumem": 8}, {}, {"gpu": 1}),
        ({}, {"gpu": 2}, {"gpu": 2}),
        ({}, {"mig": 2}, {"mig": 2}),
        ({"shared": 1}, {}, {}),
        ({}, {"gpu": 2, "mem": 50}, {"gpu": 2, "mem": 50}),
        ({}, {}, {}),
    ],
    ids=str,
)
def test_defaults_are_what_kubelet_and_the_api_server_need(limits, requests, added):
    spec = pod(container(requests=requests, **limits))
    assert dialects.default_limits(spec) == ({"train": spell(added)} if added else {})


def test_a_zero_in_other_words_stays_no_mixture_once_the_webhook_has_added_the_gpu():
    before, after = (pod(container(cores=0, vmem=1, **added)) for added in ({}, {"gpu": 1}))
    assert dialects.parse(after) == dialects.parse(before)


ONE_WORD = (
    {"gpu": 2},
    {"mem": 4096},
    {"percent": 50},
    {"cores": 30},
    {"vmem": 8000},
    {"vnum": 3},
    {"vgpu": 2},
    {"vgpumem": 3000},
    {"vgpu": 1, "vgpumem": 3000},
    {"vgpupercent": 50},
    {"vgpucores": 50},
    {"gpumem": 3},
    {"shared": 2},
    {"mig": 1},
)
ZEROS = (
    "gpu",
    "mem",
    "percent",
    "vmem",
    "vnum",
    "vgpu",
    "vgpumem",
    "vgpupercent",
    "vgpucores",
    "gpumem",
    "gpucount",
    "mig",
)
"""All but compute in HAMi's words, where a zero says that others may compute beside, and the rank."""


@pytest.mark.parametrize("zero", ["0", "0k", "0Gi", "-0"])
@pytest.mark.parametrize("limits", ONE_WORD, ids=str)
def test_zeros_of_other_words_are_as_absent(limits, zero):
    beside = {word: zero for word in ZEROS if word not in limits}
    plain, with_zeros = pod(container(**limits)), pod(container(requests=beside, **limits, **beside))
    assert msgspec.structs.replace(parse(with_zeros), kubelet_pod=None) == msgspec.structs.replace(
        parse(plain), kubelet_pod=None
    )
    wanted = {**spell(limits), **dialects.default_limits(plain).get("train", {})}
    added = dialects.default_limits(with_zeros).get("train", {})
    zeros = spell(beside)
    assert {name: text for name, text in {**zeros, **spell(limits), **added}.items() if text != zero} == wanted


def test_a_task_priority_is_read_for_the_agent():
    assert hami.task_priority(container(mem=1, priority=0)) == 0
    assert hami.task_priority(container(mem=1, priority=1)) == 1
    assert hami.task_priority(container(mem=1)) is None
    assert hami.task_priority(container(mem=1, priority=7)) is None


quantities = st.one_of(
    st.integers(-5, 120).map(str),
    st.sampled_from(
        ["16Gi", "3k", "1e3", "", " 4 ", "٣", "0x10", "1_000", "NaN", "-0", "+2", "500m", "1e-3", "9" * 40]
    ),
    any_text(max_size=8),
)
texts = st.one_of(
    st.sampled_from(
        ["binpack", "spread,numa", "purser,mutex", "spread=2,purser", "slot=1,core=1,memory=1", "true", "A100,"]
    ),
    any_text(max_size=12),
)


@st.composite
def pods(draw):
    words = sorted(dialects.RESOURCES)
    keys = sorted(
        pod(use_type="", nouse_type="", numa="", mode="", mig_profiles="", node_policy="", gpu_policy="").annotations
    )
    amounts = st.dictionaries(st.sampled_from(words), quantities, max_size=4)
    containers = tuple(
        ContainerSpec(name=f"c{i}", kind=kind, limits=draw(amounts), requests=draw(amounts))
        for i, kind in enumerate(draw(st.lists(st.sampled_from([INIT, SIDECAR, APP]), max_size=4)))
    )
    return PodManifest("u", "ns", "p", draw(st.dictionaries(st.sampled_from(keys), texts)), containers)


@given(pods())
def test_any_pod_is_either_read_or_refused_with_sentences(spec):
    try:
        parsed = parse(spec)
    except DialectError as error:
        assert error.problems
        assert all(len(problem) > 20 for problem in error.problems)
        return
    assert (parsed is None) == (not dialects.asks_for_devices(spec))
    for part in parsed.containers if parsed else ():
        devices = part.devices
        assert devices.count >= 1
        assert (devices.memory_mib is None) != (devices.memory_percent is None)
        assert 0 <= devices.cores_percent <= 100


WITH_A_PRIORITY_BESIDE = ContainerSpec(
    name="c0", kind=INIT, requests={"aliyun.com/gpu-mem": "1", "nvidia.com/priority": "1", "nvidia.com/gpucores": "0"}
)


@given(pods())
@example(PodManifest("u", "ns", "p", {}, (WITH_A_PRIORITY_BESIDE,)))
def test_a_pod_with_its_defaults_asks_for_the_same_as_before(spec):
    try:
        parsed = parse(spec)
    except DialectError:
        return
    added = dialects.default_limits(spec)
    completed = PodManifest(
        "u",
        "ns",
        "p",
        spec.annotations,
        tuple(
            ContainerSpec(c.name, c.kind, {**c.limits, **added.get(c.name, {})}, c.requests) for c in spec.containers
        ),
    )
    assert parse(completed) == parsed
    assert dialects.default_limits(completed) == {}


def test_a_pod_whose_annotation_names_no_container_asks_for_nothing() -> None:
    pod = PodManifest("u", "ns", "p", {INIT_RESOURCES_ANNOTATION: "{}"}, (ContainerSpec("c", ContainerKind.APP),))
    assert parse(pod) is None


@pytest.mark.parametrize(("text", "bound"), [("1", True), ("T", True), ("0", False), ("FALSE", False), ("f", False)])
def test_numa_binding_is_read_as_go_reads_booleans(text, bound):
    parsed = parse(pod(container(gpu=1), numa=text))
    assert parsed is not None
    assert parsed.containers[0].devices.numa_bind is bound


def test_a_container_of_thousands_of_names_is_refused_in_a_sentence_and_few_are_looked_at(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(nvidia, "asks_for", lambda _, resource: not asked.append(resource))
    names = {f"nvidia.com/gpu.{number}": "0" for number in range(3000)} | {"nvidia.com/gpu": "1"}
    (problem,) = problems_of(ContainerSpec("train", APP, names))
    assert "mixes nvidia.com/gpu.0 and" in problem
    assert len(problem) < 400
    assert not asked


def test_a_pods_containers_ask_for_no_more_devices_than_one_may() -> None:
    assert parse(pod(container("a", shared=1000), container("b", shared=24))) is not None
    (problem,) = problems_of(container("a", shared=1000), container("b", shared=25))
    assert problem == "the pod's containers ask for 1025 devices in total: the maximum is 1024"


VF = "mellanox.com/vf"


def with_vfs(**limits):
    return (
        container(gpu=1)
        if not limits
        else msgspec.structs.replace(container(gpu=1), limits={"nvidia.com/gpu": "1", **limits})
    )


@pytest.mark.parametrize(
    ("limits", "value", "found"),
    [
        ({VF: "2"}, None, GpuNic.PREFERRED),
        ({VF: "2"}, " required ", GpuNic.REQUIRED),
        ({VF: "1", "nvidia.com/gpumem": "100"}, "preferred", GpuNic.PREFERRED),
        ({}, "preferred", None),
        ({VF: "0"}, None, None),
        ({"cpu": "1", "hugepages-2Mi": "2Mi", "nvidia.com/gpumem": "100"}, None, None),
    ],
)
def test_who_asks_for_network_devices_beside_gpus_wants_them_near(limits, value, found):
    annotations = {} if value is None else {GPU_NIC_ANNOTATION: value}
    request = parse(msgspec.structs.replace(pod(with_vfs(**limits)), annotations=annotations))
    assert request.gpu_nic is found
    assert request.containers[0].beside == (((VF, int(limits[VF])),) if limits.get(VF, "0") != "0" else ())


@pytest.mark.parametrize(
    ("limits", "value", "said"),
    [
        ({VF: "2"}, "REQUIRED", "purser.dev/gpu-nic: must be preferred or required"),
        ({VF: "2"}, "required" * 9000, "preferred or required"),
        ({VF: "2"}, "\x00", "invalid value"),
        ({}, "required", "no container asks for both GPUs and devices of an SR-IOV pool"),
        ({VF: "many"}, "required", "no container asks for both GPUs and devices of an SR-IOV pool"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(limits, value, said):
    found = msgspec.structs.replace(pod(with_vfs(**limits)), annotations={GPU_NIC_ANNOTATION: value})
    with pytest.raises(DialectError) as caught:
        parse(found)
    [problem] = caught.value.problems
    assert said in problem
    assert len(problem) < 300


def test_other_vendors_devices_are_no_gpus_of_a_pair():
    limits = {"huawei.com/Ascend910B4": "1", VF: "1"}
    asked = pod(msgspec.structs.replace(container(gpu=1), limits=limits))
    request = parse(msgspec.structs.replace(asked, families=("Ascend 910B4",)))
    assert request.family
    assert request.gpu_nic is None
