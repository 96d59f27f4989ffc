"""What users bring from HAMi, Volcano, NVIDIA's stack and others works as there, or is refused with what to write.

The manifests in ``switchers/`` use the fields that those systems document. Each is applied as it is, to a lab whose
administrator has listed Volcano's scheduler and KAI's, and not HAMi's, and has two pools of SR-IOV devices.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from purser.lab.cluster import Lab
from purser.lab.driver.profiles import ProfileNic
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.contract.client import Answer, Api, until
from tests.tiers import some
from tests.unit.cli.typed import beside

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANIFESTS = Path(__file__).parent / "switchers"
T4_NODE, A100_NODE = "t4-4-0", "a100-40gb-8-0"
T4, A100 = range(4), range(4, 12)
PATHS = {"Pod": "api/v1/{}/pods", "Deployment": "apis/apps/v1/{}/deployments", "Job": "apis/batch/v1/{}/jobs"}
Raw = dict[str, Any]

ADVISORY = "limits of GPU shares are advisory: no node enforces them (enforcement: time-slicing)"
INSTEAD = "ask for nvidia.com/gpu with nvidia.com/gpumem (MiB) and nvidia.com/gpucores (percentage)"
OTHERS = 'its schedulerName is "{}", so Purser does not place it: remove schedulerName'


@dataclass(frozen=True)
class Placed:
    """A pod that runs."""

    cards: int
    env: dict[str, str] = field(default_factory=dict)
    """Its limits; whoever has cards alone has none."""
    among: range = range(12)
    """The cards of both nodes, T4 first."""
    told: tuple[str, ...] = ()
    """Warnings beside that of advisory limits."""


@dataclass(frozen=True)
class Waits:
    """A pod that cannot run, whose author got an event with what to do."""

    told: tuple[str, ...]
    pending: str = ""
    """Out of kube-scheduler's event; empty where the pod names a scheduler that is not there."""


def memory(*mib: int) -> dict[str, str]:
    return {f"CUDA_DEVICE_MEMORY_LIMIT_{place}": f"{each}m" for place, each in enumerate(mib)}


PLACED = {
    "hami/default": Placed(1, {**memory(3000), "CUDA_DEVICE_SM_LIMIT": "30"}),
    "hami/legacy": Placed(2),
    "hami/exclusive": Placed(2),
    "hami/fraction": Placed(2, memory(7680, 7680)),
    "hami/type-used": Placed(1, among=T4),
    "hami/type-registered": Placed(1, among=A100),
    "hami/uuid-used": Placed(1, among=range(1, 2)),
    "hami/uuid-not-used": Placed(3, among=T4),
    "hami/policies": Placed(1),
    "hami/numa": Placed(2, among=T4),
    "hami/index-used": Placed(1, told=("list the GPUs by UUID in nvidia.com/use-gpuuuid",)),
    "hami/tensor-parallel": Placed(2, {**memory(4608, 4608), "CUDA_DEVICE_SM_LIMIT": "30"}),
    "volcano/number": Placed(2),
    "volcano/vgpu": Placed(1, {**memory(3000), "CUDA_DEVICE_SM_LIMIT": "50"}),
    "others/aliyun": Placed(1, memory(3072)),
    "volcano/training": Placed(1, memory(15360)),
    "nvidia/first": Placed(1),
    "nvidia/operator-test": Placed(1),
    "nvidia/batch": Placed(1),
}

KAIS = {
    "kai/fraction": Placed(1, memory(7680)),
    "kai/memory": Placed(1, memory(2000)),
    "kai/whole": Placed(1),
    "kai/several": Placed(2, memory(2000, 2000)),
    "kai/eighth": Placed(1, memory(1843), told=("gpu-fraction 0.125 is rounded down to 12% of a GPU's memory",)),
    "kai/without-scheduler": Placed(1, told=("it applies only if schedulerName is kai-scheduler, or",)),
}

CARDS = {"ens1f0": "0000:d8:00", "ens2f0": "0000:d9:00"}
"""Of the T4 node: interfaces and PCI addresses of cards with two VFs each."""

POOLS = {"intel.com/intel_sriov_netdevice": "ens1f0", "nvidia.com/hostdev": "ens2f0"}
"""Of the administrator's configuration: from which card."""

NETWORKED = {
    "others/sr-iov": (Placed(0), "intel.com/intel_sriov_netdevice"),
    "others/sr-iov-with-gpu": (Placed(1, among=T4), "nvidia.com/hostdev"),
}
"""Placed, with a device of the pool."""

