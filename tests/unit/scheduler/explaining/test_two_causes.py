"""Each two causes at once: on two nodes both are named, each with its node; on one node the one that comes first in the
chain: kube-scheduler's filters in their order, then what Purser finds of a GPU, of several together, and of kubelet.
Beside a filter the other is named as a further reason."""

import json
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import NamedTuple

import msgspec
import pytest
from tests.unit.core.placement.test_instances import gpu as cut_gpu
from tests.unit.scheduler.explained import Raw, cluster, gpu, gpus, node, pod, quota
from tests.unit.scheduler.test_explained_reasons import of_vendor

from purser.adapters.manifests import ManifestPod
from purser.adapters.objects import ClusterObjects
from purser.core.explaining.grouping import ReasonCount
from purser.core.explaining.reasons import FilterReason
from purser.core.model import Device, Enforcement, MigPlacement
from purser.core.names import (
    CORDONED_GPUS_ANNOTATION,
    ENFORCEMENT_ANNOTATION,
    GPU_POLICY_ANNOTATION,
    KUBELET_ANNOTATION,
    SCHEDULER_NAME,
)
from purser.core.placement import Reason
from purser.kube.objects import Pod
from purser.scheduler.explaining import Explainer
from purser.scheduler.explaining.judging import reason_counts
from purser.scheduler.explaining.known import KnownCluster

HOST = "kubernetes.io/hostname"
CLAIM = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {"volumeName": "pv"},
}


def _in(key: str, value: str) -> Raw:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}


VOLUME = {
    "kind": "PersistentVolume",
    "metadata": {"name": "pv"},
    "spec": {"nodeAffinity": {"required": _in("disk", "here")}},
}

DEVICES = {
    "kind": "ResourceClaim",
    "metadata": {"name": "nic", "namespace": "default"},
    "status": {"allocation": {"nodeSelector": _in("nic", "here")}},
}


