"""What docs/why.md shows is what the command prints, to the character, of one cluster and what has happened in it."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cli.typed import here
from tests.unit.core.decisions.scheduling_world import LoggedScheduler
from tests.unit.scheduler.explained import Raw, dump, gpu, gpus, node, pod

from purser.core.grant.signing import GRANT_ANNOTATION
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    DeviceRequest,
    Enforcement,
    Grant,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import PolicySettings

PAGE = Path(__file__).parents[3] / "docs/why.md"
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def block(first: str) -> str:
    """The one of the page that begins so."""
    (found,) = (each for each in BLOCKS if each.startswith(first))
    return found


TEAM_B = {"key": "team", "value": "b", "effect": "NoSchedule"}
TOLERATES = [{"key": "team", "operator": "Equal", "value": "b", "effect": "NoSchedule"}]
ENFORCED = {"enforcement": Enforcement.HAMI_CORE}
A100 = "NVIDIA A100-SXM4-40GB"
FAILED = "GPU-b66c569c-e300-5cf9-b886-e1cee80c78fb"


def made(namespace: str, name: str, limits: Mapping[str, str], container: str = "train", **facts: Any) -> Raw:
    """A pod of a team."""
    status = facts.pop("status", {})
    found = pod(name, limits, **facts)
    found["metadata"] |= {"namespace": namespace, "creationTimestamp": "2026-03-01T09:00:00Z"}
    found["spec"]["containers"][0]["name"] = container
    annotations = found["metadata"]["annotations"]
    if GRANT_ANNOTATION in annotations:
        grant = msgspec.json.decode(annotations[GRANT_ANNOTATION], type=Grant)
        parts = tuple(msgspec.structs.replace(each, container=container) for each in grant.containers)
        grant = msgspec.structs.replace(grant, namespace=namespace, containers=parts)
        annotations[GRANT_ANNOTATION] = msgspec.json.encode(grant).decode()
    found["status"] |= status
    return found


def held(namespace: str, name: str, on: str, memory: int, at: Sequence[int], **facts: Any) -> Raw:
    """A pod that has so much of GPUs of a node."""
    share = {f"{on}-{index}": memory for index in at}
    return made(namespace, name, gpu(memory, len(share)), on=on, share=share, **facts)


NODES = [
    *(node(name, gpus(name, 8, 40960, A100, **ENFORCED)) for name in ("gpu-1", "gpu-2", "gpu-3")),
    *(node(name, gpus(name, 8, 40960, A100, **ENFORCED), taints=[TEAM_B]) for name in ("gpu-4", "gpu-5")),
    node("gpu-6", gpus("gpu-6", 4, 15360, **ENFORCED)),
]
"""gpu-4 and gpu-5 are for team b."""
PODS = [
    held("team-b", "notebook-3", "gpu-1", 12288, [0], tolerations=TOLERATES),
    held("team-b", "serve-0", "gpu-1", 20480, [0]),
    held("team-b", "serve-1", "gpu-1", 32768, range(1, 8)),
    held("team-b", "serve-2", "gpu-2", 32768, range(8)),
    held("team-b", "serve-3", "gpu-3", 32768, [0, 1, 3, 4, 5, 6, 7]),
    held("team-b", "notebook-4", "gpu-3", 12288, [2]),
    held("team-b", "serve-4", "gpu-4", 20480, [0]),
    held("team-b", "serve-5", "gpu-5", 8192, [0]),
]
ON_GPU_3 = {
    "on": "gpu-3",
    "share": {"gpu-3-2": (20480, 30)},
    "tolerations": TOLERATES,
}
ASKED = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20480", "nvidia.com/gpucores": "30"}
RUNS = {"running": {}}


def train_0() -> Raw:
    return made("team-a", "train-0", gpu(20480), annotations={"nvidia.com/use-gputype": "A100"})


def waiting(name: str, **facts: Any) -> Raw:
    return made("team-a", name, gpu(20480), tolerations=TOLERATES, **facts)


def train_1(name: str = "train-1", **status: Any) -> Raw:
    found = made("team-a", name, ASKED, **ON_GPU_3, status=status)
    found["status"]["startTime"] = "2026-03-01T10:00:00Z"
    return found


OTHER_CLAIM = {"kind": "ResourceClaim", "metadata": {"name": "other", "namespace": "team-b"}}
UNBOUND = {
    "type": "PodScheduled",
    "status": "False",
    "message": "0/6 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
}


def state(name: str, **facts: Raw) -> Raw:
    return {"name": name, "state": facts}


NOT_PULLED = state(
    "train",
    waiting={
        "reason": "ErrImagePull",
        "message": 'failed to resolve reference "registry.example/train:2"',
    },
)
REFUSAL = (
    f"Allocate failed due to rpc error: code = Unknown desc = pod team-a/train-2: the GPU {FAILED} failed after it was "
    "granted, which is unexpected"
)


def with_exporter() -> Raw:
    found = train_1("train-3", phase="Running")
    found["spec"]["containers"].append({"name": "exporter", "image": "i"})
    crashed = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}}
    last = {"lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}
    found["status"]["containerStatuses"] = [state("train", **RUNS), {**state("exporter", **crashed), **last}]
    return found


def on_unhealthy_gpu() -> list[Raw]:
    """A node, and a pod on it."""
    xid = "Xid 79 (GPU has fallen off the bus)"
    (device,) = gpus("gpu-7", 1, 15360, healthy=False, unhealthy_reason=xid)
    device = msgspec.structs.replace(device, uuid=FAILED)
    running = {"phase": "Running", "containerStatuses": [state("train", **RUNS)]}
    share = {FAILED: (10240, 30)}
    return [
        node("gpu-7", (device,)),
        made("team-a", "share", gpu(10240), on="gpu-7", share=share, status=running),
    ]


def web() -> list[Raw]:
    def of_web(suffix: str, at: int, **facts: Any) -> Raw:
        found = made("team-a", f"web-7d4b9c-{suffix}", gpu(20480), "web", **facts)
        reference = {"kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "o", "controller": True}
        created = f"2026-03-01T10:00:{at}Z"
        found["metadata"] |= {"creationTimestamp": created, "ownerReferences": [reference]}
        found["metadata"]["labels"] = {"pod-template-hash": "7d4b9c"}
        return found

    refusal = (
        'pods "web-7d4b9c-" is forbidden: exceeded quota: team-a, requested: pods=1, used: pods=3, limited: pods=3'
    )
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refusal}
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a"},
        "spec": {"replicas": 4},
        "status": {"conditions": [failure]},
    }
    return [
        deployment,
        of_web("8l5rz", 10, on="gpu-3", share={"gpu-3-2": 20480}),
        of_web("x2x4f", 20),
        of_web("qm7wd", 30),
    ]


MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: train-0, namespace: team-a}
spec:
  containers:
  - name: train
    image: i
    resources: {limits: {nvidia.com/gpumem: 49152}}
"""


