"""Every text that somebody else can write, mutated: one error that its reader announces, or a value, and nothing else.

A thousand inputs in the fast tier, ten thousand in the gate, a million in the soak tier, which looks at the growth of
memory, too, and at what twice the text costs. PURSER_FUZZ_SEED names another seed.
"""

import asyncio
import io
import json
import os
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from purser.adapters.manifests import ManifestError, manifest_pods
from purser.adapters.nodes import InventoryError, allocatable, inventory_of
from purser.adapters.objects import DumpError, objects_of_dump
from purser.adapters.pods import pod_spec
from purser.agent.allocation.book import (
    AgentCheckpoint,
    AgentCheckpointError,
    Book,
    BookedContainer,
    BookedPod,
    read_checkpoint,
)
from purser.agent.health.memory import health_file
from purser.agent.instances.records import GpuRecord, OwnedInstance, record_file
from purser.agent.inventory.known_gpus import known_gpus_file
from purser.agent.sharing.reading import read_plugin_file
from purser.agent.sriov.ddp import running_versions
from purser.agent.sriov.ddptool import ddptool_output
from purser.backtest.dump import HistoryError
from purser.backtest.events import history_of_dump
from purser.backtest.history import NothingToReplay, Omissions
from purser.backtest.logs import history_of_logs
from purser.backtest.metrics import history_of_metrics
from purser.backtest.reconstruction import Reconstruction
from purser.core.decisions import DecisionLogError, Reader, Replayer
from purser.core.decisions import encode as encode_record
from purser.core.decisions.framing import MAGIC
from purser.core.decisions.records import Record
from purser.core.decoding import UnreadableError
from purser.core.device.gpus import NodeGpu
from purser.core.dialects import DialectError, asks_for_devices, default_limits, hami_codec, parse, restore_pod
from purser.core.dialects.unserved import unserved_words
from purser.core.dialects.volcano_choice import chosen_grant
from purser.core.features.values import LabelTrouble
from purser.core.features.vgpu import vgpu_host
from purser.core.fleet import Fleet
from purser.core.fleet.live import LiveArrays
from purser.core.grant import signing
from purser.core.grant.disputes import HeldPod, HeldReason, NodeDisputes, RefusedPod
from purser.core.grant.reconcile import PodBook
from purser.core.health.memory import restore_health
from purser.core.kubelet import errors as kubelet_errors
from purser.core.kubelet.cpumanager import checkpoint as cpu_file
from purser.core.kubelet.devicemanager import checkpoint as device_file
from purser.core.kubelet.memorymanager import checkpoint as memory_file
from purser.core.kubelet.report import ReportError, check_coherence, decode, node_of, state_of
from purser.core.kubelet.topologymanager import policy_for
from purser.core.kubernetes.quantities import QuantityError
from purser.core.mig import MigPlacement
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    Enforcement,
    GpuNic,
    Grant,
    GrantState,
    Link,
    NodeInventory,
    NodePool,
    PcieLevel,
    PodRequest,
    PoolPlace,
)
from purser.core.monitoring.cgroups import owner_of
from purser.core.names import (
    DISPUTES_ANNOTATION,
    GRANT_ANNOTATION,
    GRANT_SIGNATURE_ANNOTATION,
    INIT_RESOURCES_ANNOTATION,
    INVENTORY_ANNOTATION,
)
from purser.core.node.annotations import encode
from purser.core.node.facts import NodeFacts, PciGpu, decode_facts
from purser.core.node.mig_messages import MigRequest, MigResult, decode_request, decode_result
from purser.core.placement import place
from purser.core.placement.shape import largest_shape
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.sharing import (
    MigStrategy,
    SharingError,
    advertised_devices,
    plugin_settings,
    settings_without_effect,
    upstream_differences,
)
from purser.core.state import PodDetails, StateAsk, StateEvent, StateEvents, StateStep, rollout, rollout_node
from purser.core.vendors.catalogue import FAMILIES
from purser.core.vendors.registration import MAX_PROBLEMS, vendor_devices
from purser.kube.codec import codec_of
from purser.kube.errors import KubeError, error_from_response
from purser.kube.login import parse_exec_credential
from purser.kube.objects import Node, ObjectMeta
from purser.kube.pod_details import CACHED_PODS, MAX_SCHEDULER_MESSAGE, scheduler_message
from purser.kube.resources import NODES, PODS
from purser.lab.apiserver import defaults as lab_defaults
from purser.lab.apiserver import jsonio
from purser.lab.apiserver.decode import Unknown
from purser.lab.apiserver.decode import decode as decode_body
from purser.lab.apiserver.errors import StatusError
from purser.lab.apiserver.schema import builtin
from purser.scheduler.cache.arrivals import Arrivals
from purser.scheduler.cache.disputes import DisputeBook
from purser.scheduler.cache.node_free_resources import NodeFreeResources
from purser.scheduler.cache.readings import Readings
from purser.scheduler.explaining import Explainer, LogFile, UnknownPodError, explain_from_log
from purser.scheduler.extender_wire import WireError, decode_args, decode_binding, decode_preemption
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.review import ReviewError, decode_review, encode_review
from purser.scheduler.webhook.validation import Validation
from purser.top.asking import read_events, read_node_details, read_pod_details, read_rollout, read_state
from purser.top.drawing import Shown, drawn
from purser.top.lines import clean
from purser.top.screen import Screen, settled
from purser.top.view_names import TopView
from purser.top.views import age, table_of
from purser.usage import prometheus
from purser.usage.over_time import read_over_time
from purser.web.charts import chart
from purser.web.hardware import hardware_of
from purser.web.rollouts import rollout_rows
from purser.web.tables import waiting_groups
from purser.web.waits import wait_text, waits_of_groups
from purser.yaml_reading import read_all_yaml
from tests.tiers import TIER, Tier
from tests.unit.agent.sriov.test_ddp import ANSWER as DEVLINK
from tests.unit.agent.sriov.test_ddp import GTP as DDP_PACKAGE
from tests.unit.agent.sriov.test_ddp import said as ddptool_says
from tests.unit.backtest.test_logs import A as LOGGED_A
from tests.unit.backtest.test_logs import B as LOGGED_B
from tests.unit.backtest.test_logs import Cluster, as_file
from tests.unit.backtest.told import BEGIN_S, dump_of, event, life, listed, node_object, pod_object
from tests.unit.core.decisions.scheduling_world import logged_records
from tests.unit.core.features.test_upstream_labels import vgpu_config
from tests.unit.scheduler.explained import dump, gpu, gpus, quota
from tests.unit.scheduler.explained import node as node_of_dump
from tests.unit.scheduler.explained import pod as pod_of_dump
from tests.unit.scheduler.reviews import container, pod, review
from tests.unit.simulator.builders import node as sim_node
from tests.unit.simulator.builders import share, whole
from tests.unit.top.states import cluster as state_of_gpus
from tests.unit.top.states import details as details_of_node
from tests.unit.top.states import grant as state_grant
from tests.unit.top.states import node as state_node
from tests.unit.top.states import waiting as state_waiting

