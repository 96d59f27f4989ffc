"""Pods that stayed Pending in public reports, and the cause that was found there: the clusters, made small, and what is
said first of the pod. The reports are named by their addresses."""

from typing import Any, NamedTuple

import pytest
from tests.unit.scheduler.explained import Raw, cluster, gpu, gpus, node, pod

from purser.core.explaining.reasons import FilterReason
from purser.core.placement import Reason
from purser.scheduler.explaining import Explainer


def asks(limits: dict[str, str], name: str = "p", **facts: Any) -> Raw:
    return pod(name, limits, **{"schedulerName": "default-scheduler", **facts})


def wants_labels(*expressions: Raw) -> Raw:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


ONE = {"nvidia.com/gpu": "1"}
VOLUME = (
    {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "home", "namespace": "default"},
        "spec": {"volumeName": "pv-home"},
    },
    {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-home"},
        "spec": {
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["us-east-1b"]}]}
                    ]
                }
            }
        },
    },
)
OTHER_CLAIM = {"kind": "PersistentVolumeClaim", "metadata": {"name": "other", "namespace": "default"}}
HOME = {"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]}
WORKSPACE = {"labelSelector": {"matchLabels": {"app": "devpod"}}, "topologyKey": "kubernetes.io/hostname"}
BESIDE = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [WORKSPACE]}}
HOSTS = {name: {"kubernetes.io/hostname": name} for name in ("gpu", "cpu-1", "cpu-2")}


