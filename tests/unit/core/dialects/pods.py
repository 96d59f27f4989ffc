"""Pods for the tests of dialects."""

from purser.core.model import ContainerKind
from purser.core.pod.manifest import ContainerSpec, PodManifest


def container(name="train", kind=ContainerKind.APP, requests=None, **limits):
    return ContainerSpec(name=name, kind=kind, limits=spell(limits), requests=spell(requests or {}))


def spell(amounts):
    words = {
        "gpu": "nvidia.com/gpu",
        "shared": "nvidia.com/gpu.shared",
        "mig": "nvidia.com/mig-1g.5gb",
        "mem": "nvidia.com/gpumem",
        "percent": "nvidia.com/gpumem-percentage",
        "cores": "nvidia.com/gpucores",
        "priority": "nvidia.com/priority",
        "vmem": "volcano.sh/gpu-memory",
        "vnum": "volcano.sh/gpu-number",
        "vgpu": "volcano.sh/vgpu-number",
        "vgpumem": "volcano.sh/vgpu-memory",
        "vgpupercent": "volcano.sh/vgpu-memory-percentage",
        "vgpucores": "volcano.sh/vgpu-cores",
        "gpumem": "aliyun.com/gpu-mem",
        "gpucount": "aliyun.com/gpu-count",
    }
    return {words[word]: str(value) for word, value in amounts.items()}


def pod(*containers, **annotations):
    names = {
        "use_type": "nvidia.com/use-gputype",
        "nouse_type": "nvidia.com/nouse-gputype",
        "use_uuid": "nvidia.com/use-gpuuuid",
        "nouse_uuid": "nvidia.com/nouse-gpuuuid",
        "numa": "nvidia.com/numa-bind",
        "mode": "nvidia.com/vgpu-mode",
        "mig_profiles": "nvidia.com/mig-profile-preference",
        "vgpu_use_uuid": "volcano.sh/vgpu-use-gpuuuid",
        "vgpu_nouse_uuid": "volcano.sh/vgpu-nouse-gpuuuid",
        "vgpu_mode": "volcano.sh/vgpu-mode",
        "podgroup_policy": "volcano.sh/vgpu-podgroup-policy",
        "group": "scheduling.k8s.io/group-name",
        "volcano_group": "scheduling.volcano.sh/group-name",
        "node_policy": "purser.dev/node-policy",
        "gpu_policy": "purser.dev/gpu-policy",
        "hami_node_policy": "hami.io/node-scheduler-policy",
        "hami_gpu_policy": "hami.io/gpu-scheduler-policy",
        "enforcement": "purser.dev/enforcement",
        "weights": "hami.io/device-scoring-weights",
    }
    return PodManifest(
        uid="u-1",
        namespace="team",
        name="job",
        annotations={names[key]: value for key, value in annotations.items()},
        containers=containers,
    )