WANTED = {Tier.FAST: 1000, Tier.GATE: 10_000, Tier.SOAK: 1_000_000}[TIER]
SEED = int(os.environ.get("PURSER_FUZZ_SEED", "1"))

GRANT = Grant("u-1", "ns", "p", "n1", (ContainerGrant("main", ContainerKind.APP, (DeviceShare("GPU-1", 1000, 10),)),))
VOLCANOS_NODE = NodeInventory("n1", tuple(Device(f"GPU-{at}", at, "T4", 8000) for at in range(2)))


def volcanos(text):
    names = ("volcano.sh/gpu-index", "volcano.sh/vgpu-ids-new")
    where = {"volcano.sh/vgpu-node": "n1"} if "," in text and ":" in text else {}
    asks = ContainerSpec("main", ContainerKind.APP, limits={"volcano.sh/gpu-number": "2"})
    return PodManifest("u-1", "ns", "p", {**dict.fromkeys(names, text), **where}, (asks,))


VOLCANOS_REQUEST = parse(volcanos(""))
GRANT_TEXT = msgspec.json.encode(GRANT).decode()
KEY = Ed25519PrivateKey.generate()
SIGNED = signing.sign(GRANT, KEY)
INVENTORY = msgspec.json.encode(
    NodeInventory(
        "n1",
        (
            Device("GPU-1", 0, "A100", 8000, slots=4, numa_nodes=(0,), links=(Link("GPU-2", PcieLevel.SAME_CPU, 2),)),
            Device("GPU-2", 1, "A100", 8000, slots=4, links=(Link("GPU-1", PcieLevel.SAME_CPU, 2),), pcie=("r", "s")),
        ),
        pools=(NodePool("a/vf", (PoolPlace(("r", "s"), 4, 0), PoolPlace((), 4))),),
    )
).decode()
WITH_NICS = PodRequest(
    "u-2",
    "ns",
    "q",
    (ContainerRequest("c", ContainerKind.APP, DeviceRequest(2, memory_mib=1), beside=(("a/vf", 1 << 40),)),),
    gpu_nic=GpuNic.REQUIRED,
)
REPORT = json.dumps(
    {
        "format": 1,
        "version": "v1.30.0",
        "config": {"topology_policy": "restricted", "cpu_policy": "static", "memory_policy": "Static"},
        "machine": {
            "numa_nodes": [{"node": 0, "memory": {"memory": 1 << 34}, "distances": [10]}],
            "cpus": [[0, 0, 0, "0-7", [[0, 4], [0, 4]]]],
            "num_sockets": 1,
        },
        "resources": {"nvidia.com/gpu": {"groups": [[[0], True, [["GPU-1::", "0-9"]]]]}},
        "cpus": {"default": "0-5", "reserved": "0"},
        "memory": [[0, [0], 0, {"memory": [1 << 34, 1 << 30, 15 << 30, 0, 15 << 30]}]],
        "held": [["u-1", "main", {"nvidia.com/gpu": [["GPU-1::", "3"]]}, "6-7", [[[0], "memory", 0]]]],
    }
)
POD = pod(
    container(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "cpu": "1500m", "memory": "2Gi"}),
    init=[container("init", limits={"nvidia.com/gpu": "1", "nvidia.com/gpucores": 30})],
    annotations={
        "nvidia.com/use-gputype": "A100,H100",
        "hami.io/device-scoring-weights": "slot=1,core=1,memory=3",
        "purser.dev/node-policy": "binpack=3,spread=1",
        "purser.dev/gpu-policy": "mutex,numa",
        "nvidia.com/numa-bind": "true",
    },
    overhead={"cpu": "250m"},
    priority=5,
    schedulerName="purser-scheduler",
)
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}
REFUSED = POD | {"status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]}}
BOUND = POD | {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u-1", "resourceVersion": "7", "annotations": SIGNED},
    "spec": POD["spec"] | {"nodeName": "n1"},
}
NODE = {
    "metadata": {"name": "n1", "uid": "n", "annotations": {INVENTORY_ANNOTATION: INVENTORY}},
    "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}, "nodeInfo": {"kubeletVersion": "v1.30"}},
}
DISPUTES = NodeDisputes(
    "n1",
    (
        HeldPod("ns", "u-1", "u-1", HeldReason.GRANT_MISSING, GRANT.containers),
        HeldPod("ns", "u-2", "u-2", HeldReason.NEVER_GRANTED, uuids=("GPU-2",)),
    ),
    (RefusedPod("ns", "q", "u-3", "DeviceOvercommitted", ("GPU-1",), ("ns/u-1",)),),
)
CGROUP_UID = "0f3ad3a2_9c1b_4f6e_8d57_0a4b5c6d7e8f"
CGROUPS_V1 = f"""\
12:devices:/kubepods/burstable/pod{CGROUP_UID.replace("_", "-")}/{"ab" * 32}
1:name=systemd:/kubepods/burstable/pod{CGROUP_UID.replace("_", "-")}/{"ab" * 32}
0::/system.slice/containerd.service
"""
METRICS = SchedulerMetrics()
BOOK = AgentCheckpoint("n1", (BookedPod(GRANT, {"main": BookedContainer(("GPU-1::0",), Enforcement.NONE)}),), (GRANT,))


def as_json(value: Any) -> str:
    return json.dumps(value)


def text_of(data: bytes) -> str:
    """As a text comes from the API: valid UTF-8."""
    return data.decode("utf-8", "replace")


def grant(data: bytes) -> None:
    annotations = {**SIGNED, GRANT_ANNOTATION: text_of(data)}
    signing.verify(annotations, pod_uid="u-1", node="n1", keys=[KEY.public_key()])


def signature(data: bytes) -> None:
    annotations = {**SIGNED, GRANT_SIGNATURE_ANNOTATION: text_of(data)}
    signing.verify(annotations, pod_uid="u-1", node="n1", keys=[KEY.public_key()])


def inventory(data: bytes) -> None:
    found = inventory_of(Node(metadata=ObjectMeta(name="n1", annotations={INVENTORY_ANNOTATION: text_of(data)})))
    if found is not None:
        fleet = Fleet()
        fleet.set_inventory(found)
        fleet.ledger.adopt(GRANT)
        LiveArrays(fleet).refresh()
        fleet.ledger.violations()
        place(fleet.node("n1"), WITH_NICS)


def registered(annotation: str, resource: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        found = vendor_devices(FAMILIES, "n1", {annotation: text_of(data)}, {}, {resource: "8"})
        assert len(found.problems) <= MAX_PROBLEMS
        fleet = Fleet()
        fleet.set_inventory(NodeInventory("n1", found.devices))
        LiveArrays(fleet).refresh()

    return read


def disputes(data: bytes) -> None:
    """What a node tells of two pods that carry no grant, all the way to the arrays that placement reads."""
    fleet = Fleet()
    fleet.set_inventory(msgspec.json.decode(INVENTORY, type=NodeInventory))
    book = DisputeBook(fleet, lambda uid: True, METRICS)
    for uid in ("u-1", "u-2"):
        book.put_ungranted("n1", PodBook("ns", uid, uid, started=True), GrantState.RUNNING)
    book.put_node(Node(metadata=ObjectMeta(name="n1", annotations={DISPUTES_ANNOTATION: text_of(data)})))
    LiveArrays(fleet).refresh()
    fleet.ledger.violations()


def report(data: bytes) -> None:
    found = decode(text_of(data))
    node, state = node_of(found), state_of(found)
    check_coherence(node, state)
    policy_for(node.config, node.machine)
    Fleet().set_kubelet("n1", node, state)


def moved(data: bytes) -> None:
    spec = pod_spec(codec_of(PODS).object(as_json(BOUND).encode()))
    parse(msgspec.structs.replace(spec, annotations={INIT_RESOURCES_ANNOTATION: text_of(data)}))


def by_annotation(data: bytes) -> None:
    """Of a pod in KAI's words, after and before the webhook; `any_pod` mutates the object."""
    try:
        annotations = msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    spec = PodManifest("u", "ns", "p", annotations, (ContainerSpec("main", ContainerKind.APP),))
    for scheduler in ("kai-scheduler", "purser-scheduler", ""):
        asked = msgspec.structs.replace(spec, scheduler_name=scheduler)
        unserved_words(asked, lambda *_: False, lambda *_: False)
        decide(asked)


def any_pod(data: bytes) -> None:
    found = codec_of(CACHED_PODS).object(data)
    assert len(scheduler_message(found)) <= MAX_SCHEDULER_MESSAGE
    arrivals, rooms = Arrivals(Readings(), "purser-scheduler"), NodeFreeResources(Fleet())
    arrivals.put_pod(found)
    rooms.put_pod(found)
    decide(pod_spec(found))


def decide(spec: Any) -> None:
    if asks_for_devices(spec):
        request = parse(spec)
        if request is not None:
            largest_shape(request)
        restore_pod(spec)
        default_limits(spec)


def node(data: bytes) -> None:
    found = codec_of(NODES).object(data)
    NodeFreeResources(Fleet()).put_node(found)
    allocatable(found)


def watch(data: bytes) -> None:
    codec_of(PODS).event(data)
    codec_of(PODS.raw()).event(data)


def pages(data: bytes) -> None:
    codec_of(CACHED_PODS).page(data)
    codec_of(NODES.raw()).page(data)


def admit(webhook: Mutation | Validation) -> Callable[[bytes], None]:
    def call(data: bytes) -> None:
        request = decode_review(data)
        encode_review(request, webhook.review(request))

    return call


def extend(data: bytes) -> None:
    decide(pod_spec(decode_args(data).pod))


PLUGIN_FILE = {
    "version": "v1",
    "flags": {"migStrategy": "mixed", "plugin": {"deviceListStrategy": ["envvar"]}, "gfd": {"sleepInterval": "1m30s"}},
    "resources": {"gpus": [{"pattern": "*A100*", "name": "a100"}], "mig": []},
    "sharing": {
        "timeSlicing": {
            "renameByDefault": True,
            "resources": [{"name": "gpu", "replicas": 4, "devices": [0]}, {"name": "a100", "replicas": 2}],
        }
    },
    "imex": {"channelIDs": [0]},
}


NODE_GPUS = tuple(NodeGpu(uuid=f"g{n}", index=n, model=model) for n, model in enumerate(("NVIDIA T4", "NVIDIA A100")))


HAMI_NODE = {
    "name": "n1",
    "operatingmode": "mig",
    "migstrategy": "mixed",
    "devicememoryscaling": 1.8,
    "devicesplitcount": 10,
    "filterdevices": {"uuid": ["GPU-1"], "index": [0]},
}


def shared_by(data: bytes) -> None:
    file, *_ = read_plugin_file(data, HAMI_NODE["name"])
    upstream_differences(file)
    settings_without_effect(file)
    plugin_settings(file)
    advertised_devices(NODE_GPUS, file, MigStrategy.NONE)


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["3"]}]}]
        }
    }
}
EXPLAINED = (
    node_of_dump("n1", gpus("n1", 2, 8000), taints=[{"key": "a", "effect": "NoSchedule"}]),
    node_of_dump("n2", gpus("n2", 2, 8000), labels={"zone": "4"}),
    pod_of_dump("held", gpu(3000), on="n2", share={"n2-0": (3000, 20)}),
    pod_of_dump("p", gpu(9000, cpu="2"), affinity=AFFINITY, nodeSelector={"zone": "4"}),
    quota(gpumem="5000"),
)