NO_4G = "annotation nvidia.com/mig-profile-preference: 4g has no effect: no GPU is partitioned on demand"
NO_MIG = "asks for GPUs in mode mig, but no node offers this mode (available: hami-core), so the pod stays"

WAITING = {
    "hami/dynamic-mig": Waits(
        (NO_MIG, NO_4G, ADVISORY), "mode mig (available: NVIDIA A100-SXM4-40GB, Tesla T4, mode hami-core)"
    ),
    "hami/static-mig": Waits((INSTEAD,), "2 Insufficient nvidia.com/mig-3g.20gb"),
    "hami/too-large": Waits(("the largest GPU has 40960 MiB", ADVISORY), "2 Insufficient nvidia.com/gpumem"),
    "hami/own-scheduler": Waits((OTHERS.format("hami-scheduler"),)),
    "nvidia/time-slicing": Waits(
        ("replicas of a GPU: remove it, and for a share of a GPU, " + INSTEAD,), "didn't match Pod's node affinity"
    ),
    "nvidia/shared": Waits((INSTEAD,), "2 Insufficient nvidia.com/gpu.shared"),
    "nvidia/mig": Waits((INSTEAD,), "2 Insufficient nvidia.com/mig-1g.5gb"),
}

REFUSED = {
    "kai/both": "annotations gpu-fraction and gpu-memory both set the size of the share: keep only one of them",
    "kai/beside-whole": 'container "main" asks for nvidia.com/gpu, but the pod\'s annotations ask for a share of a GPU',
    "kai/nan": 'annotation gpu-fraction "NaN" is not a fraction of a GPU: must be a number between 0 and 1, such as '
    "0.5",
    "kai/huge": "exceeds the memory of any GPU: must be a number of MiB, such as 16384",
    "kai/rewritten": "disable that webhook (docs/migrating/kai.md)",
    "hami/in-bytes": 'nvidia.com/gpumem "16Gi" must be in MiB without a suffix: use 16384',
    "nvidia/all-devices": "remove it and ask for GPUs with nvidia.com/gpu in the limits",
    "nvidia/named-node": "use a node selector or node affinity instead",
}

OTHER_VENDORS = [
    "amd.com/gpu", "aws.amazon.com/neuron", "cambricon.com/vmlu", "enflame.com/vgcu", "huawei.com/Ascend910B",
    "hygon.com/dcunum", "iluvatar.ai/vgpu", "kunlunxin.com/xpu", "metax-tech.com/sgpu", "mthreads.com/vgpu",
    "vastaitech.com/va",
]  # fmt: skip


