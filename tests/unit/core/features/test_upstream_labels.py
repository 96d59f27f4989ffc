"""What NVIDIA's GPU feature discovery labels a node with: the cases of its own tests, as a table.

Facts of NVIDIA/k8s-device-plugin: internal/lm/{mig-strategy,resource,nvml}_test.go, internal/vgpu/vgpu_test.go,
tests/expected-output*.txt, cmd/gpu-feature-discovery/{main,mig}_test.go. Its mock of a GPU in MIG mode tells no compute
capability, that of the driver is 400.300 with CUDA 8.0.
"""

import re

import pytest

from purser.core.device.gpus import NodeGpu, NodeMigDevice
from purser.core.features import LabelFacts, NodeSharing, Replication, labels_of
from purser.core.features.labels import mig_capable_labels, mode_labels, mps_labels
from purser.core.features.resources import resource_labels
from purser.core.features.values import LabelTrouble
from purser.core.sharing import MigStrategy, SharingStrategy

GPU = "nvidia.com/gpu"
FULL = NodeGpu(model="MOCKMODEL", memory_mib=300, compute_capability=(8, 0), pci_class=0)


def cut(*migs: NodeMigDevice) -> NodeGpu:
    return NodeGpu(model="MOCKMODEL", memory_mib=300, can_mig=True, mig_enabled=True, migs=migs, pci_class=0)


def mig(gi: int, ci: int, memory: int, **engines: int) -> NodeMigDevice:
    return NodeMigDevice(profile=f"{gi}g.{memory}gb", memory_mib=memory, gi_slices=gi, ci_slices=ci, **engines)


def sharing(kind: str = "none", **resources: int) -> NodeSharing:
    """Replicas by resource, of which dots and dashes are underscores; a name that ends in _renamed is renamed."""
    spelled = {"gpu": GPU, "not_gpu": "nvidia.com/not-gpu", "mig_1g_300gb": "nvidia.com/mig-1g.300gb"}
    told = {
        spelled[name.removesuffix("_renamed")]: Replication(count, name.endswith("_renamed"))
        for name, count in resources.items()
    }
    return NodeSharing(SharingStrategy(kind), told)


def base(product: str, count: int, replicas: int, strategy: str, memory: int, at: str = GPU) -> dict[str, str]:
    told = {"product": product, "count": count, "replicas": replicas, "sharing-strategy": strategy, "memory": memory}
    return {f"{at}.{name}": str(value) for name, value in told.items()}


def sliced(gi: int, ci: int, *engines: int, at: str = GPU) -> dict[str, str]:
    """Multiprocessors, then engines: copy, decoder, encoder, jpeg, ofa."""
    names = ("multiprocessors", *(f"engines.{name}" for name in ("copy", "decoder", "encoder", "jpeg", "ofa")))
    told = {"slices.gi": gi, "slices.ci": ci, **dict(zip(names, engines or (0,) * 6, strict=True))}
    return {f"{at}.{name}": str(value) for name, value in told.items()}


AMPERE = {f"{GPU}.family": "ampere", f"{GPU}.compute.major": "8", f"{GPU}.compute.minor": "0"}
SINGLE = {"nvidia.com/mig.strategy": "single"}
MIXED = {"nvidia.com/mig.strategy": "mixed"}
INVALID = base("MOCKMODEL-MIG-INVALID", 0, 0, "", 0) | SINGLE
ENGINES = {
    "multiprocessors": 12,
    "copy_engines": 13,
    "decoders": 14,
    "encoders": 15,
    "jpeg_engines": 16,
    "ofa_engines": 17,
}
NO = sharing()
SLICED = sharing("time-slicing", gpu=2)
PROFILE = "nvidia.com/mig-1g.300gb"