def explained(data: bytes) -> None:
    Explainer(objects_of_dump(data)).explain("default", "p")


_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": pod_of_dump("t", gpu(9000))["spec"]}
MANIFESTS = [
    pod_of_dump("new", gpu(9000, cpu="2"), affinity=AFFINITY),
    {"kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": _TEMPLATE}}}},
]


def explained_new(data: bytes) -> None:
    cluster = Explainer(objects_of_dump(dump(*EXPLAINED)))
    for each in manifest_pods(data, "x"):
        cluster.explain_new(each, "default")


PAST = [
    *life("a", "u-a", "n1", whole(1), (10, 50, 200)),
    *life("b", "u-b", "n1", share(500), (20, 20, None)),
    event("b", "u-b", "Started", "Started container main", BEGIN_S + 21),
    event("job", "j", "SuccessfulCreate", "Created pod: a", BEGIN_S + 10, kind="Job"),
    event("n1", "n1", "RemovingNode", "", BEGIN_S + 900, kind="Node"),
    node_object(sim_node("n1", 2)),
    pod_object(
        "c",
        "u-c",
        {"nvidia.com/gpu": "1"},
        BEGIN_S,
        {
            "phase": "Failed",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-09-21T14:14:00Z"}],
            "containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-09-21T14:20:00Z"}}}],
        },
        node="n1",
    ),
]


