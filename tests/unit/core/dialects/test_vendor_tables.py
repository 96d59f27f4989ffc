"""Pods in the words of other vendors' families, by HAMi's tables and examples (``pkg/device/*``, ``examples``)."""

import msgspec
import pytest

from purser.core.dialects import (
    DialectError,
    asks_for_devices,
    default_limits,
    grant_annotations,
    parse,
    record_annotations,
)
from purser.core.dialects.hami_codec import decode_pod_devices
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.vendors.catalogue import FAMILIES, FAMILY_NAMES

MLU, MLU_MEM, MLU_CORES = "cambricon.com/vmlu", "cambricon.com/mlu.smlu.vmemory", "cambricon.com/mlu.smlu.vcore"
DCU, DCU_MEM, DCU_CORES = "hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores"
BI, BI_MEM, BI_CORES = "iluvatar.ai/BI-V150-vgpu", "iluvatar.ai/BI-V150.vMem", "iluvatar.ai/BI-V150.vCore"
NPU, NPU_MEM = "huawei.com/Ascend910A", "huawei.com/Ascend910A-memory"
SGPU, SGPU_MEM, SGPU_CORES = "metax-tech.com/sgpu", "metax-tech.com/vmemory", "metax-tech.com/vcore"
VXPU, VXPU_MEM = "kunlunxin.com/vxpu", "kunlunxin.com/vxpu-memory"
C910 = "huawei.com/Ascend910C"
MT, MT_MEM, MT_CORES = "mthreads.com/vgpu", "mthreads.com/sgpu-memory", "mthreads.com/sgpu-core"


def pod(*containers, **annotations):
    specs = tuple(
        ContainerSpec(f"c{place}", ContainerKind.APP, limits={name: str(value) for name, value in limits.items()})
        for place, limits in enumerate(containers)
    )
    named = {name.replace("__", "/"): text for name, text in annotations.items()}
    return PodManifest("u-1", "team", "job", named, specs, families=frozenset(FAMILY_NAMES))