NONE_CASES = [
    ("one", [FULL], NO, base("MOCKMODEL", 1, 1, "none", 300) | AMPERE),
    ("one, sliced", [FULL], SLICED, base("MOCKMODEL-SHARED", 1, 2, "time-slicing", 300) | AMPERE),
    ("two, sliced", [FULL, FULL], SLICED, base("MOCKMODEL-SHARED", 2, 2, "time-slicing", 300) | AMPERE),
    ("MIG mode", [cut()], SLICED, base("MOCKMODEL", 1, 0, "none", 300)),
    ("two in MIG mode", [cut(), cut()], SLICED, base("MOCKMODEL", 2, 0, "none", 300)),
    ("MIG and full", [cut(), FULL], SLICED, base("MOCKMODEL-SHARED", 2, 2, "time-slicing", 300) | AMPERE),
    ("other resource", [FULL], sharing("time-slicing", not_gpu=2), base("MOCKMODEL", 1, 1, "none", 300) | AMPERE),
    (
        "renamed",
        [FULL],
        sharing("time-slicing", gpu_renamed=2),
        base("MOCKMODEL", 1, 2, "time-slicing", 300) | AMPERE,
    ),
    ("MPS, other resource", [FULL], sharing("mps", not_gpu=2), base("MOCKMODEL", 1, 1, "none", 300) | AMPERE),
    ("MPS", [FULL], sharing("mps", gpu=2), base("MOCKMODEL-SHARED", 1, 2, "mps", 300) | AMPERE),
    ("MPS, renamed", [FULL], sharing("mps", gpu_renamed=2), base("MOCKMODEL", 1, 2, "mps", 300) | AMPERE),
]

ALIKE = [cut(mig(1, 2, 100, **ENGINES)), cut(mig(1, 2, 100, **ENGINES))]
SINGLE_CASES = [
    ("one", [FULL], NO, base("MOCKMODEL", 1, 1, "none", 300) | AMPERE | SINGLE),
    ("two", [FULL, FULL], NO, base("MOCKMODEL", 2, 1, "none", 300) | AMPERE | SINGLE),
    (
        "a MIG device",
        [cut(mig(1, 2, 100))],
        NO,
        base("MOCKMODEL-MIG-1g.100gb", 1, 1, "none", 100) | sliced(1, 2) | SINGLE,
    ),
    (
        "MIG devices of two",
        ALIKE,
        NO,
        base("MOCKMODEL-MIG-1g.100gb", 2, 1, "none", 100) | sliced(1, 2, *range(12, 18)) | SINGLE,
    ),
    ("empty", [cut()], NO, INVALID),
    ("two profiles", [cut(mig(1, 2, 100), mig(3, 4, 100))], NO, INVALID),
    ("MIG and full", [cut(mig(1, 2, 100)), FULL], NO, INVALID | AMPERE),
    ("MIG, full and empty", [cut(mig(1, 2, 100)), FULL, cut()], NO, INVALID | AMPERE),
    (
        "shared",
        [cut(mig(1, 2, 300))],
        SLICED,
        base("MOCKMODEL-MIG-1g.300gb-SHARED", 1, 2, "time-slicing", 300) | sliced(1, 2) | SINGLE,
    ),
    (
        "shared and renamed",
        [cut(mig(1, 2, 300))],
        sharing("time-slicing", gpu_renamed=2),
        base("MOCKMODEL-MIG-1g.300gb", 1, 2, "time-slicing", 300) | sliced(1, 2) | SINGLE,
    ),
]