class Case(NamedTuple):
    source: str
    objects: tuple[Raw, ...]
    """The pod ``p`` first."""
    told: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Reason, sentence and nodes of each line."""
    objection: str = ""


CASES = {
    "each container gets a GPU of its own": Case(
        "https://github.com/NVIDIA/k8s-device-plugin/issues/71",
        (
            asks(ONE, containers=[{"name": name, "resources": {"limits": ONE}} for name in ("cuda", "digits")]),
            node("quadro", **ONE),
        ),
        ((FilterReason.RESOURCES, "1 node has fewer than 2 nvidia.com/gpu free (most: 1)", ("quadro",)),),
    ),
    "the device plugin has not registered": Case(
        "https://github.com/NVIDIA/k8s-device-plugin/issues/33",
        (asks(ONE), node("gpu-server")),
        ((FilterReason.RESOURCES, "1 node has no nvidia.com/gpu at all", ("gpu-server",)),),
    ),
    "time-slicing renamed the resource": Case(
        "https://github.com/bottlerocket-os/bottlerocket/issues/4250",
        (asks(ONE), node("sliced", **{"nvidia.com/gpu.shared": "4"}), node("cpu")),
        (
            (FilterReason.RESOURCES, "1 node has no nvidia.com/gpu at all", ("cpu",)),
            (
                FilterReason.RESOURCES,
                "1 node has no nvidia.com/gpu at all, but has nvidia.com/gpu.shared",
                ("sliced",),
            ),
        ),
    ),
    "all MIG devices of the profile are in use": Case(
        "https://github.com/NVIDIA/gpu-operator/issues/693",
        (
            asks({"nvidia.com/mig-1g.10gb": "1"}, nodeSelector={"agentpool": "a100"}),
            node("a100", labels={"agentpool": "a100"}, **{"nvidia.com/mig-1g.10gb": "1"}),
            node("system-1"),
            node("system-2"),
            asks({"nvidia.com/mig-1g.10gb": "1"}, "first", on="a100"),
        ),
        (
            (
                FilterReason.SELECTOR,
                "2 nodes lack agentpool=a100, which the pod's node selector requires",
                ("system-1", "system-2"),
            ),
            (FilterReason.RESOURCES, "1 node has no nvidia.com/mig-1g.10gb free", ("a100",)),
        ),
    ),
    "one node lacks the network device and the others the MIG profile": Case(
        "https://github.com/kai-scheduler/KAI-Scheduler/issues/1876",
        (
            asks({"nvidia.com/mig-1g.5gb": "1", "rdma/shared_mlx5": "1"}, schedulerName="kai-scheduler"),
            node("mig", **{"nvidia.com/mig-1g.5gb": "7"}),
            *(node(f"whole-{n}", **{"nvidia.com/gpu": "8", "rdma/shared_mlx5": "8"}) for n in range(6)),
        ),
        (
            (
                FilterReason.RESOURCES,
                "6 nodes have no nvidia.com/mig-1g.5gb at all, but have nvidia.com/gpu",
                ("whole-0", "whole-1", "whole-2"),
            ),
            (FilterReason.RESOURCES, "1 node has no rdma/shared_mlx5 at all", ("mig",)),
        ),
    ),
    "the plugin itself does not tolerate the taint of the GPU node": Case(
        "https://github.com/NVIDIA/k8s-device-plugin/issues/421",
        (
            asks({}, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]),
            node("gpu-node", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        ),
        ((FilterReason.TAINT, "1 node has taint gpu:NoSchedule, which the pod does not tolerate", ("gpu-node",)),),
    ),
    "no node has the label that the plugin's affinity wants": Case(
        "https://github.com/NVIDIA/k8s-device-plugin/issues/607",
        (
            asks({}, affinity=wants_labels({"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]})),
            node("node1"),
            node("node2"),
        ),
        (
            (
                FilterReason.AFFINITY,
                "2 nodes do not meet the pod's node affinity: nvidia.com/gpu.present in (true)",
                ("node1", "node2"),
            ),
        ),
    ),
    "GPU nodes have another label than the one that is selected": Case(
        "https://github.com/NVIDIA/gpu-operator/issues/371",
        (
            asks({}, nodeSelector={"enterprise.example/shared": "true"}),
            node("gpu-1", labels={"enterprise.example/dedicated": "true"}),
        ),
        (
            (
                FilterReason.SELECTOR,
                "1 node lacks enterprise.example/shared=true, which the pod's node selector requires",
                ("gpu-1",),
            ),
        ),
    ),
    "more shares are requested than the node has GPUs": Case(
        "https://github.com/Project-HAMi/HAMi/issues/620",
        (pod("p", gpu(3000, 2)), node("worker", gpus("worker", 1, 24576)), *(node(f"cpu-{n}") for n in range(3))),
        (
            (FilterReason.RESOURCES, "3 nodes have no nvidia.com/gpu at all", ("cpu-0", "cpu-1", "cpu-2")),
            (Reason.TOO_FEW_GPUS, "1 GPU on 1 node is available, but 2 are needed on one node", ("worker",)),
        ),
    ),
    "too little memory is left on the only card": Case(
        "https://github.com/Project-HAMi/HAMi/issues/977",
        (
            pod("p", gpu(8192)),
            node("n", gpus("n", 1, 49152)),
            pod("large", gpu(46080), on="n", share={"n-0": 46080}),
        ),
        (
            (
                Reason.INSUFFICIENT_MEMORY,
                "1 GPU on 1 node has less than 8192 MiB of memory free (most: 3072 MiB)",
                ("n",),
            ),
        ),
    ),
    "the volume is in another zone than the GPU": Case(
        "https://github.com/opendatahub-io/odh-manifests/issues/259",
        (asks(ONE, **HOME), node("g4dn", labels={"zone": "us-east-1a"}, **ONE), *VOLUME),
        (
            (
                FilterReason.VOLUME,
                "1 node cannot use PersistentVolume pv-home because of its node affinity",
                ("g4dn",),
            ),
        ),
    ),
    "a pod that it has to be beside is on a node without GPUs": Case(
        "https://github.com/loft-sh/devpod-provider-kubernetes/issues/63",
        (
            asks(ONE, affinity=BESIDE),
            node("gpu", labels=HOSTS["gpu"], **ONE),
            *(node(name, labels=HOSTS[name]) for name in ("cpu-1", "cpu-2")),
            asks({}, "workspace", on="cpu-1", labels={"app": "devpod"}),
        ),
        (
            (FilterReason.RESOURCES, "2 nodes have no nvidia.com/gpu at all", ("cpu-1", "cpu-2")),
            (
                FilterReason.POD_AFFINITY,
                "1 node has none of the pods that the pod's affinity requires in the same kubernetes.io/hostname",
                ("gpu",),
            ),
        ),
    ),
    "CPUs are short and not the GPU that the affinity selects": Case(
        "https://github.com/selkies-project/docker-selkies-egl-desktop/issues/35",
        (
            asks(
                {"cpu": "96", **ONE},
                affinity=wants_labels({"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100"]}),
            ),
            node("a100", labels={"nvidia.com/gpu.product": "A100"}, **ONE),
            node("v100", labels={"nvidia.com/gpu.product": "V100"}, **ONE),
        ),
        (
            (
                FilterReason.AFFINITY,
                "1 node does not meet the pod's node affinity: nvidia.com/gpu.product in (A100)",
                ("v100",),
            ),
            (FilterReason.RESOURCES, "1 node has fewer than 96 CPUs free (most: 64)", ("a100",)),
        ),
    ),
    "Kueue holds the pod": Case(
        "https://github.com/kubernetes-sigs/kueue/issues/7929",
        (asks(ONE, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), node("n", **ONE)),
        objection="its scheduling gates have not been removed: kueue.x-k8s.io/admission",
    ),
    "the claim does not exist, whatever the gang says": Case(
        "https://github.com/volcano-sh/volcano/issues/2285",
        (asks(ONE, schedulerName="volcano", **HOME), node("n", **ONE), OTHER_CLAIM),
        objection="PersistentVolumeClaim home does not exist",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_cause_that_was_found_is_what_is_said(case: Case):
    found = Explainer(cluster(*case.objects)).explain("default", "p")
    lines = sorted((each.reason, each.text, each.examples) for each in found.reasons)
    assert (lines, found.objection, found.fits) == (sorted(case.told), case.objection, ())
