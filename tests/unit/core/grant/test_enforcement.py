"""What holds a container: one word for its grant, its environment, the books and the metrics."""

import json

import pytest
from tests.unit.scheduler.reviews import container, pod

from purser.adapters.pods import pod_spec
from purser.agent.allocation import AllocationFacts, answer
from purser.agent.pods import container_facts
from purser.core.dialects import parse
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Enforcement, NodeInventory
from purser.core.placement import to_grant
from purser.core.placement.place import Placement
from purser.kube.codec import codec_of
from purser.kube.resources import PODS

GPU, MEM, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
WHOLE, SHARE, HALF = {GPU: "1"}, {GPU: "1", MEM: "1024"}, {GPU: "1", MEM: "1024", CORES: "50"}


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
@pytest.mark.parametrize("enforcing", [True, False], ids=["on a node that enforces", "on a node that does not"])
def test_grant_and_environment_say_the_same_and_the_library_is_there_where_they_say(limits, spec, word, enforcing):
    of_node = Enforcement.HAMI_CORE if enforcing else Enforcement.NONE
    expected = word if enforcing or word == "whole-device" else "none"
    body = codec_of(PODS).object(json.dumps(pod(container("main", limits=limits, **spec))).encode())
    request = parse(pod_spec(body))
    asked = request.containers[0].devices
    share = DeviceShare("GPU-1", asked.memory_mib or 16384, asked.cores_percent)
    placement = Placement("n1", (ContainerGrant("main", ContainerKind.APP, (share,)),))
    device = Device("GPU-1", 0, "L4", 16384)

    grant = to_grant(placement, request, NodeInventory("n1", (device,), of_node))
    given = answer(
        grant,
        grant.containers[0],
        container_facts(body, "main"),
        AllocationFacts({"GPU-1": device}, of_node, library_dir="/opt/vgpu", lock_dir="/tmp/lock"),
    )

    assert grant.containers[0].enforcement.value == given.environment["PURSER_GPU_ENFORCEMENT"] == expected
    has_library = any(mount.container_path == "/etc/ld.so.preload" for mount in given.mounts)
    assert has_library == grant.containers[0].enforcement.has_library == expected.startswith("hami-core")
