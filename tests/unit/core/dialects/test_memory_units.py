"""What one of gpushare's and Volcano's words for memory is: the same share whatever a cluster counts in."""

import pytest

from purser.core.dialects import DialectError, environment, grant_annotations, parse
from purser.core.ledger import Usage
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.names import MEMORY_UNITS_ANNOTATION
from purser.core.node.amounts import Holder, listed_amounts
from purser.core.pod.units import read_unit, units_text

from .pods import container, pod

GPU = Device("GPU-a", 3, "T4", 15360, slots=4)
INVENTORY = NodeInventory("n1", (GPU,))


def counted(spec, **units):
    words = {"gpumem": "aliyun.com/gpu-mem", "vmem": "volcano.sh/gpu-memory", "vgpumem": "volcano.sh/vgpu-memory"}
    text = units_text(spec.containers, {words[word]: mib for word, mib in units.items()})
    spec.annotations.update({MEMORY_UNITS_ANNOTATION: text} if text else {})
    return spec


def memory_of(spec):
    request = parse(spec)
    assert request is not None
    return [each.devices.memory_mib for each in request.containers]


@pytest.mark.parametrize("word", ["gpumem", "vmem", "vgpumem"])
def test_a_pod_asks_for_the_same_in_units_of_any_size(word):
    for unit in (1, 10, 512, 1024):
        for units in (1, 3, 15):
            assert memory_of(counted(pod(container(**{word: units})), **{word: unit})) == [units * unit]


def test_each_word_of_a_pod_has_its_own_unit():
    spec = counted(
        pod(container("a", gpumem=3000), container("b", vmem=3), container("c", vgpumem=3)), gpumem=1, vmem=10
    )
    assert spec.annotations[MEMORY_UNITS_ANNOTATION] == "aliyun.com/gpu-mem=1,volcano.sh/gpu-memory=10"
    assert memory_of(spec) == [3000, 30, 3]


def test_usual_units_and_words_that_a_pod_does_not_use_are_not_written():
    units = {"aliyun.com/gpu-mem": 1024, "volcano.sh/gpu-memory": 10}
    assert units_text((container(gpumem=3, mem=5),), units) == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"gpumem": 1 << 20}, "MiB of GPU memory from 1 to 1048575"),
        ({"vmem": 1 << 20}, "10 MiB units from 1 to 104857"),
        ({"vgpumem": "16Gi"}, "10 MiB units"),
    ],
)
def test_amounts_are_bounded_in_their_unit(words, said):
    with pytest.raises(DialectError, match=said):
        parse(counted(pod(container(**words)), gpumem=1, vmem=10, vgpumem=10))


@pytest.mark.parametrize(
    "text", ["x", "nvidia.com/gpumem=2", "aliyun.com/gpu-mem=0", "aliyun.com/gpu-mem=1025", "=" * 500]
)
def test_an_annotation_that_makes_no_sense_is_refused(text):
    spec = pod(container(gpumem=1))
    spec.annotations[MEMORY_UNITS_ANNOTATION] = text
    with pytest.raises(DialectError, match=MEMORY_UNITS_ANNOTATION):
        parse(spec)
    with pytest.raises(ValueError, match=r"must be|remove"):
        read_unit(text)


def test_records_and_variables_are_in_the_unit_of_the_pod():
    share = DeviceShare(GPU.uuid, 3000, 0)
    held = Grant("u-1", "team", "job", "n1", (ContainerGrant("train", ContainerKind.APP, (share,)),))
    part, devices = held.containers[0], {GPU.uuid: GPU}
    mib = counted(pod(container(gpumem=3000)), gpumem=1)
    record = grant_annotations(mib, ["gpushare"], held, INVENTORY, 5)
    assert record["ALIYUN_COM_GPU_MEM_POD"] == "3000"
    assert record["ALIYUN_COM_GPU_MEM_DEV"] == "15360"
    assert record["scheduler.framework.gpushare.allocation"] == '{"0":{"3":3000}}'
    said = environment(mib, held, part, devices)
    assert [said[f"ALIYUN_COM_GPU_MEM_{each}"] for each in ("CONTAINER", "POD", "DEV")] == ["3000", "3000", "15360"]
    blocks = counted(pod(container(vgpumem=300)), vgpumem=10)
    ids = grant_annotations(blocks, ["Volcano vGPU"], held, INVENTORY, 5)["volcano.sh/vgpu-ids-new"]
    assert ids == "GPU-a,NVIDIA,300,0:"
    first = counted(pod(container(vmem=300)), vmem=10)  # as Volcano's plugin: in MiB
    assert environment(first, held, part, devices)["VOLCANO_GPU_ALLOCATED"] == "3000"


def test_nodes_list_memory_in_the_unit_of_the_cluster():
    units = {"aliyun.com/gpu-mem": 1, "volcano.sh/gpu-memory": 10, "volcano.sh/vgpu-memory": 7}
    found = listed_amounts(INVENTORY, (), units)
    assert [found[each] for each in units] == [15360, 1536, 2194]
    assert found["aliyun.com/gpu-count"] == 1


@pytest.mark.parametrize(
    ("unit", "asked", "held", "listed"),
    [(1, 3, 3072, 15360), (1024, 3000, 3000, 15 + 3000 - 2)],
    ids=["GiB, then MiB", "MiB, then GiB"],
)
def test_pods_of_before_the_unit_was_changed_still_fit_in_what_nodes_list(unit, asked, held, listed):
    word = "aliyun.com/gpu-mem"
    holder = Holder({word: asked}, {GPU.uuid: Usage(1, held, 0, pods=1)})
    assert listed_amounts(INVENTORY, [holder], {word: unit})[word] == listed
