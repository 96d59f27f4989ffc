"""Containers in the words of every system, each with what it was meant to have: by hand, as the system's documentation
says it, and not through Purser's dialects."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

GPU, MLU, MR = "nvidia.com/gpu", "cambricon.com/mlu.smlu.v", "iluvatar.ai/MR-V100"
KAI_SCHEDULER = "kai-scheduler"
VXPU, SGPU = "kunlunxin.com/vxpu", "metax-tech.com/"
VENDOR_FAMILIES = (
    "Hygon DCU",
    "Cambricon MLU",
    "Iluvatar MR-V100",
    "AMD",
    "Kunlun vXPU",
    "MetaX sGPU",
    "Enflame DRS-GCU",
    "AWS Neuron",
)

Limits = dict[str, int]


@dataclass(frozen=True)
class Meant:
    """What a container was meant to have of each of so many devices. ``percent``: of memory, where no MiB are said."""

    limits: Limits
    count: int = 1
    mib: int = 0
    percent: int = 0
    cores: int = 0
    annotations: dict[str, str] = field(default_factory=dict)
    """Of its pod, where that asks so and no other container for GPUs."""

    @property
    def word(self) -> str:
        """The shortest that it asks in."""
        return min(self.limits or self.annotations, key=len)

    def portion_of(self, memory_mib: int) -> str:
        """What a container that asks by annotation finds in its variables, of a device with so much: KAI counts memory
        in hundreds of MiB, and rounds up to hundredths of that."""
        hundredths = math.ceil(100 * self.mib / (memory_mib - memory_mib % 100)) if self.mib else self.percent
        return f"{hundredths / 100:.2f}"

    def mib_of(self, memory_mib: int) -> int:
        """Of a device with so much."""
        return self.mib or memory_mib * self.percent // 100


def for_gpus(dice: random.Random, units: Mapping[str, int]) -> Meant:
    """For NVIDIA's. ``units``: MiB of resources whose unit is not the usual one."""
    some, count = dice.choice, dice.choice((1, 1, 1, 2))
    mib, cores = some((512, 1000, 4096, 9000)), some((0, 10, 30))
    share = units.get("aliyun.com/gpu-mem", 1024)
    block, vblock = (units.get(f"volcano.sh/{word}", 1) for word in ("gpu-memory", "vgpu-memory"))
    n = dice.randint(1, 3)
    return dice.choice(
        (
            Meant({GPU: count}, count, percent=100, cores=100),
            Meant({GPU: count, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": cores}, count, mib, 0, cores),
            Meant({GPU: count, "nvidia.com/gpumem-percentage": 25}, count, percent=25),
            Meant({"nvidia.com/gpumem": mib}, 1, mib),
            Meant({"volcano.sh/gpu-memory": mib}, 1, mib * block),
            Meant({"volcano.sh/gpu-number": count}, count, percent=100, cores=100),
            Meant({"volcano.sh/vgpu-number": count, "volcano.sh/vgpu-memory": mib}, count, mib * vblock),
            Meant({"volcano.sh/vgpu-memory-percentage": 10, "volcano.sh/vgpu-cores": 20}, 1, 0, 10, 20),
            Meant({"aliyun.com/gpu-mem": n}, 1, n * share),
            Meant({"aliyun.com/gpu-mem": 5 * n}, 1, 5 * n * share),
        )
    )


def by_annotation(dice: random.Random) -> Meant:
    """For NVIDIA's, in KAI's words."""
    count = dice.choice((1, 1, 1, 2))
    percent, mib = dice.choice((10, 25, 50)), dice.choice((512, 2000, 4096))
    several = {"gpu-fraction-num-devices": str(count)} if count > 1 else {}
    return dice.choice(
        (
            Meant({}, count, percent=percent, annotations={"gpu-fraction": str(percent / 100), **several}),
            Meant({}, count, mib, annotations={"gpu-memory": str(mib), **several}),
        )
    )


def for_vendors(dice: random.Random) -> Meant:
    """For devices of `VENDOR_FAMILIES`."""
    units = dice.choice((2, 8))
    mib, cores = dice.choice(((24576, 25), (49152, 50)))
    slices, of_slices, percent = dice.choice(((1, 6144, 16), (3, 20480, 50)))
    return dice.choice(
        (
            Meant({"hygon.com/dcunum": 1, "hygon.com/dcumem": 1000, "hygon.com/dcucores": 10}, 1, 1000, 0, 10),
            Meant({"cambricon.com/vmlu": 1, f"{MLU}memory": units, f"{MLU}core": 20}, 1, 256 * units, 0, 20),
            Meant({f"{MR}-vgpu": 1, f"{MR}.vMem": units, f"{MR}.vCore": 10}, 1, 256 * units, 0, 10),
            Meant({"amd.com/gpu": 1}, 1, percent=100, cores=100),
            Meant({VXPU: 1, f"{VXPU}-memory": mib}, 1, mib, 0, cores),
            Meant({f"{SGPU}sgpu": 1, f"{SGPU}vcore": 10, f"{SGPU}vmemory": units}, 1, 1024 * units, 0, 10),
            Meant({"enflame.com/drs-gcu": slices}, 1, of_slices, 0, percent),
            Meant({"aws.amazon.com/neuroncore": 1}, 1, percent=50, cores=50),
        )
    )