def past(data: bytes) -> None:
    omissions = Omissions()
    of = Reconstruction(history_of_dump(dump_of(data, omissions), "past", omissions))
    of.curve(of.replay("binpack"))


Samples = list[tuple[dict[str, str], float]]


class AnswersByMetric:
    """What a Prometheus answers, by the first metric of what it is asked."""

    def __init__(self, samples: dict[str, Samples]) -> None:
        self._samples = samples

    async def ask(self, expression: str, at_s: float) -> Samples:
        found = re.search("kube_[a-z_]+", expression)
        return self._samples.get(found[0], []) if found else []


KSM_POD = {"namespace": "ns", "pod": "p", "uid": "u", "node": "n1"}
KSM_REQUESTS = [(KSM_POD | {"container": "c", "resource": "nvidia_com_gpu"}, 1.0)]
KSM_LABELS = {"node": "n1", "label_nvidia_com_gpu_product": "T4", "label_nvidia_com_gpu_memory": "15360"}
KSM = {
    "kube_pod_container_resource_requests": KSM_REQUESTS,
    "kube_pod_created": [(KSM_POD, BEGIN_S + 60)],
    "kube_pod_status_scheduled_time": [(KSM_POD, BEGIN_S + 90)],
    "kube_pod_info": [(KSM_POD, BEGIN_S + 7100)],
    "kube_node_info": [({"node": "n1"}, BEGIN_S + 100)],
    "kube_node_labels": [(KSM_LABELS, 1)],
    "kube_node_status_allocatable": [({"node": "n1", "resource": "nvidia_com_gpu"}, 2)],
}