CUT_LABELS = base("MOCKMODEL", 1, 0, "none", 300) | MIXED | sliced(1, 2, at=PROFILE)
MIXED_CASES = [
    ("full", [FULL], NO, base("MOCKMODEL", 1, 1, "none", 300) | AMPERE | MIXED),
    ("empty", [cut()], NO, base("MOCKMODEL", 1, 0, "none", 300) | MIXED),
    (
        "two profiles",
        [cut(mig(3, 0, 20000), mig(3, 0, 20000), mig(1, 0, 5))],
        NO,
        base("MOCKMODEL", 1, 0, "none", 300)
        | MIXED
        | base("MOCKMODEL-MIG-3g.20000gb", 2, 1, "none", 20000, at="nvidia.com/mig-3g.20000gb")
        | sliced(3, 0, at="nvidia.com/mig-3g.20000gb")
        | base("MOCKMODEL-MIG-1g.5gb", 1, 1, "none", 5, at="nvidia.com/mig-1g.5gb")
        | sliced(1, 0, at="nvidia.com/mig-1g.5gb"),
    ),
    (
        "shared",
        [cut(mig(1, 2, 300))],
        sharing("time-slicing", gpu_renamed=2, mig_1g_300gb=2),
        CUT_LABELS | base("MOCKMODEL-MIG-1g.300gb-SHARED", 1, 2, "time-slicing", 300, at=PROFILE),
    ),
    (
        "shared and renamed",
        [cut(mig(1, 2, 300))],
        sharing("time-slicing", mig_1g_300gb_renamed=2),
        CUT_LABELS | base("MOCKMODEL-MIG-1g.300gb", 1, 2, "time-slicing", 300, at=PROFILE),
    ),
]
RESOURCE_CASES = [
    pytest.param(strategy, gpus, shared, expected, id=f"{strategy}: {name}")
    for strategy, cases in (("none", NONE_CASES), ("single", SINGLE_CASES), ("mixed", MIXED_CASES))
    for name, gpus, shared, expected in cases
]


@pytest.mark.parametrize(("strategy", "gpus", "shared", "expected"), RESOURCE_CASES)
def test_labels_of_gpus_and_mig_devices(
    strategy: str, gpus: list[NodeGpu], shared: NodeSharing, expected: dict[str, str]
) -> None:
    node = LabelFacts(gpus=tuple(gpus), mig_strategy=MigStrategy(strategy), sharing=shared)
    assert resource_labels(node) == expected


@pytest.mark.parametrize(
    ("gpus", "capable"), [([FULL], "false"), ([FULL, FULL], "false"), ([cut()], "true"), ([FULL, cut()], "true")]
)
def test_whether_a_gpu_can_mig(gpus: list[NodeGpu], capable: str) -> None:
    assert mig_capable_labels(LabelFacts(gpus=tuple(gpus))) == {"nvidia.com/mig.capable": capable}


@pytest.mark.parametrize(
    ("shared", "capable"),
    [
        (NO, "false"),
        (SLICED, "false"),
        (sharing("mps", gpu=1), "false"),
        (sharing("mps", gpu=2), "true"),
        (sharing("mps", not_gpu=2), "true"),
    ],
)
def test_whether_gpus_are_shared_by_mps(shared: NodeSharing, capable: str) -> None:
    assert mps_labels(LabelFacts(gpus=(FULL,), sharing=shared)) == {"nvidia.com/mps.capable": capable}


def test_no_mps_on_mig() -> None:
    with pytest.raises(LabelTrouble):
        mps_labels(LabelFacts(gpus=(cut(),), sharing=sharing("mps", gpu=2)))


@pytest.mark.parametrize(
    ("classes", "mode"),
    [
        ([0x030000], "graphics"),
        ([0x030200], "compute"),
        ([0x068000], "unknown"),
        ([0x030200] * 3, "compute"),
        ([0x030000] * 3, "graphics"),
        ([0x030000, 0x030200, 0x030000], "unknown"),
        ([None, None], "unknown"),
        ([None, 0x030200], "unknown"),
    ],
)
def test_mode_by_pci_class(classes: list[int | None], mode: str) -> None:
    gpus = tuple(NodeGpu(model="any", pci_class=each) for each in classes)
    assert mode_labels(LabelFacts(gpus=gpus)) == {"nvidia.com/gpu.mode": mode}


# --- all together: names of the golden outputs, and what their values must match