class Switch:
    """The lab, as somebody with kubectl has it."""

    def __init__(self, lab: Lab, api: Api) -> None:
        self.lab, self.api = lab, api
        self.uuids = [*lab.nodes[T4_NODE].driver.uuids, *lab.nodes[A100_NODE].driver.uuids]
        self.manifests = {f"{path.stem}/{doc['metadata']['name']}": doc for path, doc in self._read()}

    def _read(self) -> Iterator[tuple[Path, Raw]]:
        for path in MANIFESTS.glob("*.yaml"):
            text = path.read_text().replace("UUID", self.uuids[1]).replace("NODE", T4_NODE)
            for doc in yaml.safe_load_all(text):
                yield path, {"apiVersion": "v1", **doc}

    async def apply(self, *names: str) -> list[Answer]:
        return [await self.create(self.manifests[name]) for name in names]

    async def create(self, doc: Raw) -> Answer:
        namespace = f"namespaces/{doc['metadata'].get('namespace', 'default')}"
        return await self.api.post("/" + PATHS[doc["kind"]].format(namespace), doc)

    async def pods(self, namespace: str = "default") -> list[Raw]:
        return list((await self.api.get(f"/api/v1/namespaces/{namespace}/pods")).ok().body["items"])

    async def running(self, count: int, namespace: str = "default") -> list[Raw]:
        async def probe() -> list[Raw] | None:
            found = await self.pods(namespace)
            assert not any(pod["status"].get("phase") == "Failed" for pod in found), found
            up = [pod for pod in found if pod["status"].get("phase") == "Running"]
            return up if len(up) == count else None

        return list(await until("pods run", probe))

    def env(self, pod: Raw, container: str = "main") -> dict[str, str]:
        record = self.lab.nodes[pod["spec"]["nodeName"]].container(pod["metadata"]["uid"], container)
        assert record is not None
        return dict(record.env)

    def cards(self, pod: Raw, container: str = "main") -> list[int]:
        visible = self.env(pod, container).get("NVIDIA_VISIBLE_DEVICES", "")
        return sorted(self.uuids.index(uuid) for uuid in visible.split(",") if uuid)

    async def events(self, pod: Raw) -> list[Raw]:
        place = f"/api/v1/namespaces/{pod['metadata']['namespace']}/events"
        listed = await self.api.get(place, fieldSelector=f"involvedObject.uid={pod['metadata']['uid']}")
        return list(listed.ok().body["items"])

    async def pending(self) -> str:
        """What kube-scheduler says of the one pod, in one event and in the condition alike."""

        async def probe() -> str | None:
            (pod, *_) = await self.pods() or [{}]
            conditions = pod.get("status", {}).get("conditions", ())
            said = [each["message"] for each in conditions if each["type"] == "PodScheduled" and each.get("message")]
            events = [(each["reason"], each["message"]) for each in await self.events(pod)] if said else []
            assert len(events) <= 1, events
            return said[0] if events == [("FailedScheduling", said[0] if said else "")] else None

        return str(await until("kube-scheduler says why", probe))

    async def clean(self, *namespaces: str) -> None:
        for namespace in namespaces:
            for path in PATHS.values():
                place = "/" + path.format(f"namespaces/{namespace}")
                await self.api.delete(place, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

        async def gone() -> bool:
            return not any([await self.pods(namespace) for namespace in namespaces])

        await until("all pods are gone", gone)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab():
    t4, a100 = node_choices(["t4-4", "a100-40gb-8"])
    nics = tuple(ProfileNic(f"{address}.0", name, vfs=2, numa_node=1) for name, address in CARDS.items())
    nodes = replace(t4, profile=msgspec.structs.replace(t4.profile, nics=nics)), a100
    settings = LabSettings(nodes, probe_interval_s=0.1, adopted_scheduler_names=("volcano", "kai-scheduler"))
    async with Lab(settings) as lab, waiting.limit():
        config = lab.nodes[T4_NODE].sriov.config
        assert config is not None
        config.write_text(json.dumps({"resourceList": [entry_of(*each) for each in POOLS.items()]}))
        await lab.ready()
        yield lab


def entry_of(resource: str, card: str) -> Raw:
    prefix, _, name = resource.partition("/")
    return {"resourceName": name, "resourcePrefix": prefix, "selectors": {"pfNames": [card]}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(lab):
    api = Api(lab.kubeconfig, embedded=True)
    await api.connect()
    yield Switch(lab, api)
    await api.close()


@pytest_asyncio.fixture(loop_scope="module")
async def switch(connected):
    yield connected
    await connected.clean("default", "purser-system")


def warnings(answer: Answer) -> list[str]:
    return [text.replace('\\"', '"') for text in answer.ok().headers.getall("Warning", [])]


def check_told(answer: Answer, wanted: tuple[str, ...]) -> None:
    said = warnings(answer)
    assert len(said) == len(wanted), said
    for part in wanted:
        assert [part in text for text in said].count(True) == 1, (part, said)


@pytest.mark.parametrize("name", some(tuple(PLACED), 4))
async def test_placed_as_the_original_would(switch, name):
    await check_placed(switch, name, PLACED[name])


async def check_placed(switch, name, wanted):
    (answer,) = await switch.apply(name)
    check_told(answer, (*wanted.told, *([ADVISORY] if wanted.env else [])))
    (pod,) = await switch.running(1)
    held, env = switch.cards(pod), switch.env(pod)
    assert len(held) == wanted.cards
    assert set(held) <= set(wanted.among)
    assert {key: value for key, value in env.items() if key.startswith("CUDA_")} == wanted.env
    assert env.get("PURSER_GPU_ENFORCEMENT", "") == (("time-slicing" if wanted.env else "whole-device") if held else "")
    if wanted.env:
        await until("Granted says it", lambda: says(switch, pod, "Granted", "enforcement: time-slicing (advisory)"))


@pytest.mark.parametrize("name", NETWORKED)
async def test_a_pod_has_the_network_device_that_its_cni_plugin_looks_for(switch, name):
    """By the variables that the SR-IOV network device plugin sets."""
    wanted, resource = NETWORKED[name]

    async def listed() -> bool:
        node = (await switch.api.get(f"/api/v1/nodes/{T4_NODE}")).ok().body
        return bool(node["status"]["allocatable"].get(resource) == "2")

    await until("kubelet has the pool", listed)
    await check_placed(switch, name, wanted)
    (pod,) = await switch.pods()
    assert pod["spec"]["nodeName"] == T4_NODE
    env = switch.env(pod)
    variable = "PCIDEVICE_" + resource.upper().replace(".", "_").replace("/", "_")
    assert {key for key in env if key.startswith("PCIDEVICE_")} == {variable, f"{variable}_INFO"}
    device = env[variable]
    assert device in {f"{CARDS[POOLS[resource]]}.{function}" for function in (2, 3)}
    assert json.loads(env[f"{variable}_INFO"]) == {device: {"generic": {"deviceID": device}}}


async def says(switch, pod, reason, part):
    return any(each["reason"] == reason and part in each["message"] for each in await switch.events(pod))


@pytest.mark.parametrize(("system", "mib"), [("hami", {6144, 9216}), ("volcano", {1024})])
async def test_two_shares_meet_on_one_gpu(switch, system, mib):
    for answer in await switch.apply(f"{system}/sharing-1", f"{system}/sharing-2"):
        check_told(answer, (ADVISORY,))
    found = await switch.running(2)
    assert len({tuple(switch.cards(pod)) for pod in found}) == 1
    assert {switch.env(pod)["CUDA_DEVICE_MEMORY_LIMIT_0"] for pod in found} == {f"{each}m" for each in mib}


@pytest.mark.parametrize("name", some(tuple(KAIS), 2))
async def test_placed_as_kai_would(switch, name):
    """After those above: which pods have come says which GPUs are best."""
    await check_placed(switch, name, KAIS[name])


async def test_programs_and_tools_find_what_volcano_and_gpushare_tell_them(switch):
    for name in ("volcano/sharing-1", "others/aliyun"):
        await switch.apply(name)
    for pod in await switch.running(2):
        env, record = switch.env(pod), pod["metadata"]["annotations"]
        gpu = switch.cards(pod)[0]
        index, mib = (gpu, 15360) if gpu in T4 else (gpu - len(T4), 40960)
        if pod["metadata"]["name"] == "aliyun":
            assert record["ALIYUN_COM_GPU_MEM_IDX"] == env["ALIYUN_COM_GPU_MEM_IDX"] == str(index)
            assert record["ALIYUN_COM_GPU_MEM_DEV"] == env["ALIYUN_COM_GPU_MEM_DEV"] == str(mib // 1024)
            assert record["ALIYUN_COM_GPU_MEM_POD"] == env["ALIYUN_COM_GPU_MEM_CONTAINER"] == "3"
        else:
            assert record["volcano.sh/gpu-index"] == str(index)
            assert int(record["volcano.sh/predicate-time"]) > 1e18
            assert (env["VOLCANO_GPU_ALLOCATED"], env["VOLCANO_GPU_TOTAL"]) == ("1024", str(mib))
    code, out, _ = await beside("get", "gpus", "--view", "gpushare", f"--kubeconfig={switch.lab.kubeconfig}")
    assert (code, out.splitlines()[-1]) == (0, f"4/{4 * 15 + 8 * 40} (1%)")


async def test_programs_find_what_kai_tells_them_in_the_container_that_has_the_share(switch):
    for name in ("kai/init", "kai/sidecars"):
        await switch.apply(name)
    for pod in await switch.running(2):
        assert pod["metadata"]["annotations"]["received-resource-type"] == "Fraction"
        has = "load" if pod["metadata"]["name"] == "init" else "gpu-workload"
        for each in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            env = switch.env(pod, each["name"])
            found = {env.get("GPU_PORTION"), env.get("RUNAI_NUM_OF_GPUS")}
            assert found == ({"0.50"} if each["name"] == has else {None})
            assert len(switch.cards(pod, each["name"])) == (each["name"] == has)


@pytest.mark.parametrize("name", some(tuple(WAITING), 4))
async def test_what_cannot_run_is_refused_with_what_to_write(switch, name):
    wanted, doc = WAITING[name], switch.manifests[name]
    (answer,) = await switch.apply(name)
    check_told(answer, wanted.told)
    if wanted.pending:
        assert wanted.pending in await switch.pending()
    elif doc["kind"] == "Pod":
        assert answer.body["spec"]["schedulerName"] == doc["spec"]["schedulerName"]


@pytest.mark.parametrize("name", REFUSED)
async def test_what_never_could_run_is_refused_with_what_to_write(switch, name):
    (answer,) = await switch.apply(name)
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert REFUSED[name] in answer.message


async def test_a_deployment_is_warned_of_what_its_pods_will_be_refused_for(switch):
    (answer,) = await switch.apply("hami/in-bytes-deployed")
    check_told(answer, ("pods of this Deployment will be denied: ",))
    assert "use 16384" in warnings(answer)[0]


async def test_other_vendors_gpus_are_ignored(switch):
    for number, resource in enumerate(OTHER_VENDORS):
        main = {"name": "main", "image": "busybox", "resources": {"limits": {resource: 1}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": {"containers": [main]}}
        check_told(await switch.create(pod), (f"no node offers {resource}, so the pod stays pending: Purser ",))


async def test_the_pods_of_nvidias_validator_run_on_the_node_that_they_name_though_it_is_cordoned(switch):
    node = f"/api/v1/nodes/{T4_NODE}"
    (await switch.api.patch(node, {"spec": {"unschedulable": True}})).ok()
    for answer in await switch.apply("nvidia/plugin-validator", "nvidia/cuda-validator"):
        check_told(answer, ())
    found = {pod["metadata"]["name"]: pod for pod in await switch.running(2, "purser-system")}
    assert {pod["spec"]["nodeName"] for pod in found.values()} == {T4_NODE}
    assert len(switch.cards(found["plugin-validator"], "check")) == 1
    (await switch.api.patch(node, {"spec": {"unschedulable": None}})).ok()


def whole(name: str, count: int, **annotations: str) -> Raw:
    main = {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": count}}}
    named = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {"name": name, "annotations": {"nvidia.com/use-gputype": "T4", **named}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [main]}}


OTHER_MODEL = "8 GPUs on 1 node do not match the pod's request: a model with T4 (available: NVIDIA A100-SXM4-40GB)"


async def test_numa_nodes_that_are_too_small_are_what_a_pod_waits_for(switch):
    (await switch.create(whole("three", 3, numa_bind="true"))).ok()
    said = await switch.pending()
    assert f"{OTHER_MODEL}; 4 GPUs on 1 node are available, but 3 are needed on one NUMA node" in said


async def test_gpus_in_use_are_what_a_pod_waits_for_that_wants_them_whole(switch):
    (await switch.create(whole("first", 4))).ok()
    await switch.running(1)
    (await switch.create(whole("a-second", 1))).ok()
    assert f"{OTHER_MODEL}; 4 GPUs on 1 node are in use, and the pod wants whole GPUs" in await switch.pending()


async def test_a_gpu_that_hami_s_annotation_cordons_takes_no_pods_until_it_is_gone(switch):
    place, uuids = f"/api/v1/nodes/{T4_NODE}", [switch.uuids[index] for index in T4]

    async def annotate(text: str | None) -> None:
        (await switch.api.patch(place, {"metadata": {"annotations": {"hami.io/device-cordon": text}}})).ok()

    async def lists_no_memory() -> bool:
        """Everybody who watches nodes has seen the annotation by then."""
        return (await switch.api.get(place)).ok().body["status"]["allocatable"]["nvidia.com/gpumem"] == "0"

    await annotate(",".join(uuids))
    try:
        await until("the agent has seen it", lists_no_memory)
        await switch.apply("hami/type-used")
        assert "on 1 node are cordoned" in await switch.pending()
    finally:
        await annotate(None)
    (pod,) = await switch.running(1)
    assert set(switch.cards(pod)) <= set(T4)


async def test_a_gpu_with_an_xid_is_reported_by_index_and_number(switch):
    """Afterwards the card is well again, for the other tests. This driver reports no resets: the agent knows of one
    only because it has seen that the card was lost."""
    driver = switch.lab.nodes[T4_NODE].driver

    async def inventory_has(text: str) -> bool:
        return text in str((await switch.api.get(f"/api/v1/nodes/{T4_NODE}")).ok().body["metadata"]["annotations"])

    async def is_well() -> bool:
        return not await inventory_has('"healthy":false')

    driver.lose_gpu(3, xid=None)
    try:
        await until("the agent has seen that it is lost", lambda: inventory_has('"healthy":false'))
        driver.inject_xid(3, 79)
        await until("the inventory has it", lambda: inventory_has("Xid 79"))
        (await switch.create(whole("four", 4))).ok()
        assert "1 GPU on 1 node is unhealthy (GPU 3: Xid 79 (GPU has fallen off the bus" in await switch.pending()
    finally:
        driver.recover_gpu(3)
    await until("the GPU is well again", is_well)
    await switch.running(1)
