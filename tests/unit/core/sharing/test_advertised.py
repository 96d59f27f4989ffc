"""Which kubelet resources a node's GPUs become, by the rules of k8s-device-plugin's internal/rm."""

import re
from typing import Any

import pytest

from purser.core.device.gpus import NodeGpu, NodeMigDevice
from purser.core.sharing import (
    MigStrategy,
    SharingError,
    SharingStrategy,
    advertised_devices,
    mps_clients,
    plugin_file,
    refuses_second_replica,
    settings_without_effect,
    upstream_differences,
)

NONE, SINGLE, MIXED = MigStrategy.NONE, MigStrategy.SINGLE, MigStrategy.MIXED
A100 = "NVIDIA A100-SXM4-40GB"
NOWHERE = "GPU-4cf8db2d-06c0-7d70-1a51-000000000000"
SECOND = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c161"


def gpu(index: int, *profiles: str, mig: bool = False, model: str = A100, cc: tuple[int, int] = (8, 0)) -> NodeGpu:
    """One that cannot be cut has another model."""
    migs = tuple(NodeMigDevice(uuid=f"m{index}{at}", profile=each, memory_mib=4864) for at, each in enumerate(profiles))
    uuid = SECOND if index == 1 else f"g{index}"
    return NodeGpu(
        uuid=uuid,
        index=index,
        model=model,
        memory_mib=40960,
        compute_capability=cc,
        can_mig=model == A100,
        mig_enabled=mig or bool(profiles),
        migs=migs,
    )


def shared(*entries: dict[str, Any], way: str = "timeSlicing", **more: Any) -> dict[str, Any]:
    return {"sharing": {way: {"resources": list(entries), **more}}}


def told(gpus: list[NodeGpu], file: Any = None, strategy: MigStrategy = NONE) -> list[str]:
    """Each device as ``resource=index*replicas``, without the domain."""
    found = advertised_devices(gpus, plugin_file(file)[0], strategy)
    return [f"{each.resource.removeprefix('nvidia.com/')}={each.index}*{each.replicas}" for each in found]


TWO = {"name": "gpu", "replicas": 2}


MPS_3 = shared({"name": "gpu", "replicas": 3}, way="mps")
BOTH_WAYS = {"sharing": {**shared(TWO)["sharing"], **MPS_3["sharing"]}}
FIRST_AND_SECOND = shared({**TWO, "devices": [0]}, {"name": "gpu", "replicas": 5, "devices": [1]})
SMALL_MIG = shared({"name": "mig-1g.5gb", "replicas": 4}, renameByDefault=True)
T4 = {"resources": {"gpus": [{"pattern": "*T4", "name": "t4"}, {"pattern": "*T4", "name": "gpu-t4"}]}}
PART = {"resources": {"mig": [{"pattern": "1c.*", "name": "mig-part"}]}}


@pytest.mark.parametrize(
    ("gpus", "file", "strategy", "resources"),
    [
        ([gpu(1), gpu(0)], None, NONE, "gpu=0*1 gpu=1*1"),
        ([], shared(TWO), NONE, ""),
        ([gpu(0), gpu(1)], shared(TWO), NONE, "gpu=0*2 gpu=1*2"),
        ([gpu(0)], shared(TWO, renameByDefault=True), NONE, "gpu.shared=0*2"),
        ([gpu(0)], shared({**TWO, "rename": "gpu.slice"}, renameByDefault=True), NONE, "gpu.slice=0*2"),
        ([gpu(0)], shared({**TWO, "rename": "slice"}, renameByDefault=True), NONE, "gpu.shared=0*2"),
        ([gpu(0), gpu(1)], shared({**TWO, "devices": 1}, renameByDefault=True), NONE, "gpu.shared=0*2 gpu=1*1"),
        ([gpu(0), gpu(1)], shared({**TWO, "devices": [1, SECOND, "1"]}), NONE, "gpu=0*1 gpu=1*2"),
        ([gpu(0)], shared({"name": "other", "replicas": 3, "devices": [7]}), NONE, "gpu=0*1"),
        ([gpu(0), gpu(1)], FIRST_AND_SECOND, NONE, "gpu=0*2 gpu=1*5"),
        ([gpu(0), gpu(1, "1g.5gb")], None, NONE, "gpu=0*1 gpu=1*1"),
        ([gpu(0, "1g.5gb", "1g.5gb"), gpu(1, "1g.5gb")], None, SINGLE, "gpu=0:0*1 gpu=0:1*1 gpu=1:0*1"),
        ([gpu(0), gpu(1)], None, SINGLE, "gpu=0*1 gpu=1*1"),
        (
            [gpu(0), gpu(1, "1g.5gb+me", "3g.20gb"), gpu(2, mig=True)],
            None,
            MIXED,
            "gpu=0*1 mig-1g.5gb.me=1:0*1 mig-3g.20gb=1:1*1",
        ),
        ([gpu(0, "1g.24gb-me")], None, MIXED, "mig-1g.24gb-me=0:0*1"),
        ([gpu(0, "3g.20gb", "1g.5gb")], SMALL_MIG, MIXED, "mig-3g.20gb=0:0*1 mig-1g.5gb.shared=0:1*4"),
        ([gpu(0, "1g.5gb", "1g.5gb")], shared({**TWO, "devices": ["0:1"]}), SINGLE, "gpu=0:0*1 gpu=0:1*2"),
        ([gpu(0), gpu(1, model="NVIDIA T4")], T4, NONE, "gpu=0*1 gpu-t4=1*1"),
        ([gpu(0, "1c.2g.10gb")], PART, MIXED, "mig-part=0:0*1"),
        ([gpu(0, "1c.2g.10gb", "1c.2g.10gb")], None, SINGLE, "gpu=0:0*1 gpu=0:1*1"),
        ([gpu(0), gpu(1)], BOTH_WAYS, NONE, "gpu=0*3 gpu=1*3"),
    ],
)
def test_resources(gpus: list[NodeGpu], file: Any, strategy: MigStrategy, resources: str) -> None:
    assert told(gpus, file, strategy) == resources.split()