NUMBER, WORD = "[0-9]+", "[A-Za-z_-]+"
OF_EVERY_GPU_NODE = {
    "nvidia.com/gfd.timestamp": "[0-9]{10}",
    "nvidia.com/cuda.driver.major": NUMBER,
    "nvidia.com/cuda.driver.minor": NUMBER,
    "nvidia.com/cuda.driver.rev": "[0-9]*",
    "nvidia.com/cuda.runtime.major": NUMBER,
    "nvidia.com/cuda.runtime.minor": NUMBER,
    "nvidia.com/cuda.driver-version.major": NUMBER,
    "nvidia.com/cuda.driver-version.minor": NUMBER,
    "nvidia.com/cuda.driver-version.revision": "[0-9]*",
    "nvidia.com/cuda.driver-version.full": r"[0-9]+(\.[0-9]+){1,2}",
    "nvidia.com/cuda.runtime-version.major": NUMBER,
    "nvidia.com/cuda.runtime-version.minor": NUMBER,
    "nvidia.com/cuda.runtime-version.full": r"[0-9]+\.[0-9]+",
    "nvidia.com/gpu.machine": ".*",
    f"{GPU}.count": NUMBER,
    f"{GPU}.replicas": NUMBER,
    f"{GPU}.sharing-strategy": "none|mps|time-slicing",
    f"{GPU}.product": WORD,
    f"{GPU}.memory": NUMBER,
    f"{GPU}.mode": "unknown|compute|graphics",
    "nvidia.com/mig.capable": "true|false",
    "nvidia.com/mps.capable": "true|false",
    "nvidia.com/vgpu.present": "true|false",
    "gpu.purser.dev/MOCKMODEL": NUMBER,  # Purser's own
}
OF_COMPUTE = {f"{GPU}.family": "[a-z]+", f"{GPU}.compute.major": NUMBER, f"{GPU}.compute.minor": NUMBER}
OF_VGPU = {"nvidia.com/vgpu.host-driver-branch": "r460_00", "nvidia.com/vgpu.host-driver-version": r"460\.16"}
MIG_NAMES = "count replicas memory multiprocessors slices.gi slices.ci"
ENGINE_NAMES = "engines.copy engines.decoder engines.encoder engines.jpeg engines.ofa"
OF_MIG = dict.fromkeys([*MIG_NAMES.split(), *ENGINE_NAMES.split()], NUMBER)
OUTPUTS = [
    pytest.param("none", [FULL], OF_COMPUTE, id="none"),
    pytest.param("none", [cut()], {}, id="none, in MIG mode"),
    pytest.param(
        "single",
        [cut(mig(3, 0, 20))],
        {"nvidia.com/mig.strategy": "single", f"{GPU}.product": "MOCKMODEL-MIG-3g.20gb"}
        | {f"{GPU}.{name}": value for name, value in OF_MIG.items()},
        id="single",
    ),
    pytest.param(
        "mixed",
        [cut(mig(3, 0, 20))],
        {
            "nvidia.com/mig.strategy": "mixed",
            "nvidia.com/mig-3g.20gb.product": "MOCKMODEL-MIG-3g.20gb",
            "nvidia.com/mig-3g.20gb.sharing-strategy": "none",
        }
        | {f"nvidia.com/mig-3g.20gb.{name}": value for name, value in OF_MIG.items()},
        id="mixed",
    ),
]


def vgpu_config() -> bytes:
    config = bytearray(256)
    config[0x06], config[0x34] = 0x10, 0xD0
    config[0xD0 : 0xD0 + 27] = b"\x09\x68\x1bVF\x00\x16" + b"460.16".ljust(10, b"\0") + b"r460_00".ljust(10, b"\0")
    return bytes(config)


@pytest.mark.parametrize(("strategy", "gpus", "more"), OUTPUTS)
def test_a_whole_node(strategy: str, gpus: list[NodeGpu], more: dict[str, str]) -> None:
    facts = LabelFacts(
        gpus=tuple(gpus),
        driver_version="400.300",
        cuda_version="8.0",
        machine="product-name",
        mig_strategy=MigStrategy(strategy),
        pci_configs=(vgpu_config(),),
        timestamp=1594644571,
    )
    labels, troubles = labels_of(facts)
    expected = OF_EVERY_GPU_NODE | more | OF_VGPU
    assert troubles == ()
    assert labels.keys() == expected.keys()
    assert {key: value for key, value in labels.items() if not re.fullmatch(expected[key], value)} == {}
