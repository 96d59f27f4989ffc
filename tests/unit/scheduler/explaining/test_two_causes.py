"""Each two causes at once: on two nodes both are named, each with its node; on one node the one that comes first in the
chain, kube-scheduler's filters in their order and then what Purser finds of the GPU."""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import pytest
from tests.unit.scheduler.explained import Raw, cluster, gpu, gpus, node, pod

from purser.adapters.objects import ClusterObjects
from purser.core.explaining.reasons import FilterReason
from purser.core.model import Enforcement
from purser.core.names import CORDONED_GPUS_ANNOTATION, ENFORCEMENT_ANNOTATION, SCHEDULER_NAME
from purser.core.placement import Reason
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

    def __init__(self) -> None:
        self.pod = pod("p", {**gpu(9000), "nvidia.com/gpucores": "50", "cpu": "2", "memory": "1Gi"})
        self.pod["spec"]["affinity"] = {}
        self.nodes = {name: node(name, gpus(name, 1), labels=self.labels(name)) for name in "ab"}
        self.others: list[Raw] = [pod(f"friend-{name}", {}, on=name, labels={"app": "friend"}) for name in "ab"]
        self.facts: dict[str, Raw] = {"a": {}, "b": {}}

    @staticmethod
    def labels(name: str) -> dict[str, str]:
        return {HOST: name, "pool": "gpu", "zone": "z1", "disk": "here", "nic": "here"}

    def device(self, name: str, **facts: object) -> None:
        """GPU facts of a node; several causes may say some."""
        self.facts[name] |= facts
        old = self.nodes[name]
        made = node(name, gpus(name, 1, **self.facts[name]))
        inventory = "purser.dev/inventory"
        old["metadata"]["annotations"][inventory] = made["metadata"]["annotations"][inventory]

    def held(self, name: str, memory: int, cores: int) -> None:
        self.others.append(pod(f"held-{name}-{cores}", gpu(), on=name, share={f"{name}-0": (memory, cores)}))

    def objects(self) -> ClusterObjects:
        """As they are read from an API server."""
        return cluster(self.pod, *self.nodes.values(), *self.others, CLAIM, VOLUME, DEVICES)

    def said(self) -> dict[str, set[str]]:
        """Of each node the reasons that are counted for it."""
        known = KnownCluster(self.objects())
        waiting = known.pod("default", "p")
        assert waiting is not None
        found: dict[str, set[str]] = {"a": set(), "b": set()}
        for each in reason_counts(known.judge(waiting), known.fleet, known.policy):
            for name in each.examples:
                found[name].add(each.reason)
        return found


class Cause(NamedTuple):
    reason: str
    of_pod: Callable[[Scene], object]
    """What the pod has or asks for, which each node without the cause has."""
    of_node: Callable[[Scene, str], object]


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
        lambda s, n: s.nodes[n]["metadata"]["annotations"].update({CORDONED_GPUS_ANNOTATION: f"{n}-0"}),
    ),
    Cause(Reason.DISPUTED, nothing, lambda s, n: s.others.append(pod(f"stranger-{n}", gpu(), on=n))),
    Cause(
        Reason.TYPE_MISMATCH,
        annotated("nvidia.com/use-gputype", "T4"),
        lambda s, n: s.device(n, model="NVIDIA A100"),
    ),
    Cause(Reason.NOT_ENFORCED, must_be_enforced, lambda s, n: s.device(n, enforcement=Enforcement.TIME_SLICING)),
    Cause(Reason.SLOTS_EXHAUSTED, nothing, slots_in_use),
    Cause(Reason.INSUFFICIENT_MEMORY, nothing, lambda s, n: s.held(n, 9000, 10)),
    Cause(Reason.INSUFFICIENT_CORES, nothing, lambda s, n: s.held(n, 100, 60)),
)
"""In the order of the chain."""

IDS = [f"{place}-{each.reason}" for place, each in enumerate(CAUSES)]


@pytest.mark.parametrize("cause", CAUSES, ids=IDS)
def test_a_cause_by_itself_is_named_and_the_other_node_fits(cause: Cause):
    scene = Scene()
    cause.of_pod(scene)
    assert scene.said() == {"a": set(), "b": set()}
    cause.of_node(scene, "a")
    assert scene.said() == {"a": {cause.reason}, "b": set()}


def check_pair(first: Cause, second: Cause, scheduler: str = SCHEDULER_NAME) -> None:
    apart, together = Scene(), Scene()
    for scene in (apart, together):
        spec(schedulerName=scheduler)(scene)
        first.of_pod(scene)
        second.of_pod(scene)
    first.of_node(apart, "a")
    second.of_node(apart, "b")
    assert apart.said() == {"a": {first.reason}, "b": {second.reason}}, (first.reason, second.reason)
    first.of_node(together, "a")
    second.of_node(together, "a")
    assert together.said() == {"a": {first.reason}, "b": set()}, (first.reason, second.reason)


@pytest.mark.parametrize("at", range(len(CAUSES) - 1), ids=IDS[:-1])
def test_two_causes_on_two_nodes_are_both_named_and_on_one_node_the_first(at: int):
    pairs = [(first, second) for first, second in combinations(CAUSES, 2) if first is CAUSES[at]]
    assert pairs
    for first, second in pairs:
        check_pair(first, second)


@pytest.mark.parametrize("scheduler", ["volcano", "default-scheduler"])
def test_pods_that_others_schedule_are_held_by_the_same_filters(scheduler: str):
    """What the other scheduler decides beside them is not known; its last message says it."""
    for first, second in combinations((each for each in CAUSES if isinstance(each.reason, FilterReason)), 2):
        check_pair(first, second, scheduler)


@pytest.mark.parametrize("cause", CAUSES, ids=IDS)
def test_gates_come_first_and_what_would_hold_the_pod_then_is_listed(cause: Cause):
    scene = Scene()
    cause.of_pod(scene)
    cause.of_node(scene, "a")
    spec(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])(scene)
    found = Explainer(scene.objects()).explain("default", "p")
    assert found.objection == "its scheduling gates have not been removed: kueue.x-k8s.io/admission"
    assert (found.fits, found.fits_without_gates, found.suggestions) == ((), ("b",), ())
    assert [each.reason for each in found.reasons] == [cause.reason]