def asked(limits):
    request = parse(pod(limits))
    assert request is not None
    devices = request.containers[0].devices
    return devices.count, devices.memory_mib, devices.memory_percent, devices.cores_percent


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({MLU: 1, MLU_MEM: 20, MLU_CORES: 10}, (1, 5120, None, 10)),
        ({MLU: 1, MLU_MEM: 20}, (1, 5120, None, 100)),
        ({MLU: 2}, (2, None, 100, 100)),
        ({DCU: 1, DCU_MEM: 2000, DCU_CORES: 60}, (1, 2000, None, 60)),
        ({DCU: 1, DCU_MEM: 2000}, (1, 2000, None, 100)),
        ({DCU: 1, DCU_MEM: 0}, (1, None, 100, 100)),
        ({BI: 1, BI_MEM: 64, BI_CORES: 50}, (1, 16384, None, 50)),
        ({BI: 1}, (1, None, 100, 0)),
        ({BI: 2}, (2, None, 100, 100)),
        ({BI: 2, BI_MEM: 64, BI_CORES: 200}, (2, 16384, None, 100)),
        ({NPU: 1, NPU_MEM: 2000}, (1, 2184, None, 0)),
        ({NPU: 1, NPU_MEM: 2185}, (1, 4369, None, 0)),
        ({NPU: 1, NPU_MEM: 17476}, (1, 17476, None, 0)),
        ({NPU: 1, NPU_MEM: 17477}, (1, None, 100, 100)),
        ({NPU: 4}, (4, None, 100, 100)),
        ({NPU: 2, NPU_MEM: 32768}, (2, None, 100, 100)),
        ({MT: 1, MT_MEM: 32, MT_CORES: 8}, (1, 16384, None, 50)),
        ({MT: 1}, (1, None, 100, 100)),
        ({MT: 2, MT_MEM: 192, MT_CORES: 32}, (2, None, 100, 100)),
        ({"metax-tech.com/gpu": 2}, (2, None, 100, 100)),
        ({"amd.com/gpu": 1, "amd.com/gpumem": 3000, "amd.com/gpucores": 30}, (1, 3000, None, 30)),
        ({"kunlunxin.com/xpu": 8}, (8, None, 100, 100)),
        ({"kunlunxin.com/xpu": 2}, (2, None, 100, 100)),
        ({VXPU: 1}, (1, None, 100, 100)),
        ({VXPU: 1, VXPU_MEM: 24576}, (1, 24576, None, 25)),
        ({VXPU: 1, VXPU_MEM: 24577}, (1, 49152, None, 50)),
        ({VXPU: 2, VXPU_MEM: 49152}, (2, 49152, None, 50)),
        ({VXPU: 1, VXPU_MEM: 49153}, (1, None, 100, 100)),
        ({C910: 1}, (2, None, 100, 100)),
        ({C910: 4}, (4, None, 100, 100)),
        ({C910: 1, f"{C910}-memory": 16000}, (2, 16384, None, 0)),
        ({"aws.amazon.com/neuron": 4}, (4, None, 100, 100)),
        ({"aws.amazon.com/neuron": 1}, (1, None, 100, 100)),
        ({"aws.amazon.com/neuron": 3}, (3, None, 100, 100)),
        ({"aws.amazon.com/neuroncore": 1}, (1, None, 50, 50)),
        ({SGPU: 1}, (1, None, 100, 100)),
        ({SGPU: 2}, (2, None, 100, 100)),
        ({SGPU: 1, SGPU_CORES: 60}, (1, None, 100, 60)),
        ({SGPU: 1, SGPU_MEM: 16}, (1, 16384, None, 100)),
        ({SGPU: 1, SGPU_CORES: 60, SGPU_MEM: 4}, (1, 4096, None, 60)),
        ({SGPU: 1, SGPU_CORES: 60, SGPU_MEM: "2048Mi"}, (1, 2048, None, 60)),
        ({SGPU: 1, SGPU_CORES: 60, SGPU_MEM: "16Gi"}, (1, 16384, None, 60)),
        ({SGPU: 2, SGPU_CORES: 60, SGPU_MEM: 4}, (2, 4096, None, 60)),
        ({"aws.amazon.com/neuroncore": 2}, (1, None, 100, 100)),
        ({"aws.amazon.com/neuroncore": 6}, (3, None, 100, 100)),
    ],
)
def test_what_a_container_asks_for(limits, expected):
    assert asked(limits) == expected


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({DCU_MEM: 2000}, "asks for hygon.com/dcumem but not for hygon.com/dcunum"),
        ({DCU: 1, DCU_MEM: "16Gi"}, "is not an integer: must be a number of MiB"),
        ({DCU: 1, DCU_CORES: 101}, 'hygon.com/dcucores "101" is out of range'),
        ({NPU: 1, NPU_MEM: 32769}, "is out of range: must be at most"),
        ({NPU: 2, NPU_MEM: 2000}, "a container can have several devices of Ascend 910A only if they are whole"),
        (
            {NPU: 1, "huawei.com/Ascend910A-core": 2},
            "Ascend910A-core applies only to pods that use soft splitting",
        ),
        ({MT: 1, MT_MEM: 3}, "one of 2, 4, 8, 16, 32, 64, 96"),
        ({MT: 2, MT_MEM: 64}, "it, or set it to 192"),
        ({BI: 2, BI_CORES: 50}, "it, or set it to 200"),
        ({"kunlunxin.com/xpu": 3}, "be one of 1, 2, 4, 8"),
        ({VXPU: 1, VXPU_MEM: 98305}, "is out of range: must be at most"),
        (
            {SGPU: 1, SGPU_MEM: 2000},
            'vmemory "2000" is out of range: must be a number of 1024 MiB units from 0 to 1024',
        ),
        (
            {SGPU: 1, SGPU_MEM: "1Ki"},
            'vmemory "1Ki" is not a valid amount of device memory: must be bytes such as '
            "2048Mi, or a number of GiB such as 2",
        ),
        ({SGPU: 1, SGPU_MEM: "x"}, 'vmemory "x" is not an integer: must be a'),
        ({SGPU: 1, SGPU_CORES: 101}, 'vcore "101" is out of range'),
        ({VXPU: 3}, "be one of 1, 2, 4, 8"),
        ({C910: 3}, "one of 2, 4, 6, 8, 10, 12, 14, 16"),
        (
            {C910: 4, f"{C910}-memory": 16384},
            "a container can have several devices of Ascend 910C only if they are whole",
        ),
        ({DCU: 1, MLU: 1}, "mixes"),
        ({DCU: 1, "nvidia.com/gpu": 1}, "mixes nvidia.com/gpu and hygon.com/dcunum"),
    ],
)
def test_what_is_refused_and_how(limits, sentence):
    with pytest.raises(DialectError, match=sentence):
        parse(pod(limits))


