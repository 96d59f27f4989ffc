"""What holds a container: one word for its grant, its environment, the books and the metrics."""

import itertools
import json

import pytest
from tests.unit.scheduler.reviews import container, pod

from purser.adapters.pods import pod_spec
from purser.agent.allocation.answers import AllocationFacts, answer
from purser.agent.allocation.pods import container_facts
from purser.core.dialects import parse
from purser.core.grant.enforcement import OF_DEVICES, enforcement_of, possible_enforcements, spec_hold
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceShare,
    Enforcement,
    LibraryHold,
    NodeInventory,
    SpecHold,
)
from purser.core.placement import to_grant
from purser.core.placement.granted import Placement
from purser.core.pod.manifest import ContainerSpec, VolumeMount
from purser.kube.codec import codec_of
from purser.kube.resources import PODS

GPU, MEM, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
WHOLE, SHARE, HALF = {GPU: "1"}, {GPU: "1", MEM: "1024"}, {GPU: "1", MEM: "1024", CORES: "50"}


DEVICE_WORDS = [Enforcement(word) for word in ("hami-core", "mps", "time-slicing", "none", "mig", "whole-device")]


def on_device(of_device, word):
    """What a container becomes on such a device that would be ``word`` with HAMi-core's library."""
    if of_device in ("mig", "whole-device"):
        return of_device
    if of_device == "hami-core" or word in ("whole-device", "none"):
        return word
    if of_device == "mps":
        return "mps-advisory" if word.endswith("advisory") else "mps"
    return of_device


def env(**variables):
    return {"env": [{"name": name, "value": value} for name, value in variables.items()]}