def metrics(data: bytes) -> None:
    try:
        samples = msgspec.json.decode(data, type=dict[str, Samples])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    asked = history_of_metrics(AnswersByMetric(samples), 7200.0, BEGIN_S + 7200.0, "", Omissions())  # type: ignore[arg-type]
    of = Reconstruction(asyncio.run(asked))
    of.curve(of.replay("binpack"))


def logged() -> bytes:
    """A scheduler's decision log."""
    cluster = Cluster("n1", "n2").at(1010).decide(LOGGED_A, "n1", "n2").at(1020).decide(LOGGED_B, "n1", "n2")
    cluster.at(1100).end(LOGGED_A).at(1200).gone("n2").world.new_file()
    return as_file(each for records in cluster.at(1300).end(LOGGED_B).world.files for each in records)


def log_of_past(folder: Path) -> Callable[[bytes], None]:
    def call(data: bytes) -> None:
        (folder / "log").write_bytes(data)
        of = Reconstruction(history_of_logs([folder / "log"], Omissions()))
        of.curve(of.replay("binpack"))

    return call


ROLLOUT_STATUS = {
    "state": "notReady",
    "nodes": {"total": 2, "ready": 1},
    "operands": [{"name": "driver", "state": "failing", "waiting": 1}],
    "failingNodes": [{"name": "n", "operand": "driver", "message": "exit 1"}],
    "upgrade": {"inProgress": 1, "halted": True, "haltReason": "1 of 1 failed"},
}
ROLLOUT = rollout(
    {"gpus": ROLLOUT_STATUS}, [rollout_node("n", {"nvidia.com/gpu.deploy.driver": "true"}, {}, cordoned=False)]
)
RANGE = {
    "status": "success",
    "data": {"result": [{"metric": {"namespace": "a"}, "values": [[1e9 - 120, "1.5"], [1e9, "NaN"]]}]},
}


ASKS = StateAsk("nvidia.com/gpu", False, 100)
HELD = msgspec.structs.replace(state_grant("p"), created="2027-01-15T07:00:00Z", started="2027-01-15T08:00:00Z")
LIKE_HELD = msgspec.structs.replace(state_waiting("w"), asks=ASKS)


def shown_state(data: bytes) -> None:
    """As `purser top --scheduler` and `purser web --scheduler` show it."""
    state = read_state(data)
    for view in TopView:
        table = table_of(view, state, 0.0)
        drawn(Shown(settled(Screen(view), table, 9), table, state), 40, 12)
    for found in waits_of_groups(state, waiting_groups(state)):
        for waits in found:
            clean(f"{waits.kind.words} {wait_text(waits.median_s)} {wait_text(waits.longest_s)}")


def shown_node(data: bytes) -> None:
    """As `purser web --scheduler` shows it."""
    hardware_of(read_node_details(data))


POD_DETAILS = PodDetails("p", "u", (StateStep("Created", "2027-01-15T08:00:00Z", 0),))
EVENT_LIST = StateEvents((StateEvent("Pulled", "it is there", "Normal", 2, "2027-01-15T08:00:00Z", "kubelet"),))


def shown_pod(data: bytes) -> None:
    """As `purser web --scheduler` shows it."""
    for step in read_pod_details(data).steps:
        clean(f"{step.name} {step.time} {step.seconds}")


def shown_events(data: bytes) -> None:
    """As `purser web --scheduler` shows them."""
    for each in read_events(data).events:
        clean(f"{age(each.seen_at, 0.0)} {each.type} {each.reason} {each.component} {each.count} {each.message}")


def shown_rollout(data: bytes) -> None:
    """As `purser web --scheduler` shows it."""
    rollout_rows(read_rollout(data), state_of_gpus((), (), ()))


def policy_status(data: bytes) -> None:
    """Of a ClusterPolicy, as the read API sends it and the page shows it."""
    try:
        status = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # the API server sends none
    shown_rollout(msgspec.json.encode(rollout({"p": status}, ())))


class RangeAnswer:
    """What a Prometheus answers, whatever it is asked."""

    def __init__(self, data: bytes) -> None:
        self._found = prometheus._range_answer_reader.read(data).data.result

    async def ask_range(self, *_: object) -> object:
        return [(each.metric, [(at, float(value)) for at, value in each.values]) for each in self._found]


