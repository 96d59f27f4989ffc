"""Every reason of Purser's own decision, from objects to the line that `purser why` prints."""

import json

import msgspec
import pytest
from tests.unit.core.placement.test_instances import gpu as cut_gpu
from tests.unit.scheduler.explained import cluster, gpu, gpus, node, pod, quota

from purser.core.model import DeviceMode, MigPlacement, NodeInventory, NodePool, PoolPlace
from purser.core.names import (
    CORDONED_GPUS_ANNOTATION,
    ENFORCEMENT_ANNOTATION,
    GPU_NIC_ANNOTATION,
    GPU_POLICY_ANNOTATION,
    INVENTORY_ANNOTATION,
    KUBELET_ANNOTATION,
)
from purser.core.placement import Reason
from purser.lab.hollow import vendors
from purser.scheduler.explaining import ChangeKind, Explainer

EMPTY = {INVENTORY_ANNOTATION: '{"node":"n"}'}
USED = pod("used", gpu(9000), on="n", share={"n-0": (9000, 60)})
GPU = {"nvidia.com/gpu": "4"}


def told(*objects):
    return Explainer(cluster(*objects)).explain("default", "p")


def machine():
    """A kubelet that gives a container's GPUs and CPUs of one NUMA node alone; of its two nodes each has a GPU."""
    return {
        "format": 1,
        "version": "v1.30.0",
        "config": {"topology_policy": "single-numa-node", "cpu_policy": "static"},
        "machine": {
            "numa_nodes": [
                {"node": 0, "memory": {"memory": 1 << 34}, "distances": [10, 20]},
                {"node": 1, "memory": {"memory": 1 << 34}, "distances": [20, 10]},
            ],
            "cpus": [[0, 0, 0, "0-3", [[0, 4]]], [1, 1, 1, "4-7", [[4, 4]]]],
            "num_sockets": 2,
        },
        "resources": {"nvidia.com/gpu": {"groups": [[[0], True, [["n-", "0"]]], [[1], True, [["n-", "1"]]]]}},
        "cpus": {"default": "0-7", "reserved": "0"},
    }


def aligned():
    whole = {"slots": 1, "mode": DeviceMode.WHOLE}
    devices = tuple(gpus("n", 2, numa_nodes=(numa,), **whole)[numa] for numa in range(2))
    made = node("n", devices, annotations={KUBELET_ANNOTATION: json.dumps(machine())})
    made["status"]["nodeInfo"] = {"kubeletVersion": "v1.30.0"}
    return made


def apart():
    """A GPU and a network device below different switches."""
    pools = (NodePool("mellanox.com/vf", (PoolPlace(("root-1",), 1),)),)
    inventory = NodeInventory("n", gpus("n", 1, pcie=("root-0",)), pools=pools)
    return node("n", annotations={INVENTORY_ANNOTATION: msgspec.json.encode(inventory).decode()}, **GPU, **VF)


def on_its_way():
    coming = pod("coming", ALIGNED, on="n", share={"n-0": (16384, 100)})
    coming["status"] = {"phase": "Pending"}
    return coming


def nominated():
    more = pod("more", gpu(16000), priority=9)
    more["status"]["nominatedNodeName"] = "n"
    return more


def of_vendor(name, node_name, count):
    family = vendors.family_of(name)
    made = node(node_name, annotations=vendors.registration(family, node_name, count))
    made["status"]["allocatable"] |= vendors.listed(family, count)
    return made


def xpus(name, count, held=()):
    """Of XPUs 0 and 5 neither is linked with the other."""
    share = {f"n-kunlun-{index}": (98304, 100, None, "kunlunxin.com/xpu") for index in held}
    amounts = {"kunlunxin.com/xpu": str(count)}
    return pod(name, amounts, on="n", share=share) if held else pod(name, amounts)