@pytest.mark.parametrize(
    ("gpus", "complaint"),
    [
        ([gpu(0), gpu(1, "1g.5gb")], "single cannot be used because MIG is enabled on GPU 1 and disabled on GPU 0$"),
        ([gpu(0, mig=True)], "single cannot be used because there are no MIG devices on GPU 0"),
        (
            [gpu(0), gpu(1, mig=True), gpu(2, mig=True), gpu(3, "1g.5gb", "2g.10gb")],
            "enabled on GPUs 1, 2, 3 and disabled on GPU 0; there are no MIG devices on GPUs 1, 2.*: 1g.5gb, 2g.10gb$",
        ),
        ([gpu(0, "1g.5gb"), gpu(1, "2g.10gb")], "1g.5gb, 2g.10gb"),
        (
            [gpu(0, "1g.5gb"), gpu(1, "1g.5gb"), gpu(2, model="Tesla T4")],
            r"enabled on GPUs 0, 1, but GPU 2 cannot be partitioned \(Tesla T4\): use migStrategy: mixed",
        ),
    ],
)
def test_gpus_that_do_not_go_with_the_strategy_single(gpus: list[NodeGpu], complaint: str) -> None:
    with pytest.raises(SharingError, match=complaint):
        told(gpus, None, SINGLE)


def fleet(*indexes: int) -> dict[str, Any]:
    """A file for many nodes: a resource for each GPU."""
    return shared(*({"name": "gpu", "rename": f"gpu-{at}", "devices": [str(at)], "replicas": 8} for at in indexes))


@pytest.mark.parametrize(
    ("gpus", "file", "strategy", "resources", "problem"),
    [
        (
            [gpu(0)],
            shared({**TWO, "devices": 2}),
            NONE,
            "gpu=0*2",
            r"timeSlicing\.resources\[0\].* 2 nvidia.com/gpu devices.*has only 1",
        ),
        ([gpu(0)], shared({**TWO, "devices": ["0:1"]}), NONE, "gpu=0*1", "device 0:1, which the node does not have"),
        (
            [gpu(0), gpu(1)],
            shared({**TWO, "devices": [1, 7, 9]}),
            NONE,
            "gpu=0*1 gpu=1*2",
            "devices 7, 9, .*: use indexes",
        ),
        ([gpu(0), gpu(1)], shared({**TWO, "devices": [NOWHERE, 0]}), NONE, "gpu=0*2 gpu=1*1", f"device {NOWHERE}"),
        ([gpu(0), gpu(1)], fleet(0, 4), NONE, "gpu-0=0*8 gpu=1*1", r"resources\[1\] asks to replicate device 4"),
        ([gpu(0)], shared(TWO, {"name": "gpu", "replicas": 3}), NONE, "gpu=0*2", r"resources\[1\] replicates device 0"),
        (
            [gpu(0, "1c.2g.10gb"), gpu(1, "3g.20gb"), gpu(2)],
            None,
            MIXED,
            "mig-3g.20gb=1:0*1 gpu=2*1",
            "MIG device 0:0 is 1c.2g.10gb, which is a part of a GPU instance.*add an entry to resources.mig",
        ),
        (
            [gpu(0, "1g.5gb", "1c.3g.20gb", "1g.5gb")],
            SMALL_MIG,
            MIXED,
            "mig-1g.5gb.shared=0:0*4 mig-1g.5gb.shared=0:2*4",
            "MIG device 0:1 is 1c.3g.20gb",
        ),
        (
            [gpu(0, "1c.3g.20gb"), gpu(1, "3g.20gb", "3g.20gb")],
            None,
            SINGLE,
            "gpu=1:0*1 gpu=1:1*1",
            "MIG device 0:0 is 1c.3g.20gb",
        ),
        (
            [gpu(0, "1g.5gb")],
            shared(TWO, way="mps"),
            SINGLE,
            "gpu=0:0*1",
            "MPS can share only whole GPUs: use sharing.time",
        ),
        (
            [gpu(0), gpu(1, cc=(9, 0))],
            shared({"name": "gpu", "replicas": 49, "devices": [0]}, {**TWO, "devices": [1]}, way="mps"),
            NONE,
            "gpu=0*1 gpu=1*2",
            r"mps\.resources\[0\] makes 49 replicas, but MPS on GPU 0 supports only 48 clients: use",
        ),
        (
            [gpu(0, cc=(6, 1)), gpu(1)],
            shared({"name": "gpu", "replicas": 17}, way="mps"),
            NONE,
            "gpu=0*1 gpu=1*17",
            "17 replicas.* 16 clients",
        ),
    ],
)
def test_what_devices_are_not_costs_nothing_else(
    gpus: list[NodeGpu], file: Any, strategy: MigStrategy, resources: str, problem: str
) -> None:
    problems: list[str] = []
    found = advertised_devices(gpus, plugin_file(file)[0], strategy, problems)
    assert [f"{each.resource[11:]}={each.index}*{each.replicas}" for each in found] == resources.split()
    assert len(problems) == 1
    assert re.search(problem, problems[0]), problems