def test_the_words_of_a_family_that_is_not_named_are_not_pursers():
    share = {DCU: 1, DCU_MEM: "16Gi"}
    for families in ((), {"AMD"}):
        manifest = msgspec.structs.replace(pod(share), families=frozenset(families))
        assert not asks_for_devices(manifest)
        assert parse(manifest) is None
        assert record_annotations(manifest) == record_annotations(pod({"nvidia.com/gpu": 1}))
    beside = msgspec.structs.replace(pod({"nvidia.com/gpu": 1, **share}), families=frozenset())
    assert parse(beside).family == ""


def test_records_that_may_not_be_forged_are_those_of_what_the_pod_asks_for():
    assert "hami.io/dcu-devices-allocated" in record_annotations(pod({DCU: 1}))
    of_gpus = record_annotations(pod({"nvidia.com/gpu": 1}))
    assert "hami.io/vgpu-devices-allocated" in of_gpus
    assert not {"predicate-time", "huawei.com/Ascend910A", "hami.io/dcu-devices-allocated"} & {*of_gpus}


def test_a_pod_gets_devices_of_one_family():
    with pytest.raises(
        DialectError, match="devices of NVIDIA and Hygon DCU, but a pod can have devices of only one family"
    ):
        parse(pod({"nvidia.com/gpu": 1}, {DCU: 1}))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_is_asked_for_by_its_number_and_gets_whole_devices(family):
    count = family.counts[-1] if family.counts else 2
    request = parse(pod({family.resource: count}))
    assert request.systems == (family.name,)
    devices = request.containers[0].devices
    if family.has_profiles:
        assert (devices.count, devices.slices.slices, devices.resource) == (1, count, family.resource)
    else:
        assert (devices.count, devices.memory_percent, devices.resource) == (count, 100, family.resource)
    assert not asks_for_devices(pod({family.resource: 0}))


@pytest.mark.parametrize(
    ("limits", "added"),
    [
        ({DCU: 1}, {}),
        ({BI: 2}, {BI_CORES: "200"}),
        ({MT: 1}, {MT_MEM: "96", MT_CORES: "16"}),
        ({MT: 2}, {MT_MEM: "192", MT_CORES: "32"}),
        ({MT: 1, MT_MEM: 8}, {}),
        ({C910: 1, f"{C910}-memory": 16384}, {C910: "2"}),
        ({C910: 4}, {}),
    ],
)
def test_what_the_webhook_adds_parses_to_the_same(limits, added):
    spec = pod(limits)
    assert default_limits(spec) == ({"c0": added} if added else {})
    assert parse(spec).containers == parse(pod({**limits, **added})).containers


SOFT, NPU_CORES = {"huawei.com/vnpu-mode": "hami-core"}, "huawei.com/Ascend910A-core"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({NPU: 1, NPU_MEM: 2000}, (1, 2000, None, 0)),
        ({NPU: 1, NPU_MEM: 2000, NPU_CORES: 30}, (1, 2000, None, 30)),
        ({NPU: 1, NPU_MEM: 2000, NPU_CORES: 100}, (1, 2000, None, 100)),
        ({NPU: 1}, (1, None, 100, 0)),
        ({NPU: 3, NPU_MEM: 17477, NPU_CORES: 5}, (3, 17477, None, 5)),
    ],
)
def test_ascends_soft_split_has_shares_of_any_size_and_of_any_number(limits, expected):
    devices = parse(pod(limits, **SOFT)).containers[0].devices
    assert (devices.count, devices.memory_mib, devices.memory_percent, devices.cores_percent) == expected
    assert devices.soft_split
    assert devices.alike == ("" if devices.cores_percent == 100 else "the soft split")


def test_ascends_hard_split_knows_templates_and_no_compute():
    for mode in ({}, {"huawei.com/vnpu-mode": "vnpu"}):
        devices = parse(pod({NPU: 1, NPU_MEM: 2000}, **mode)).containers[0].devices
        assert (devices.memory_mib, devices.soft_split, devices.alike) == (2184, False, "")
        with pytest.raises(DialectError, match="soft splitting: remove it, or annotate the pod with"):
            parse(pod({NPU: 1, NPU_MEM: 2000, NPU_CORES: 30}, **mode))
    assert not parse(pod({DCU: 1}, **SOFT)).containers[0].devices.soft_split


def test_ascends_record_of_the_soft_split_has_compute_and_no_template():
    share = {NPU: 1, NPU_MEM: 2000, NPU_CORES: 30}
    for cores in (30, 100):
        record = recorded(pod({**share, NPU_CORES: cores}, **SOFT), DeviceShare("d1", 2000, cores))
        assert msgspec.json.decode(record["huawei.com/Ascend910A"]) == [{"UUID": "d1", "memory": 2000, "core": cores}]
        assert record["hami.io/Ascend910A-devices-to-allocate"] == f"d1,Ascend910A,2000,{cores}:;"