def vxpu(mib):
    return {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": str(mib)}


QUARTER_OF_XPU = (24576, 25, None, "kunlunxin.com/vxpu", "24576 MiB")
HOLDS_VXPU = pod("used", vxpu(24576), on="n", share={"n-XPU-0": QUARTER_OF_XPU})
PLAIN = node("n", gpus("n", 2))
ONE = node("n", gpus("n", 1))
ALIGNED = {"nvidia.com/gpu": "1", "cpu": "2", "memory": "1Gi"}
VF = {"mellanox.com/vf": "1"}
PAIRED = pod("p", gpu() | VF, annotations={GPU_NIC_ANNOTATION: "required"})
EXAMPLES = {
    Reason.NOT_HEALTHY: (node("n", gpus("n", 1, healthy=False)), pod("p", gpu())),
    Reason.CORDONED: (node("n", gpus("n", 1), annotations={CORDONED_GPUS_ANNOTATION: "n-0"}), pod("p", gpu())),
    Reason.DISPUTED: (ONE, pod("stranger", gpu(), on="n"), pod("p", gpu())),
    Reason.TYPE_MISMATCH: (ONE, pod("p", gpu(), annotations={"nvidia.com/use-gputype": "A100"})),
    Reason.UUID_MISMATCH: (ONE, pod("p", gpu(), annotations={"nvidia.com/use-gpuuuid": "GPU-1"})),
    Reason.NUMA_NOT_FIT: (
        node("n", (*gpus("n", 1, numa_nodes=(0,)), gpus("n", 2, numa_nodes=(1,))[1])),
        pod("p", gpu(100, 2), annotations={"nvidia.com/numa-bind": "true"}),
    ),
    Reason.NOT_ENFORCED: (ONE, pod("p", gpu(100), annotations={ENFORCEMENT_ANNOTATION: "required"})),
    Reason.SLOTS_EXHAUSTED: (
        node("n", gpus("n", 1, slots=1), **GPU),
        pod("used", gpu(100), on="n", share={"n-0": 100}),
        pod("p", gpu(100)),
    ),
    Reason.EXCLUSIVE_CONFLICT: (ONE, USED, pod("p", gpu(100), annotations={GPU_POLICY_ANNOTATION: "mutex"})),
    Reason.QUOTA_NOT_FIT: (ONE, quota(gpumem="99"), pod("p", gpu(100))),
    Reason.INSUFFICIENT_MEMORY: (ONE, USED, pod("p", gpu(9000))),
    Reason.INSUFFICIENT_CORES: (
        ONE,
        USED,
        pod("p", gpu(100, nvidia_com__gpucores="0") | {"nvidia.com/gpucores": "50"}),
    ),
    Reason.CORES_EXHAUSTED: (
        ONE,
        USED,
        pod("rest", gpu(100), on="n", share={"n-0": (100, 40)}),
        pod("p", gpu(100)),
    ),
    Reason.NO_MIG_PLACE: (
        node("n", (cut_gpu("n-0", 0, held=[MigPlacement("1g.5gb", 0)]),), **GPU, **{"nvidia.com/mig-7g.40gb": "1"}),
        pod("p", {"nvidia.com/mig-7g.40gb": "1"}),
    ),
    Reason.NOT_LINKED: (of_vendor("Kunlun XPU", "n", 6), xpus("used", 4, held=(1, 2, 3, 4)), xpus("p", 2)),
    Reason.NOT_MIXED: (
        node("n", (*gpus("n", 1), gpus("n", 2, mode=DeviceMode.MIG, parent="g")[1]), **GPU),
        pod("p", {"nvidia.com/gpu": "2"}),
    ),
    Reason.SHARES_DIFFER: (of_vendor("Kunlun vXPU", "n", 1), HOLDS_VXPU, pod("p", vxpu(49152))),
    Reason.TOO_FEW_GPUS: (PLAIN, USED, pod("p", gpu(16384, 2))),
    Reason.NO_DEVICES: (node("n", annotations=EMPTY, **GPU), pod("p", gpu())),
    Reason.UNREGISTERED: (node("bare", **GPU), node("n", gpus("n", 1, healthy=False)), pod("p", gpu())),
    Reason.KUBELET_WOULD_REJECT: (aligned(), pod("p", gpu(count=2))),
    Reason.KUBELET_ADMISSION_PENDING: (aligned(), on_its_way(), pod("p", ALIGNED)),
    Reason.TOO_FEW_PAIRS: (apart(), PAIRED),
    Reason.NO_POOL: (node("n", gpus("n", 1), **VF), PAIRED),
    Reason.NOMINATED: (ONE, nominated(), pod("p", gpu(9000))),
}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_of_purser_is_told(reason):
    found = told(*EXAMPLES[reason])
    assert reason in {each.reason for each in found.reasons}, found
    assert not found.notes


def dcus(node_name):
    return of_vendor("Hygon DCU", node_name, 1)


def dcu(**amounts):
    return {"hygon.com/dcunum": "1", **{f"hygon.com/dcu{key}": value for key, value in amounts.items()}}


HOLDS_DCU = pod("used", dcu(mem="40000", cores="60"), on="n", share={"n-DCU-0": (40000, 60, None, "hygon.com/dcunum")})
OF_OTHER_VENDORS = [
    (Reason.INSUFFICIENT_MEMORY, pod("p", dcu(mem="70000", cores="10")), "70000 MiB"),
    (Reason.INSUFFICIENT_MEMORY, pod("p", dcu(mem="30000", cores="10")), "30000 MiB"),
    (Reason.INSUFFICIENT_CORES, pod("p", dcu(mem="100", cores="50")), "50% of compute"),
    (Reason.INSUFFICIENT_CORES, pod("p", dcu(mem="100")), "in use"),
    (Reason.TYPE_MISMATCH, pod("p", dcu(mem="1", cores="1"), annotations={"hygon.com/use-dcutype": "Z100"}), "Z100"),
    (Reason.UUID_MISMATCH, pod("p", dcu(mem="1", cores="1"), annotations={"hygon.com/nouse-gpuuuid": "n-DCU-0"}), ""),
]


@pytest.mark.parametrize(("reason", "waiting", "part"), OF_OTHER_VENDORS, ids=lambda each: str(each)[:24])
def test_devices_of_other_vendors_have_the_same_reasons(reason, waiting, part):
    found = told(dcus("n"), HOLDS_DCU, waiting)
    (told_of,) = found.reasons
    assert (told_of.reason, told_of.nodes, told_of.gpus) == (reason, 1, 1)
    assert part in told_of.text
    assert ChangeKind.END in {each.kind for each in found.suggestions} or part not in ("30000 MiB", "in use")


def test_network_devices_of_sriov_are_amounts_that_a_node_lists():
    nic = {"purser.dev/nics": "1"}
    other = pod("other", nic, on="n")
    found = told(node("n", gpus("n", 1), **{"purser.dev/nics": "1"}), other, pod("p", gpu() | nic))
    ((reason,), (change,)) = found.reasons, found.suggestions
    assert reason.text == "1 node has no purser.dev/nics free"
    assert change.change.pods == ("default/other",)


def test_a_kubelet_that_aligns_is_a_setting_to_change():
    (found,) = [
        each for each in told(*EXAMPLES[Reason.KUBELET_WOULD_REJECT]).suggestions if each.kind is ChangeKind.KUBELET
    ]
    assert found.text == "the kubelet on node n has topologyManagerPolicy: none"