def _beside(kind: str, app: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


class Scene:
    """A pod that waits, and nodes that take it until a cause says otherwise."""

    def __init__(self, count: int = 1, scheduler: str = SCHEDULER_NAME) -> None:
        """``count``: GPUs of each node, all of which the pod asks for."""
        asked = {**gpu(9000, count), "nvidia.com/gpucores": "50", "cpu": "2", "memory": "1Gi"}
        self.pod = pod("p", asked, schedulerName=scheduler, affinity={})
        self.devices = {name: gpus(name, count) for name in "ab"}
        self.nodes = {name: node(name, gpus(name, count), labels=self.labels(name)) for name in "ab"}
        self.others: list[Raw] = [pod(f"friend-{name}", {}, on=name, labels={"app": "friend"}) for name in "ab"]

    @staticmethod
    def labels(name: str) -> dict[str, str]:
        return {HOST: name, "pool": "gpu", "zone": "z1", "disk": "here", "nic": "here"}

    def device(self, name: str, **facts: object) -> None:
        """GPU facts of a node; several causes may say some."""
        self.put(name, *(msgspec.structs.replace(each, **facts) for each in self.devices[name]))

    def put(self, name: str, *devices: Device) -> None:
        """A node's GPUs from now on."""
        self.devices[name] = devices
        made = node(name, devices)
        inventory = "purser.dev/inventory"
        self.nodes[name]["metadata"]["annotations"][inventory] = made["metadata"]["annotations"][inventory]

    def held(self, name: str, memory: int, cores: int, **facts: object) -> None:
        """Another pod has that much of each GPU."""
        share = {each.uuid: (memory, cores) for each in self.devices[name]}
        of_it = {"nvidia.com/gpu": str(len(share)), "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": str(cores)}
        self.others.append(pod(f"held-{len(self.others)}", of_it, on=name, share=share) | facts)

    def objects(self, *more: Raw) -> ClusterObjects:
        """As they are read from an API server."""
        return cluster(self.pod, *self.nodes.values(), *self.others, CLAIM, VOLUME, DEVICES, *more)

    def said(self, *more: Raw) -> dict[str, set[str]]:
        """Of each node the reasons that are counted for it."""
        known, waiting = self._known(*more)
        return _by_node(reason_counts(known.judge(waiting), known.fleet, known.policy))

    def said_further(self) -> dict[str, set[str]]:
        """Of each node that a filter rejects, what else there is."""
        known, waiting = self._known()
        found = known.judge_further(waiting, known.judge(waiting))
        return _by_node(reason_counts(found, known.fleet, known.policy))

    def _known(self, *more: Raw) -> tuple[KnownCluster, Pod]:
        known = KnownCluster(self.objects(*more))
        waiting = known.pod("default", "p")
        assert waiting is not None
        return known, waiting


def _by_node(reasons: Iterable[ReasonCount]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"a": set(), "b": set()}
    for each in reasons:
        for name in each.examples:
            found[name].add(each.reason)
    return found


class Cause(NamedTuple):
    reason: str
    of_pod: Callable[[Scene], object]
    """What the pod has or asks for, which each node without the cause has."""
    of_node: Callable[[Scene, str], object]
    gpus: int = 1
    """How many the pod has to ask for."""


def nothing(_: Scene) -> None:
    """The pod is as any other."""


def allocatable(resource: str, amount: str) -> Callable[[Scene, str], object]:
    return lambda scene, name: scene.nodes[name]["status"]["allocatable"].update({resource: amount})


def spec(**fields: object) -> Callable[[Scene], object]:
    return lambda scene: scene.pod["spec"].update(fields)


def affinity(part: Raw) -> Callable[[Scene], object]:
    return lambda scene: scene.pod["spec"]["affinity"].update(part)


def unlabelled(key: str) -> Callable[[Scene, str], object]:
    return lambda scene, name: scene.nodes[name]["metadata"]["labels"].pop(key)


def annotated(key: str, value: str) -> Callable[[Scene], object]:
    return lambda scene: scene.pod["metadata"]["annotations"].update({key: value})


def has_port(made: Raw) -> None:
    made["spec"]["containers"][0]["ports"] = [{"hostPort": 80, "containerPort": 80}]


def port_in_use(scene: Scene, name: str) -> None:
    scene.others.append(pod(f"web-{name}", {}, on=name))
    has_port(scene.others[-1])


def must_be_enforced(scene: Scene) -> None:
    annotated(ENFORCEMENT_ANNOTATION, "required")(scene)
    for name in scene.nodes:
        scene.device(name, enforcement=Enforcement.HAMI_CORE)


def slots_in_use(scene: Scene, name: str) -> None:
    scene.device(name, slots=1)
    scene.held(name, 1, 1)


def excluded(scene: Scene, name: str) -> None:
    key, annotations = "nvidia.com/nouse-gpuuuid", scene.pod["metadata"]["annotations"]
    annotations[key] = ",".join([*filter(None, [annotations.get(key)]), *(each.uuid for each in scene.devices[name])])


def far_from_each_other(scene: Scene, name: str) -> None:
    scene.put(name, *(msgspec.structs.replace(each, numa_nodes=(each.index,)) for each in scene.devices[name]))


def one_less(scene: Scene, name: str) -> None:
    scene.put(name, *scene.devices[name][1:])


def cut_and_full(scene: Scene, name: str) -> None:
    """In place of its GPU one that is cut on demand, and that an administrator's instance takes up."""
    (old,) = scene.devices[name]
    made = cut_gpu(old.uuid, old.index, held=[MigPlacement("7g.40gb", 0)])
    keeps = {key: getattr(old, key) for key in ("model", "healthy", "unhealthy_reason", "slots")}
    if old.enforcement is Enforcement.TIME_SLICING:
        keeps["enforcement"] = old.enforcement
    scene.put(name, msgspec.structs.replace(made, **keeps))


def must_be_idle(scene: Scene) -> None:
    annotated(GPU_POLICY_ANNOTATION, "mutex")(scene)


def any_compute(scene: Scene) -> None:
    for part in scene.pod["spec"]["containers"][0]["resources"].values():
        part.pop("nvidia.com/gpucores")


def spread(scene: Scene) -> None:
    scene.pod["metadata"]["labels"]["app"] = "spread"
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": "Ignore",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
    spec(topologySpreadConstraints=[constraint])(scene)


def aligning(scene: Scene, name: str, free: str) -> None:
    """The node has a kubelet that gives a container the CPUs of one NUMA node alone, of these that are free."""
    numa = [{"node": at, "memory": {"memory": 1 << 34}, "distances": [10 + 10 * at, 20 - 10 * at]} for at in (0, 1)]
    twin = {
        "format": 1,
        "version": "v1.30.0",
        "config": {"topology_policy": "single-numa-node", "cpu_policy": "static"},
        "machine": {
            "numa_nodes": numa,
            "cpus": [[0, 0, 0, "0-3", [[0, 4]]], [1, 1, 1, "4-7", [[4, 4]]]],
            "num_sockets": 2,
        },
        "resources": {"nvidia.com/gpu": {"groups": [[None, True, [[f"{name}-0::", "0-9"], [f"{name}-1::", "0-9"]]]]}},
        "cpus": {"default": free, "reserved": "0"},
    }
    scene.nodes[name]["metadata"]["annotations"][KUBELET_ANNOTATION] = json.dumps(twin)
    scene.nodes[name]["status"]["nodeInfo"] = {"kubeletVersion": "v1.30.0"}


def on_their_way(scene: Scene, name: str) -> None:
    """More pods that kubelet aligns have been bound than the orders of whose admission are followed."""
    aligning(scene, name, "0-7")
    for at in range(3):
        asked = {**gpu(1, len(scene.devices[name])), "cpu": "1", "memory": "1Mi"}
        share = {each.uuid: 1 for each in scene.devices[name]}
        scene.others.append(pod(f"coming-{name}-{at}", asked, on=name, share=share))
        scene.others[-1]["status"] = {"phase": "Pending"}


def nominated(scene: Scene, name: str) -> None:
    scene.others.append(pod(f"nominated-{name}", gpu(16000, len(scene.devices[name])), priority=9))
    scene.others[-1]["status"]["nominatedNodeName"] = name


CAUSES = (
    Cause(FilterReason.UNSCHEDULABLE, nothing, lambda s, n: s.nodes[n]["spec"].update(unschedulable=True)),
    Cause(
        FilterReason.TAINT,
        nothing,
        lambda s, n: s.nodes[n]["spec"].update(taints=[{"key": "t", "effect": "NoSchedule"}]),
    ),
    Cause(FilterReason.SELECTOR, spec(nodeSelector={"pool": "gpu"}), unlabelled("pool")),
    Cause(
        FilterReason.AFFINITY,
        affinity({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _in("zone", "z1")}}),
        unlabelled("zone"),
    ),
    Cause(FilterReason.PORTS, lambda s: has_port(s.pod), port_in_use),
    Cause(FilterReason.PODS, nothing, allocatable("pods", "0")),
    Cause(FilterReason.RESOURCES, nothing, allocatable("cpu", "1")),
    Cause(FilterReason.RESOURCES, nothing, allocatable("memory", "512Mi")),
    Cause(FilterReason.RESOURCES, nothing, allocatable("nvidia.com/gpu", "0")),
    Cause(
        FilterReason.VOLUME,
        spec(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]),
        unlabelled("disk"),
    ),
    Cause(
        FilterReason.SPREAD,
        spread,
        lambda s, n: s.others.append(pod(f"spread-{n}", {}, on=n, labels={"app": "spread"})),
    ),
    Cause(
        FilterReason.POD_ANTI_AFFINITY,
        affinity(_beside("podAntiAffinity", "noisy")),
        lambda s, n: s.others.append(pod(f"noisy-{n}", {}, on=n, labels={"app": "noisy"})),
    ),
    Cause(
        FilterReason.POD_AFFINITY,
        affinity(_beside("podAffinity", "friend")),
        lambda s, n: s.others.remove(next(each for each in s.others if each["metadata"]["name"] == f"friend-{n}")),
    ),
    Cause(
        FilterReason.RESOURCE_CLAIM,
        spec(resourceClaims=[{"name": "nic", "resourceClaimName": "nic"}]),
        unlabelled("nic"),
    ),
    Cause(Reason.NOT_HEALTHY, nothing, lambda s, n: s.device(n, healthy=False)),
    Cause(
        Reason.CORDONED,
        nothing,
        lambda s, n: s.nodes[n]["metadata"]["annotations"].update(
            {CORDONED_GPUS_ANNOTATION: ",".join(each.uuid for each in s.devices[n])}
        ),
    ),
    Cause(Reason.DISPUTED, nothing, lambda s, n: s.others.append(pod(f"stranger-{n}", gpu(), on=n))),
    Cause(
        Reason.TYPE_MISMATCH,
        annotated("nvidia.com/use-gputype", "T4"),
        lambda s, n: s.device(n, model="NVIDIA A100"),
    ),
    Cause(Reason.UUID_MISMATCH, nothing, excluded),
    Cause(Reason.NOT_ENFORCED, must_be_enforced, lambda s, n: s.device(n, enforcement=Enforcement.TIME_SLICING)),
    Cause(Reason.SLOTS_EXHAUSTED, nothing, slots_in_use),
    Cause(Reason.EXCLUSIVE_CONFLICT, must_be_idle, lambda s, n: s.held(n, 1, 1)),
    Cause(Reason.INSUFFICIENT_MEMORY, nothing, lambda s, n: s.held(n, 9000, 10)),
    Cause(Reason.INSUFFICIENT_CORES, nothing, lambda s, n: s.held(n, 100, 60)),
    Cause(Reason.CORES_EXHAUSTED, any_compute, lambda s, n: s.held(n, 100, 100)),
    Cause(Reason.NO_MIG_PLACE, nothing, cut_and_full),
    Cause(Reason.TOO_FEW_GPUS, nothing, one_less, gpus=2),
    Cause(Reason.NUMA_NOT_FIT, annotated("nvidia.com/numa-bind", "true"), far_from_each_other, gpus=2),
    Cause(Reason.KUBELET_ADMISSION_PENDING, nothing, on_their_way),
    Cause(Reason.KUBELET_WOULD_REJECT, nothing, lambda s, n: aligning(s, n, "0,3,5")),
    Cause(Reason.NOMINATED, nothing, nominated),
)
"""In the order of the chain."""