def test_a_device_has_to_be_allowed_by_both_of_two_lists():
    both = {"hami.io/use-xpu-uuid": "x1, x2", "baidu.com/use-gpuuuid": "x2,x3", "hami.io/no-use-xpu-uuid": "x4"}
    devices = parse(pod({VXPU: 1}, **both)).containers[0].devices
    assert (devices.uuids_allowed, devices.uuids_denied) == (("x2",), ("x4",))
    with pytest.raises(DialectError, match=r"use-xpu-uuid and baidu\.com/use-gpuuuid together exclude every device"):
        parse(pod({VXPU: 1}, **{**both, "baidu.com/use-gpuuuid": "x3"}))


QOS, APP_CLASS = "metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class"


def test_sgpus_record_has_its_own_list_and_the_quality_of_service():
    share = {SGPU: 1, SGPU_MEM: 4, SGPU_CORES: 60}
    record = recorded(pod(share, {}), DeviceShare("d1", 4096, 60))
    assert record["hami.io/metax-sgpu-devices-to-allocate"] == "d1,Metax-SGPU,4096,60:;;"
    assert record["metax-tech.com/gpu-devices-allocated"] == '[[{"uuid":"d1","compute":60,"vRam":4096}],[]]'
    assert record["metax-tech.com/predicate-time"] == "1700000000123"
    assert record[QOS] == "best-effort"
    assert QOS not in recorded(pod(share, **{QOS: "fixed-share"}), DeviceShare("d1", 4096, 60))
    assert QOS not in record_annotations(pod(share))


@pytest.mark.parametrize(("said", "alike"), [({}, "best-effort"), ({QOS: "fixed-share"}, "fixed-share")])
def test_shares_of_an_sgpu_have_one_quality_of_service(said, alike):
    share = {SGPU: 1, SGPU_MEM: 4, SGPU_CORES: 60}
    assert parse(pod(share, **said)).containers[0].devices.alike == alike
    assert parse(pod({SGPU: 1}, **said)).containers[0].devices.alike == ""


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({QOS: "fast"}, "sgpu-qos-policy: must be one of best-effort, fixed-share, burst-share"),
        ({APP_CLASS: "onlin"}, "sgpu-app-class"),
        (
            {APP_CLASS: "offline"},
            "asks for 2 devices, but with annotation metax-tech.com/sgpu-app-class it can have only one",
        ),
    ],
)
def test_what_pods_may_not_say_of_sgpus(said, sentence):
    with pytest.raises(DialectError, match=sentence):
        parse(pod({SGPU: 2}, **said))


def test_an_sgpu_of_class_online_counts_no_compute_and_says_no_quality():
    spec = pod({SGPU: 1, SGPU_MEM: 4}, **{APP_CLASS: "online"})
    assert parse(spec).containers[0].devices.cores_percent == 0
    record = recorded(spec, DeviceShare("d1", 4096, 0))
    assert record["metax-tech.com/gpu-devices-allocated"] == '[[{"uuid":"d1","vRam":4096}]]'
    assert QOS not in record


def test_vxpus_record_has_the_compute_of_the_share():
    record = recorded(pod({VXPU: 1, VXPU_MEM: 24576}), DeviceShare("d1", 24576, 25))
    assert record["hami.io/xpu-devices-to-allocate"] == "d1,XPU,24576,25:;"
    assert record["hami.io/xpu-devices-allocated"] == "d1,XPU,24576,25:;"


def test_selectors_are_the_familys_own():
    amd = {"amd.com/use-gputype": "MI300X, MI325X", "amd.com/nouse-gputype": "MI210"}
    devices = parse(pod({"amd.com/gpu": 1}, **amd)).containers[0].devices
    assert (devices.models_allowed, devices.models_denied) == (("MI300X", "MI325X"), ("MI210",))
    spec = pod(
        {DCU: 1}, **{"hygon.com/use-dcutype": "Z100", "hygon.com/nouse-gpuuuid": "a, b", "nvidia.com/use-gputype": "T4"}
    )
    devices = parse(spec).containers[0].devices
    assert (devices.models_allowed, devices.uuids_denied) == (("Z100",), ("a", "b"))


NODE = NodeInventory("n1", tuple(Device(f"d{index}", index, "x", 32768) for index in range(4)))