def test_entries_are_named_by_their_place_in_the_file_though_one_before_them_is_left_out() -> None:
    problems: list[str] = []
    file = shared({"name": "gpu", "replicas": 1}, {**TWO, "devices": [0]}, {**TWO, "devices": [6]})
    advertised_devices([gpu(0)], plugin_file(file)[0], NONE, problems)
    (problem,) = problems
    assert "timeSlicing.resources[2] asks to replicate device 6" in problem


def test_how_devices_are_shared_and_of_which_gpu_they_are() -> None:
    (sliced,) = advertised_devices([gpu(0)], plugin_file(shared({"name": "gpu", "replicas": 3}))[0], NONE)
    assert sliced.sharing is SharingStrategy.TIME_SLICING
    (mig,) = advertised_devices([gpu(0, "1g.5gb")], plugin_file(None)[0], MIXED)
    assert (mig.uuid, mig.parent, mig.sharing) == ("m00", "g0", SharingStrategy.NONE)


@pytest.mark.parametrize(
    ("file", "one_each"),
    [
        (None, False),
        (shared(TWO), False),
        (shared(TWO, failRequestsGreaterThanOne=True), True),
        (shared(TWO, way="mps"), True),
        (shared(TWO, way="mps", failRequestsGreaterThanOne=False), False),
    ],
)
def test_more_than_one_replica_of_a_container(file: Any, one_each: bool) -> None:
    assert refuses_second_replica(plugin_file(file)[0].sharing) is one_each


def test_what_nvidias_plugin_would_set_aside_is_reported() -> None:
    def keys(file: Any) -> list[str]:
        return [note.split()[4] for note in upstream_differences(plugin_file(file)[0])]

    assert keys(None) == keys(shared(TWO, renameByDefault=True)) == []
    assert keys(shared({**TWO, "rename": "gpu.shared"}, renameByDefault=True)) == []
    assert keys(shared({**TWO, "rename": "gpu.x", "devices": 1})) == ["rename", "devices"]
    assert keys({"resources": {"mig": [{"pattern": "*", "name": "mig-x"}]}}) == ["resources"]
    odd = upstream_differences(plugin_file(shared({**TWO, "rename": "slice"}))[0])[1]
    assert "resource nvidia.com/slice is ignored" in odd


def test_what_has_no_effect_is_reported() -> None:
    def keys(**flags: Any) -> list[str]:
        return [note.split()[4] for note in settings_without_effect(plugin_file({"flags": flags})[0])]

    assert keys() == keys(migStrategy="none", deviceDiscoveryStrategy="nvml", plugin={"passDeviceSpecs": True}) == []
    assert keys(failOnInitError=False, mpsRoot="/mps") == ["flags.failOnInitError", "flags.mpsRoot"]
    assert keys(deviceDiscoveryStrategy="tegra") == ["flags.deviceDiscoveryStrategy"]
    said = {"useNodeFeatureAPI": True, "plugin": {"containerDriverRoot": "/d"}, "gfd": {"oneshot": True}}
    assert keys(**said) == ["flags.useNodeFeatureAPI", "flags.plugin.containerDriverRoot", "flags.gfd"]


@pytest.mark.parametrize(("cc", "clients"), [((6, 1), 16), ((7, 0), 48), ((7, 5), 48), ((10, 0), 48), (None, 16)])
def test_clients_of_an_mps_server(cc: tuple[int, int] | None, clients: int) -> None:
    assert mps_clients(cc) == clients