IDS = [f"{place}-{each.reason}" for place, each in enumerate(CAUSES)]


@pytest.mark.parametrize("cause", CAUSES, ids=IDS)
def test_a_cause_by_itself_is_named_and_the_other_node_fits(cause: Cause):
    scene = Scene(cause.gpus)
    cause.of_pod(scene)
    assert scene.said() == {"a": set(), "b": set()}
    cause.of_node(scene, "a")
    assert scene.said() == {"a": {cause.reason}, "b": set()}


def _pairs(*words: str) -> frozenset[frozenset[str]]:
    first, *others = words
    return frozenset(frozenset((first, other)) for other in others)


OF_NO_POD = _pairs(Reason.INSUFFICIENT_CORES, Reason.CORES_EXHAUSTED) | _pairs(
    Reason.NO_MIG_PLACE, Reason.TOO_FEW_GPUS, Reason.NUMA_NOT_FIT
)
"""A pod asks for an amount of compute or does not; where GPUs are in MIG mode, a container has one of them."""
HOLDS = (Reason.INSUFFICIENT_MEMORY, Reason.INSUFFICIENT_CORES, Reason.CORES_EXHAUSTED)
ONE_IMPLIES_THE_OTHER = _pairs(Reason.EXCLUSIVE_CONFLICT, Reason.KUBELET_ADMISSION_PENDING, *HOLDS)
"""For a pod that wants idle GPUs: what others hold of one is in its way by itself."""
OF_NO_NODE = _pairs(Reason.NO_MIG_PLACE, *HOLDS)
"""What is left of a GPU in MIG mode is counted in places for instances, and not in MiB."""