def elsewhere(name):
    return {"env": [{"name": name, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}


def env_from(prefix=""):
    return {"envFrom": [{"prefix": prefix, "secretRef": {"name": "s"}}]}


@pytest.mark.parametrize(
    ("limits", "spec", "word"),
    [
        pytest.param(WHOLE, {}, "whole-device", id="a card to itself"),
        pytest.param(WHOLE, env_from(), "whole-device", id="a card to itself, whatever its variables"),
        pytest.param(SHARE, {}, "hami-core", id="a share"),
        pytest.param(SHARE, env(CUDA_TASK_PRIORITY="0", LIBCUDA_LOG_LEVEL="4"), "hami-core", id="harmless variables"),
        pytest.param(SHARE, env(CUDA_DISABLE_CONTROL="true"), "none", id="HAMi's way out"),
        pytest.param(SHARE, env(CUDA_DISABLE_CONTROL="True"), "none", id="HAMi's way out in capitals"),
        pytest.param(SHARE, env(CUDA_DISABLE_CONTROL="false"), "hami-core", id="HAMi's way out, not taken"),
        pytest.param(
            SHARE, elsewhere("CUDA_DISABLE_CONTROL"), "hami-core", id="nobody reads the way out from elsewhere"
        ),
        pytest.param(SHARE, env_from(), "hami-core-advisory", id="variables that only kubelet sees"),
        pytest.param(SHARE, env_from("CUDA_"), "hami-core-advisory", id="such behind a prefix that fits"),
        pytest.param(SHARE, env_from("APP_"), "hami-core", id="such behind a prefix that does not"),
        pytest.param(SHARE, env(LD_PRELOAD="x.so"), "hami-core-advisory", id="a library before HAMi-core's"),
        pytest.param(
            SHARE, env(CUDA_DEVICE_SM_LIMIT="0"), "hami-core-advisory", id="limits that came past the webhook"
        ),
        pytest.param(HALF, env(GPU_CORE_UTILIZATION_POLICY="disable"), "hami-core-memory", id="compute is not limited"),
        pytest.param(HALF, env(GPU_CORE_UTILIZATION_POLICY="DISABLE"), "hami-core-memory", id="nor so"),
        pytest.param(HALF, env(GPU_CORE_UTILIZATION_POLICY="force"), "hami-core", id="compute is always limited"),
        pytest.param(HALF, env(GPU_CORE_UTILIZATION_POLICY="$(X)"), "hami-core-advisory", id="a policy nobody knows"),
        pytest.param(HALF, elsewhere("GPU_CORE_UTILIZATION_POLICY"), "hami-core-advisory", id="one from elsewhere"),
        pytest.param(
            SHARE, env(GPU_CORE_UTILIZATION_POLICY="disable"), "hami-core", id="without a limit none is lifted"
        ),
    ],
)
def test_grant_and_environment_say_the_same_and_the_library_is_there_where_they_say(limits, spec, word):
    body = codec_of(PODS).object(json.dumps(pod(container("main", limits=limits, **spec))).encode())
    request = parse(pod_spec(body))
    asked = request.containers[0].devices
    share = DeviceShare("GPU-1", asked.memory_mib or 16384, asked.cores_percent)
    placement = Placement("n1", (ContainerGrant("main", ContainerKind.APP, (share,)),))
    for of_device in DEVICE_WORDS:
        device = Device("GPU-1", 0, "L4", 16384, enforcement=of_device)
        grant = to_grant(placement, request, NodeInventory("n1", (device,)))
        facts = AllocationFacts({"GPU-1": device}, library_dir="/opt/vgpu", lock_dir="/tmp/lock")
        given = answer(grant, grant.containers[0], container_facts(body, "main"), facts)

        expected = on_device(of_device, word)
        assert grant.containers[0].enforcement.value == given.environment["PURSER_GPU_ENFORCEMENT"] == expected
        has_library = any(mount.container_path == "/etc/ld.so.preload" for mount in given.mounts)
        assert has_library == grant.containers[0].enforcement.has_library == expected.startswith("hami-core")


@pytest.mark.parametrize(
    ("of_devices", "cores", "word"),
    [
        ("hami-core hami-core", 30, "hami-core"),
        ("mps mps", 30, "time-slicing"),
        ("mps mps", 100, "whole-device"),
        ("hami-core mps", 30, "none"),
        ("hami-core time-slicing", 30, "none"),
        ("mig mig", 30, "mig"),
        ("mig hami-core", 30, "hami-core"),
        ("mig mps", 30, "time-slicing"),
        ("whole-device whole-device", 30, "whole-device"),
        ("", 30, "none"),
    ],
)
def test_shares_of_several_devices_are_held_by_what_can_hold_all_of_them(of_devices, cores, word):
    words = [Enforcement(each) for each in of_devices.split()]
    shares = tuple(DeviceShare(f"GPU-{place}", 1024, cores) for place, _ in enumerate(words)) or (
        DeviceShare("GPU-gone", 1024, cores),
    )
    part = ContainerGrant("main", ContainerKind.APP, shares)
    assert enforcement_of(part, SpecHold(), words) == word


def test_two_parts_of_one_gpu_have_one_mps_daemon():
    part = ContainerGrant("main", ContainerKind.APP, (DeviceShare("GPU-0", 1024, 25),) * 2)
    assert enforcement_of(part, SpecHold(), [Enforcement.MPS] * 2) is Enforcement.MPS


def test_who_has_memory_of_its_own_where_it_would_meet_the_daemon_is_no_client():
    part = ContainerGrant("main", ContainerKind.APP, (DeviceShare("GPU-0", 1024, 25),))
    for path, is_client in (("/dev/shm", False), ("//dev//shm/", False), ("/dev/shm/cache", True), ("/data", True)):
        spec = ContainerSpec("main", ContainerKind.APP, mounts=(VolumeMount(name="v", mount_path=path),))
        held = [enforcement_of(part, spec_hold(spec), [word]) for word in (Enforcement.MPS, Enforcement.HAMI_CORE)]
        assert held == [Enforcement.MPS if is_client else Enforcement.TIME_SLICING, Enforcement.HAMI_CORE]


@pytest.mark.parametrize("hold", [SpecHold(limits, by_mps) for limits in LibraryHold for by_mps in (True, False)])
@pytest.mark.parametrize("count", [1, 2])
def test_what_enforces_on_each_of_a_containers_devices_enforces_on_all_of_them(hold, count):
    """So that no pod is placed which its node then refuses, and no device is passed over that would have done."""
    shares = tuple(DeviceShare(f"GPU-{place}", 1024, 30) for place in range(count))
    part = ContainerGrant("main", ContainerKind.APP, shares)
    assert {Enforcement.MIG, Enforcement.WHOLE_DEVICE} <= set(possible_enforcements(hold, count)) <= set(OF_DEVICES)
    for words in itertools.product(OF_DEVICES, repeat=count):
        is_held = not enforcement_of(part, hold, words).is_advisory
        assert is_held or not set(words) <= set(possible_enforcements(hold, count))
        assert not is_held or count > 1 or words[0] in possible_enforcements(hold, count)