def recorded(spec, *shares):
    part = ContainerGrant("c0", ContainerKind.APP, shares)
    request = parse(spec)
    return grant_annotations(spec, request.systems, Grant("u-1", "team", "job", "n1", (part,)), NODE, 1_700_000_000_123)


COMMON = {
    "hami.io/vgpu-node": "n1",
    "hami.io/vgpu-time": "1700",
    "hami.io/bind-phase": "allocating",
    "hami.io/bind-time": "1700",
}


def test_mlus_record_has_the_profile_in_the_vendors_units():
    assert recorded(pod({MLU: 1, MLU_MEM: 20, MLU_CORES: 10}), DeviceShare("d2", 5120, 10)) == {
        **COMMON,
        "CAMBRICON_DSMLU_ASSIGNED": "false",
        "CAMBRICON_DSMLU_PROFILE": "2_10_20",
        "hami.io/cambricon-mlu-devices-to-allocate": "d2,MLU,5120,10:;",
        "hami.io/cambricon-mlu-devices-allocated": "d2,MLU,5120,10:;",
    }


def test_ascends_record_names_the_template():
    record = recorded(pod({NPU: 1, NPU_MEM: 2000}), DeviceShare("d1", 2184, 0))
    assert msgspec.json.decode(record["huawei.com/Ascend910A"]) == [{"UUID": "d1", "temp": "vir02", "memory": 2184}]
    assert record["hami.io/Ascend910A-devices-to-allocate"] == "d1,Ascend910A,2184,0:;"
    assert record["predicate-time"] == "1700"


def test_ascends_record_of_whole_devices_names_no_template():
    record = recorded(pod({NPU: 2}), DeviceShare("d0", 32768, 100), DeviceShare("d1", 32768, 100))
    assert [each.get("temp") for each in msgspec.json.decode(record["huawei.com/Ascend910A"])] == [None, None]


def test_mthreads_record_has_indexes_nanoseconds_and_sixteenths():
    record = recorded(pod({MT: 2}), DeviceShare("d3", 49152, 100), DeviceShare("d0", 49152, 100))
    assert record["mthreads.com/gpu-index"] == "3,0"
    assert record["mthreads.com/request-gpu-num"] == "2"
    assert record["mthreads.com/predicate-time"] == "1700000000123"
    (devices, *_) = decode_pod_devices(record["hami.io/mthreads-vgpu-devices-allocated"])
    assert {device.cores_percent for device in devices} == {16}


def test_neurons_and_xpus_are_named_by_their_numbers_on_the_node():
    whole = [DeviceShare(f"d{index}", 98304, 100) for index in (3, 0)]
    record = recorded(pod({"kunlunxin.com/xpu": 1}), whole[0])
    assert (record["BAIDU_COM_DEVICE_IDX"], record["hami.io/kunlun-allocated"]) == ("3", "d3,kunlun,98304,100:;")
    record = recorded(pod({"aws.amazon.com/neuron": 1}), whole[1])
    assert (record["AWS_NEURON_IDS"], record["NEURON_ALLOCATED"], record["NEURON_ALLOC_TIME"]) == (
        "0",
        "false",
        "1700000000123",
    )
    assert record["aws.amazon.com/predicate-node"] == "n1"


def test_lists_of_whole_devices_have_the_compute_that_hami_counts():
    """By it HAMi's scheduler knows what is taken, where it gets such a node back with pods running."""
    lists = {
        "metax-tech.com/gpu": ("hami.io/metax-gpu-devices-allocated", 100),
        "enflame.com/gcu": ("hami.io/enflame-gcu-devices-allocated", 100),
        "kunlunxin.com/xpu": ("hami.io/kunlun-allocated", 100),
        "aws.amazon.com/neuron": ("hami.io/aws-neuron-devices-allocated", 3),
        "birentech.com/gpu": ("hami.io/Biren-devices-allocated", 0),
        NPU: ("hami.io/Ascend910A-devices-allocated", 0),
    }
    for resource, (name, cores) in lists.items():
        (devices, *_) = decode_pod_devices(recorded(pod({resource: 1}), DeviceShare("d0", 100, 100))[name])
        assert [device.cores_percent for device in devices] == [cores]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_record_is_readable_by_hamis_decoder_and_its_owner(family):
    record = recorded(pod({family.resource: 1}), DeviceShare("d0", 32768, 100))
    of_hami = {name: text for name, text in record.items() if name.startswith("hami.io/")}
    lists = [text for name, text in of_hami.items() if name.endswith(("-to-allocate", "-allocated"))]
    assert lists
    assert all(decode_pod_devices(text)[0][0].vendor == family.word for text in lists)