def curves(data: bytes) -> None:
    """As `purser web --prometheus` draws them."""
    found = asyncio.run(read_over_time(RangeAnswer(data), 3600, 1e9))
    for values in (found.gpus, found.unusable, *found.held.values(), *found.busy.values()):
        chart(found.times_s, [("a", values)])


def book(folder: Path) -> Callable[[bytes], None]:
    def call(data: bytes) -> None:
        (folder / "book").write_bytes(data)
        found = read_checkpoint(folder / "book", "n1")
        book = Book(folder / "book", "n1", found.pods, found.lingering)
        book.violations(book.lingering)

    return call


def body(kind: str) -> Callable[[bytes], None]:
    """Of a pod, as the lab's API server reads it: up to what it would store."""

    def call(data: bytes) -> None:
        unknown = Unknown()
        found = decode_body(jsonio.decode_object(data, kind), builtin("core.v1.Pod"), unknown)
        unknown.messages()
        lab_defaults.pod(found)

    return call


def of_records(read: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Records of whichever content, under checksums that are right."""

    def entry(data: bytes) -> None:
        try:
            content = b"".join(map(encode_record, msgspec.json.decode(data, type=list[Record])))
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
            return  # this text itself cannot be read, or MessagePack has no such numbers: there is no log to read
        read(MAGIC + content)

    return entry


def decision_log_bytes(data: bytes) -> None:
    reader, replayer = Reader(io.BytesIO(data).read), Replayer()
    for record in reader:
        replayer.take(reader, record)


def explained_log(data: bytes) -> None:
    """A decision log of a file, of which the last decision on a pod is explained."""
    explain_from_log([LogFile("d.log", lambda: io.BytesIO(data))], "", "u3")


Entry = tuple[Callable[[bytes], Any], list[str | bytes], tuple[type[Exception], ...]]
"""What reads the text, valid texts, and the errors that the reader announces."""


def entries(folder: Path) -> dict[str, Entry]:
    facts = encode(NodeFacts(os_id="ubuntu", os_version="22.04", gpus=(PciGpu("20b5"),)))
    review_of_a_pod = as_json(review(POD))
    change = as_json(review(BOUND, old=BOUND, operation="UPDATE"))
    eviction = as_json(
        review(
            {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "u-1"}}},
            subresource="eviction",
            user="system:serviceaccount:purser-system:purser-agent",
        )
    )
    binding = as_json(review({"metadata": {"annotations": SIGNED}}, subresource="binding"))
    state = memory_file.MemoryState({}, {})
    file_error = (kubelet_errors.CheckpointError,)
    keys = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    decisions = logged_records()
    log_of_decisions = MAGIC + b"".join(map(encode_record, decisions))
    return {
        "decision log": (of_records(decision_log_bytes), [msgspec.json.encode(decisions)], (DecisionLogError,)),
        "decision log, as bytes": (decision_log_bytes, [log_of_decisions], (DecisionLogError,)),
        "explained decision log": (
            of_records(explained_log),
            [msgspec.json.encode(decisions)],
            (DecisionLogError, UnknownPodError),
        ),
        "explained decision log, as bytes": (explained_log, [log_of_decisions], (DecisionLogError, UnknownPodError)),
        "grant": (grant, [GRANT_TEXT], (signing.GrantError,)),
        "signature": (signature, [SIGNED[GRANT_SIGNATURE_ANNOTATION]], (signing.GrantError,)),
        "public keys": (lambda data: signing.parse_public_keys(text_of(data)), [keys], ()),
        "node facts": (lambda data: decode_facts(text_of(data)), [facts], ()),
        "MIG request": (lambda data: decode_request(text_of(data)), [encode(MigRequest("all", "7"))], ()),
        "MIG result": (lambda data: decode_result(text_of(data)), [encode(MigResult("all", "7"))], ()),
        "inventory": (inventory, [INVENTORY], (InventoryError,)),
        "disputes": (disputes, [encode(DISPUTES)], ()),
        "cgroup of a process": (
            lambda data: owner_of(text_of(data)),
            [CGROUPS_V1, f"0::/kubepods.slice/kubepods-pod{CGROUP_UID}.slice/cri-containerd-{'ab' * 32}.scope"],
            (),
        ),
        "HAMi's devices": (
            lambda data: hami_codec.decode_pod_devices(text_of(data)),
            ["GPU-1,NVIDIA,1000,30:;;"],
            (hami_codec.CodecError,),
        ),
        "what Volcano chose": (
            lambda data: chosen_grant(volcanos(text_of(data)), VOLCANOS_REQUEST, VOLCANOS_NODE),
            ["0", "1,0", "GPU-1,NVIDIA,1000,30:GPU-2,NVIDIA,1000,30:"],
            (),
        ),
        "registration with colons": (
            registered("hami.io/node-dcu-register", "hygon.com/dcunum"),
            ["DCU-a,4,32768,100,Z100L,0,true:DCU-b,4,32768,100,Z100L,1,false,1,hami-core:"],
            (),
        ),
        "registration in JSON": (
            registered("hami.io/node-register-Ascend910A", "huawei.com/Ascend910A"),
            [
                '[{"id":"A1","index":1,"count":16,"devmem":32768,"devcore":30,"type":"Ascend910A","numa":1,"health":true}]'
            ],
            (),
        ),
        "KAI's annotations": (
            by_annotation,
            [
                as_json({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
                as_json({"gpu-memory": "2000", "gpu-fraction-container-name": "main", "mps": "true"}),
            ],
            (DialectError,),
        ),
        "registration by profiles": (
            registered("enflame.com/gcu-drs-capacity", "enflame.com/drs-gcu"),
            ['{"devices":[{"index":"0","minor":"1","capacity":6}],"profiles":{"1g.6gb":"0","6g.40gb":"2"}}'],
            (),
        ),
        "registration with a vendor's own fields": (
            registered("metax-tech.com/node-gpu-devices", "metax-tech.com/sgpu"),
            [
                '[{"uuid":"G","model":"M","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"numa":1,"healthy":true}]'
            ],
            (),
        ),
        "init resources": (moved, ['{"init":{"nvidia.com/gpucores":"30"}}'], (DialectError,)),
        "kubelet's report": (report, [REPORT], (ReportError, kubelet_errors.KubeletStartError)),
        "CPU state": (
            lambda data: cpu_file.decode(data, "static"),
            [cpu_file.encode(cpu_file.CpuState(255, 0, {}), with_data=each) for each in (False, True)],
            file_error,
        ),
        "device state": (device_file.decode, [device_file.encode({}, {"nvidia.com/gpu": ("GPU-1",)})], file_error),
        "memory state": (
            memory_file.decode,
            [memory_file.encode("Static", state, with_data=each) for each in (False, True)],
            file_error,
        ),
        "the agent's GPU instances": (
            record_file.read,
            [msgspec.json.encode(GpuRecord("GPU-1", (OwnedInstance(MigPlacement("1g.5gb", 3), "MIG-1"),)))],
            (UnreadableError,),
        ),
        "what ddptool says": (ddptool_output.read, [ddptool_says(DDP_PACKAGE)], (UnreadableError,)),
        "the kernel's devlink": (running_versions, [DEVLINK], ()),
        "the agent's book": (book(folder), [msgspec.json.encode(BOOK)], (AgentCheckpointError,)),
        "pod": (any_pod, [as_json(POD), as_json(REFUSED), as_json(BOUND)], (KubeError, DialectError)),
        "node": (node, [as_json(NODE)], (KubeError, QuantityError)),
        "watch": (watch, [as_json({"type": "ADDED", "object": BOUND})], (KubeError,)),
        "list": (pages, [as_json({"metadata": {"resourceVersion": "1"}, "items": [BOUND, NODE]})], (KubeError,)),
        "refusal": (
            lambda data: error_from_response(409, data, text_of(data)).retry_after_s,
            ['{"code":429,"reason":"X","details":{"retryAfterSeconds":3}}'],
            (),
        ),
        "exec credential": (
            lambda data: parse_exec_credential("x", data),
            ['{"status":{"token":"x","expirationTimestamp":"2026-01-01T00:00:00Z"}}'],
            (KubeError,),
        ),
        "the scheduler's state": (
            shown_state,
            [msgspec.json.encode(state_of_gpus((state_node("n"),), (HELD,), (LIKE_HELD,)))],
            (UnreadableError,),
        ),
        "a node's details": (shown_node, [msgspec.json.encode(details_of_node("n"))], (UnreadableError,)),
        "a pod's details": (shown_pod, [msgspec.json.encode(POD_DETAILS)], (UnreadableError,)),
        "the events about an object": (shown_events, [msgspec.json.encode(EVENT_LIST)], (UnreadableError,)),
        "a rollout": (shown_rollout, [msgspec.json.encode(ROLLOUT)], (UnreadableError,)),
        "a status of a ClusterPolicy": (policy_status, [msgspec.json.encode(ROLLOUT_STATUS)], ()),
        "curves of Prometheus": (curves, [as_json(RANGE)], (UnreadableError, ValueError)),
        "a cluster in a file": (explained, [dump(*EXPLAINED)], (DumpError, UnknownPodError)),
        "a manifest of pods that do not exist yet": (
            explained_new,
            [yaml.safe_dump_all(MANIFESTS), as_json({"kind": "List", "items": MANIFESTS})],
            (ManifestError,),
        ),
        "a cluster's past": (
            past,
            [listed(PAST), b"\n".join(as_json(each).encode() for each in PAST)],
            (HistoryError, NothingToReplay),
        ),
        "a decision log of the past": (log_of_past(folder), [logged()], (HistoryError, NothingToReplay)),
        "kube-state-metrics": (
            metrics,
            [as_json(KSM)],
            (NothingToReplay,),
        ),
        "YAML": (
            lambda data: read_all_yaml(data, "x"),
            ["a: &a [1, 2]\nb: *a\n---\nc: {d: !!str 1}\ne: |\n  f\n", yaml.safe_dump(POD)],
            (UnreadableError,),
        ),
        "the device plugin's file": (
            shared_by,
            [yaml.safe_dump(PLUGIN_FILE), as_json(PLUGIN_FILE), as_json({"nodeconfig": [HAMI_NODE]})],
            (SharingError,),
        ),
        "GPUs' health": (
            lambda data: restore_health(health_file.read(data).xids),
            [b'{"boot_id": "b", "xids": [{"uuid": "GPU-1", "state": "needs-reset", "words": "Xid 95"}]}'],
            (UnreadableError,),
        ),
        "known GPUs": (
            known_gpus_file.read,
            [b'{"boot_id": "b", "gpus": [{"index": 1, "uuid": "GPU-1", "mig": {"enabled": true, "pending": false}}]}'],
            (UnreadableError,),
        ),
        "the lab's bodies": (body("application/json"), [as_json(BOUND)], (StatusError,)),
        "the lab's YAML": (body("application/yaml"), [yaml.safe_dump(BOUND)], (StatusError,)),
        "PCI configuration": (lambda data: vgpu_host(data.ljust(256, b"\0")), [vgpu_config()], (LabelTrouble,)),
        "mutate": (admit(Mutation()), [review_of_a_pod], (ReviewError,)),
        "validate": (admit(Validation()), [review_of_a_pod, change, binding, eviction], (ReviewError,)),
        "filter": (extend, [as_json({"Pod": POD, "NodeNames": ["n1", "n2"]})], (WireError, DialectError)),
        "bind": (
            decode_binding,
            [as_json({"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "n1"})],
            (WireError,),
        ),
        "preempt": (
            decode_preemption,
            [as_json({"Pod": BOUND, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}]}}})],
            (WireError,),
        ),
    }


NASTY = [
    b"", b"null", b"true", b"[]", b"{}", b'""', b"0", b"-1", b"1e400", b"-1e400", b"1e-400", b"1.5", b"9" * 30,
    b"9" * 5000, b"-" + b"9" * 25, b"[" * 200, b"[" * 2000 + b"]" * 2000, b'{"a":' * 300 + b"1" + b"}" * 300,
    b'"\xff"', b'"\\ud800"', b'"\\u0000"', b'"\xed\xa0\x80"', b"\x00", b"\xff\xfe", b'"1e999"', b'"-1e30"', b'"9e99"',
    '"²"'.encode(), '"é"'.encode(), '"١"'.encode(), b'"' + b"A" * 3000 + b'"', b'"1Ei"', b'"-1"', b'"0x10"', b"NaN",
    b"Infinity", b'"a/b"', b'"::"', b'"0-99999999"', b'"4294967296"', b"[[[]]]", b"[null]", b'{"":null}', b"1" * 19,
]  # fmt: skip
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[\[\]{},:;]')


def mutated(valid: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        spots = [found.span() for found in _VALUE.finditer(valid)] or [(0, len(valid))]
        first, last = chance.choice(spots)
        kind = chance.randrange(8)
        if kind <= 3:
            valid = valid[:first] + chance.choice(NASTY) + valid[last:]
        elif kind == 4:
            at = chance.randrange(len(valid) + 1)
            valid = valid[:at] + bytes([chance.randrange(256)]) + valid[at + 1 :]
        elif kind == 5:
            other, end = chance.choice(spots)
            valid = valid[:first] + valid[other:end] + valid[last:]
        elif kind == 6:
            valid = valid[:first] + valid[first : first + chance.randrange(200)] * 2 + valid[last:]
        else:
            valid = valid[: chance.randrange(len(valid) + 1)]
        valid = valid[:100_000]
    return valid


def names(folder: Path = Path()) -> list[str]:
    return list(entries(folder))


@pytest.mark.parametrize("name", names())
def test_whatever_is_written_is_a_value_or_the_one_error(name: str, tmp_path: Path) -> None:
    read, valid, announced = entries(tmp_path)[name]
    texts = [text.encode() if isinstance(text, str) else text for text in valid]
    for text in texts:
        read(text)  # it is valid
    chance = random.Random(f"{SEED} {name}")
    count = WANTED // len(names())
    begun = _memory()
    for number in range(count):
        text = chance.randbytes(chance.randrange(64)) if number % 20 == 0 else mutated(chance.choice(texts), chance)
        try:
            read(text)
        except announced as error:
            assert len(str(error)) < 5000, f"a message of {len(str(error))} characters"
        except Exception as error:
            error.add_note(f"{name}: {text[:3000]!r}")
            raise
        if number == count // 5:
            begun = _memory()
    if TIER is Tier.SOAK and count > 10_000:
        assert _memory() - begun < 64 << 20


def _memory() -> int:
    """Bytes that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


SHAPES = {
    "lists": b"[" + b"[]," * 1000 + b"[]]",
    "objects": b"[" + b'{"a":1},' * 1000 + b"0]",
    "quotes": b'["' + b'\\"' * 1000 + b'"]',
    "numbers": b"[" + b"1," * 1000 + b"1]",
    "separators": b":" * 1000 + b";" * 1000 + b"," * 1000,
    "open": b"{" * 1000,
    "text": b'"' + b"a" * 3000 + b'"',
}


if TIER is Tier.SOAK:

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("name", names())
    def test_twice_the_text_costs_about_twice(name: str, shape: str, tmp_path: Path) -> None:
        read, _, announced = entries(tmp_path)[name]

        def cost(times: int) -> float:
            best = 1e9
            for _ in range(5):
                began = time.perf_counter()
                with suppress(*announced):
                    read(SHAPES[shape] * times)
                best = min(best, time.perf_counter() - began)
            return best

        assert cost(16) < 6 * cost(8) + 0.002
