"""Pods in the words of other vendors' families, by HAMi's tables and examples (``pkg/device/*``, ``examples``)."""

import msgspec
import pytest

from purser.core.dialects import DialectError, asks_for_devices, defaults, grant_annotations, parse, record_annotations
from purser.core.dialects.hami_codec import decode_pod_devices
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.vendors.catalogue import FAMILIES, FAMILY_NAMES

MLU, MLU_MEM, MLU_CORES = "cambricon.com/vmlu", "cambricon.com/mlu.smlu.vmemory", "cambricon.com/mlu.smlu.vcore"
DCU, DCU_MEM, DCU_CORES = "hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores"
BI, BI_MEM, BI_CORES = "iluvatar.ai/BI-V150-vgpu", "iluvatar.ai/BI-V150.vMem", "iluvatar.ai/BI-V150.vCore"
NPU, NPU_MEM = "huawei.com/Ascend910A", "huawei.com/Ascend910A-memory"
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
    ],
)
def test_what_a_container_asks_for(limits, expected):
    assert asked(limits) == expected


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({DCU_MEM: 2000}, "asks for hygon.com/dcumem and for no hygon.com/dcunum"),
        ({DCU: 1, DCU_MEM: "16Gi"}, "is not a whole number: write units of 1 MiB"),
        ({DCU: 1, DCU_CORES: 101}, 'hygon.com/dcucores "101" is out of range'),
        ({NPU: 1, NPU_MEM: 32769}, "32768 is the most"),
        ({NPU: 2, NPU_MEM: 2000}, "a container gets several devices of Ascend 910A only whole"),
        ({NPU: 1, "huawei.com/Ascend910A-core": 2}, "Purser does not serve huawei.com/Ascend910A-core"),
        ({MT: 1, MT_MEM: 3}, "use one of 2, 4, 8, 16, 32, 64, 96"),
        ({MT: 2, MT_MEM: 64}, "leave it out, or write 192"),
        ({BI: 2, BI_CORES: 50}, "leave it out, or write 200"),
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
    with pytest.raises(DialectError, match="devices of NVIDIA and Hygon DCU: a pod gets devices of one family"):
        parse(pod({"nvidia.com/gpu": 1}, {DCU: 1}))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_is_asked_for_by_its_number_and_gets_whole_devices(family):
    request = parse(pod({family.resource: 2}))
    assert request.systems == (family.name,)
    devices = request.containers[0].devices
    assert (devices.count, devices.memory_percent, devices.resource) == (2, 100, family.resource)
    assert not asks_for_devices(pod({family.resource: 0}))


@pytest.mark.parametrize(
    ("limits", "added"),
    [
        ({DCU: 1}, {}),
        ({BI: 2}, {BI_CORES: "200"}),
        ({MT: 1}, {MT_MEM: "96", MT_CORES: "16"}),
        ({MT: 2}, {MT_MEM: "192", MT_CORES: "32"}),
        ({MT: 1, MT_MEM: 8}, {}),
    ],
)
def test_what_the_webhook_adds_parses_to_the_same(limits, added):
    spec = pod(limits)
    assert defaults(spec) == ({"c0": added} if added else {})
    assert parse(spec).containers == parse(pod({**limits, **added})).containers


def test_selectors_are_the_familys_own():
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


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_record_is_readable_by_hamis_decoder_and_its_owner(family):
    record = recorded(pod({family.resource: 1}), DeviceShare("d0", 32768, 100))
    lists = [text for name, text in record.items() if name.endswith(("-to-allocate", "-allocated"))]
    assert lists
    assert all(decode_pod_devices(text)[0][0].vendor == family.word for text in lists)