@pytest.fixture
def printed(tmp_path):
    def ask(objects: Sequence[Raw], *words: str) -> str:
        file = tmp_path / "cluster.json"
        namespaces = [{"kind": "Namespace", "metadata": {"name": name}} for name in ("team-a", "team-b")]
        file.write_bytes(dump(*NODES, *PODS, *namespaces, *objects))
        code, out, err = here("why", *words, "-n", "team-a", "--from", file)
        assert code == 0
        return err + out

    return ask


SITUATIONS = {
    "waits": ([train_1(), train_0()], "train-0", ["team-a/train-0 waits:", "Each of these changes alone makes "]),
    "on a node": ([train_1()], "train-1", ["team-a/train-1 is on node gpu-3\n"]),
    "image": (
        [train_1(phase="Pending", containerStatuses=[NOT_PULLED])],
        "train-1",
        ["team-a/train-1 is on node gpu-3, but does not run"],
    ),
    "refused": (
        [train_1("train-2", phase="Failed", reason="UnexpectedAdmissionError", message=REFUSAL)],
        "train-2",
        ["team-a/train-2 failed"],
    ),
    "a container": ([with_exporter()], "train-3", ["team-a/train-3 runs on node"]),
    "unhealthy GPU": (on_unhealthy_gpu(), "share", ["team-a/share is on node"]),
    "deployment": (web(), "deploy/web", ["Deployment team-a/web has"]),
    "gates": (
        [train_1(), waiting("train-3", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])],
        "train-3",
        ["team-a/train-3 waits: its scheduling gates"],
    ),
    "claims": (
        [waiting("train-4", resourceClaims=[{"name": "nic", "resourceClaimName": "nic"}]), OTHER_CLAIM],
        "train-4",
        ["team-a/train-4 waits"],
    ),
    "fits": (
        [train_1(), waiting("train-2", status={"conditions": [UNBOUND]})],
        "train-2",
        ["team-a/train-2 waits, and fits"],
    ),
}
"""What there is besides, of whom it is asked, and how the page's blocks begin that have the answer."""


OF_MANIFEST, OF_LOG = "purser: warning for the pod's author", "team-a/train-0 waited at"
BY_KUBECTL = "LAST SEEN"


@pytest.mark.parametrize(("objects", "words", "starts"), SITUATIONS.values(), ids=SITUATIONS)
def test_the_page_has_what_is_printed(printed, objects, words, starts):
    assert printed(objects, words) == "\n".join(map(block, starts))


def test_the_page_has_what_is_printed_of_a_manifest(printed, tmp_path):
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(MANIFEST)
    lines = printed([train_1()], "-f", str(manifest)).splitlines(keepends=True)
    # The page shows the answer of a cluster, whose API server checks them.
    assert "".join(line for line in lines if "kubectl create --dry-run=server checks them" not in line) == block(
        OF_MANIFEST
    )


HELD = (
    *(("gpu-1", 15000) for _ in range(4)),
    *(("gpu-2", 30000) for _ in range(2)),
    *(("gpu-3", 40000) for _ in range(2)),
)
"""By pods of the log: so much of a GPU of a node."""


def test_the_page_has_what_is_printed_of_a_decision_log(tmp_path):
    def asking(name: str, memory: int) -> PodRequest:
        part = ContainerRequest("train", ContainerKind.APP, DeviceRequest(1, memory))
        return PodRequest(f"uid-{name}", "team-a", name, (part,))

    log = LoggedScheduler(PolicySettings())
    log.at = datetime(2026, 3, 1, 9, 58, 12, tzinfo=UTC).timestamp()
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        log.fleet.set_inventory(NodeInventory(name, gpus(name, 2, 40960, A100)))
    log.new_file()
    for at, (name, memory) in enumerate(HELD):
        log.schedule(asking(f"notebook-{at}", memory), [name])
    log.schedule(asking("train-0", 20000), ["gpu-1", "gpu-2"])
    (text,) = log.written()
    (tmp_path / "decisions-20260301T000000Z-scheduler-0-000001.log").write_bytes(text)
    code, out, err = here("why", "train-0", "-n", "team-a", "--from", tmp_path)
    assert (code, err, out) == (0, "", block(OF_LOG))


def test_no_block_of_the_page_is_left_out():
    starts = [*(start for *_, each in SITUATIONS.values() for start in each), OF_MANIFEST, OF_LOG, BY_KUBECTL]
    assert sorted(map(block, starts)) == sorted(BLOCKS)