OF_NEIGHBOURS = frozenset((FilterReason.SPREAD, FilterReason.POD_ANTI_AFFINITY, FilterReason.POD_AFFINITY))
"""Of these only the first is looked for."""


def check_pair(first: Cause, second: Cause, scheduler: str = SCHEDULER_NAME) -> None:
    reasons = frozenset((first.reason, second.reason))
    if reasons in OF_NO_POD:
        return
    for is_apart, impossible in ((True, ONE_IMPLIES_THE_OTHER), (False, OF_NO_NODE)):
        if reasons in impossible:
            continue
        scene = Scene(max(first.gpus, second.gpus), scheduler)
        first.of_pod(scene)
        second.of_pod(scene)
        first.of_node(scene, "a")
        second.of_node(scene, "b" if is_apart else "a")
        assert scene.said() == {"a": {first.reason}, "b": {second.reason} if is_apart else set()}, reasons
        if not is_apart and isinstance(first.reason, FilterReason) and not reasons <= OF_NEIGHBOURS:
            assert second.reason in scene.said_further()["a"], reasons


@pytest.mark.parametrize("at", range(len(CAUSES) - 1), ids=IDS[:-1])
def test_two_causes_on_two_nodes_are_both_named_and_on_one_node_the_first(at: int):
    pairs = [(first, second) for first, second in combinations(CAUSES, 2) if first is CAUSES[at]]
    assert pairs
    for first, second in pairs:
        check_pair(first, second)


FILTERS = [each for each in CAUSES if isinstance(each.reason, FilterReason)]


OTHER_SCHEDULERS = ("default-scheduler", "volcano", "kai-scheduler", "hami-scheduler")


@pytest.mark.parametrize("at", range(len(OTHER_SCHEDULERS)), ids=OTHER_SCHEDULERS)
def test_pods_that_others_schedule_are_held_by_the_same_filters_and_gpus(at: int):
    """What the other scheduler decides beside them is not known; its last message says it. Each pair of which one is a
    filter is asked for one scheduler, and so each cause for every scheduler."""
    pairs = [
        (first, second)
        for (place, first), (other, second) in combinations(enumerate(CAUSES), 2)
        if first in FILTERS and (place + other) % len(OTHER_SCHEDULERS) == at
    ]
    assert {id(each) for pair in pairs for each in pair} == set(map(id, CAUSES))
    for first, second in pairs:
        check_pair(first, second, OTHER_SCHEDULERS[at])


