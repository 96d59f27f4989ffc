"""Pods for other vendors' devices in a whole lab: webhooks, scheduler, lock, and the vendor's device plugin."""

import io

import pytest
from rich.console import Console

from purser.core.dialects.hami_codec import decode_pod_devices
from purser.core.vendors.catalogue import FAMILIES
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.screen import show, surroundings
from purser.lab.settings import LabSettings, chosen_nodes, family_words
from tests import waiting
from tests.contract.client import until

pytestmark = pytest.mark.gate

LISTED = "-allocated"
PHASE = "hami.io/bind-phase"

EXAMPLES = {
    "Cambricon MLU": ({"vmlu": 1, "mlu.smlu.vmemory": 20, "mlu.smlu.vcore": 10}, 5120, 10),
    "Hygon DCU": ({"dcunum": 1, "dcumem": 2000, "dcucores": 60}, 2000, 60),
    **{
        f"Iluvatar {chip}": ({f"{chip}-vgpu": 1, f"{chip}.vCore": 50, f"{chip}.vMem": 64}, 16384, 50)
        for chip in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")
    },
    **{
        f"Ascend {chip}": ({f"Ascend{chip}": 1, f"Ascend{chip}-memory": asked}, mib, 0)
        for chip, asked, mib in (
            ("910A", 2000, 2184),
            ("910B2", 8000, 8192),
            ("910B3", 2000, 16384),
            ("910B4-1", 2000, 16384),
            ("910B4", 2000, 8192),
            ("910C", 16384, 16384),
            ("310P", 1024, 3072),
        )
    },
    "Mthreads": ({"vgpu": 1, "sgpu-memory": 32, "sgpu-core": 8}, 16384, 8),
    "MetaX GPU": ({"gpu": 1}, 65536, 100),
    "Enflame GCU": ({"gcu": 1}, 100, 100),
    "AMD": ({"gpu": 1, "gpumem": 3000, "gpucores": 30}, 3000, 30),
    "Biren": ({"gpu": 1}, 65536, 0),
    "Vastai": ({"va": 1}, 65536, 0),
    "Kunlun XPU": ({"xpu": 1}, 98304, 100),
    "Enflame DRS-GCU": ({"drs-gcu": 3}, 20480, 50),
    "MetaX sGPU": ({"sgpu": 1, "vcore": 60, "vmemory": 4}, 4096, 60),
    "Kunlun vXPU": ({"vxpu": 1, "vxpu-memory": 24576}, 24576, 25),
    "AWS Neuron": ({"neuron": 1}, 32768, 3),
}
"""HAMi's examples, by family: amounts without the vendor's domain; MiB and compute that the list of devices has."""


APP, QOS = "metax-tech.com/sgpu-app-class", "metax-tech.com/sgpu-qos-policy"
SOFT = {"huawei.com/vnpu-mode": "hami-core"}
MORE = [
    ("AWS Neuron", {"neuroncore": 1}, 16384, 1, {}, {"NEURON_RESOURCE_TYPE": "aws.amazon.com/neuroncore"}),
    ("AWS Neuron", {"neuroncore": 2}, 32768, 3, {}, {"NEURON_RESOURCE_TYPE": "aws.amazon.com/neuroncore"}),
    ("Enflame DRS-GCU", {"gcu-memory": 20480, "gcu-core": 40}, 20480, 50, {}, {"enflame.com/gcu-request-size": "3"}),
    ("Ascend 310P", {"Ascend310P": 1, "Ascend310P-memory": 1000, "Ascend310P-core": 20}, 1000, 20, SOFT, {}),
    ("MetaX sGPU", {"sgpu": 1, "vcore": 60, "vmemory": "2048Mi"}, 2048, 60, {}, {QOS: "best-effort"}),
    ("MetaX sGPU", {"sgpu": 1, "vcore": 10}, 65536, 10, {QOS: "burst-share"}, {QOS: "burst-share"}),
    ("MetaX sGPU", {"sgpu": 1, "vcore": 60, "vmemory": 4}, 4096, 60, {APP: "offline"}, {QOS: "best-effort"}),
    ("MetaX sGPU", {"sgpu": 1, "vmemory": 4}, 4096, 0, {APP: "online"}, {}),
    ("Kunlun vXPU", {"vxpu": 2, "vxpu-memory": 40000}, 49152, 50, {}, {}),
]
"""Further examples: with annotations that the pod brings, and what it is told beside the list."""


def example_pod(name, family, asked, annotations):
    domain = family.resource.partition("/")[0]
    limits = {f"{domain}/{word}": str(amount) for word, amount in asked.items()}
    main = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"containers": [main]}}


async def test_hamis_examples_of_every_family_run_on_its_devices():
    assert EXAMPLES.keys() == {family.name for family in FAMILIES}
    rows = [(name, *example, {}, {}) for name, example in EXAMPLES.items()] + MORE
    families = {family.name: family for family in FAMILIES}
    nodes, hollow = chosen_nodes(family_words())
    async with Lab(LabSettings(nodes, hollow=hollow)) as lab, waiting.limit():
        await lab.ready()
        screen = io.StringIO()
        show(lab, 1.0, Console(file=screen, width=200), surroundings())
        assert "x Hygon DCU, hollow" in screen.getvalue()
        for number, (name, asked, _, _, annotations, _) in enumerate(rows):
            await lab.client.create(PODS, example_pod(f"p{number}", families[name], asked, annotations), "default")

        async def running():
            pods = (await lab.client.list(PODS, "default")).items
            return pods if all(pod.status.phase == "Running" for pod in pods) else None

        found = {pod.metadata.name: pod for pod in await until("all pods run", running)}
        for number, (name, asked, mib, cores, _, told) in enumerate(rows):
            pod = found[f"p{number}"]
            annotations = pod.metadata.annotations
            lists = [text for key, text in annotations.items() if key.startswith("hami.io/") and key.endswith(LISTED)]
            (devices, *_) = decode_pod_devices(lists[0])
            assert len(devices) >= families[name].fewest
            for device in devices:
                assert device.uuid.startswith(pod.spec.node_name)
                assert (device.vendor, device.memory_mib, device.cores_percent) == (families[name].word, mib, cores)
            assert annotations[PHASE] == "success"
            assert told.items() <= annotations.items(), asked
        nodes_after = (await lab.client.list(NODES)).items
        assert not any("hami.io/mutex.lock" in node.metadata.annotations for node in nodes_after)