LIMITS = {"memory": quota(gpumem="100"), "compute": quota(gpucores="10")}
REASONS = [each.reason for each in CAUSES]
AFTER_QUOTA = REASONS[REASONS.index(Reason.INSUFFICIENT_MEMORY) :]
"""What is asked after the namespace's quotas."""


@pytest.mark.parametrize("of", LIMITS)
def test_a_quota_holds_the_pod_everywhere_but_where_something_comes_before_it(of: str):
    scene = Scene()
    assert scene.said(LIMITS[of]) == {"a": {Reason.QUOTA_NOT_FIT}, "b": {Reason.QUOTA_NOT_FIT}}
    for cause in CAUSES:
        if of == "compute" and cause.of_pod is any_compute:
            continue  # the pod takes none of that quota
        scene = Scene(cause.gpus)
        cause.of_pod(scene)
        cause.of_node(scene, "a")
        first = Reason.QUOTA_NOT_FIT if cause.reason in AFTER_QUOTA else cause.reason
        assert scene.said(LIMITS[of]) == {"a": {first}, "b": {Reason.QUOTA_NOT_FIT}}, cause.reason


def _as_written(scene: Scene) -> ManifestPod:
    """The scene's pod in a manifest, with an amount that Purser's webhook refuses."""
    body = scene.pod
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "many"
    return ManifestPod("Pod", "default", "new", body | {"metadata": {**body["metadata"], "name": "new"}})


@pytest.mark.parametrize("cause", [None, *CAUSES], ids=["alone", *IDS])
def test_what_the_webhook_refuses_is_all_that_is_said(cause: Cause | None):
    scene = Scene() if cause is None else Scene(cause.gpus)
    if cause is not None:
        cause.of_pod(scene)
        for name in scene.nodes:
            cause.of_node(scene, name)
    objects, written = scene.objects(), _as_written(scene)
    found = Explainer(objects).explain_new(written, "default")
    assert found.objection.startswith("Purser's webhook would reject the pod: ")
    assert (found.fits, found.reasons, found.suggestions) == ((), (), ())


class SceneOfXpus(Scene):
    """Nodes with devices that go together only if they are linked. Two are left of each, and are not."""

    def __init__(self) -> None:
        super().__init__()
        asked = self.pod["spec"]["containers"][0]["resources"]
        for part in asked:
            asked[part] = {"kunlunxin.com/xpu": "2", "cpu": "2", "memory": "1Gi"}
        for name in self.nodes:
            self.nodes[name] = of_vendor("Kunlun XPU", name, 6)
            self.nodes[name]["metadata"]["labels"] = self.labels(name)

    def hold_linked(self) -> None:
        for name in self.nodes:
            share = {f"{name}-kunlun-{at}": (98304, 100, None, "kunlunxin.com/xpu") for at in (1, 2, 3, 4)}
            self.others.append(pod(f"linked-{name}", {"kunlunxin.com/xpu": "4"}, on=name, share=share))


def test_devices_that_are_not_linked_are_named_where_no_filter_comes_before_them():
    assert SceneOfXpus().said() == {"a": set(), "b": set()}
    unlinked = {Reason.NOT_LINKED, Reason.SLOTS_EXHAUSTED}
    for cause in FILTERS:
        scene = SceneOfXpus()
        scene.hold_linked()
        cause.of_pod(scene)
        assert scene.said() == {"a": unlinked, "b": unlinked}, cause.reason
        cause.of_node(scene, "a")
        has_no_gpus = scene.nodes["a"]["status"]["allocatable"].get("nvidia.com/gpu") == "0"
        assert scene.said() == {"a": unlinked if has_no_gpus else {cause.reason}, "b": unlinked}, cause.reason


@pytest.mark.parametrize("cause", CAUSES, ids=IDS)
def test_gates_come_first_and_what_would_hold_the_pod_then_is_listed(cause: Cause):
    scene = Scene(cause.gpus)
    cause.of_pod(scene)
    cause.of_node(scene, "a")
    spec(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])(scene)
    found = Explainer(scene.objects()).explain("default", "p")
    assert found.objection == "its scheduling gates have not been removed: kueue.x-k8s.io/admission"
    assert (found.fits, found.fits_without_gates, found.suggestions) == ((), ("b",), ())
    assert [each.reason for each in found.reasons] == [cause.reason]
