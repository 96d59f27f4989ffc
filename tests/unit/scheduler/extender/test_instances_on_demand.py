"""GPU instances on demand, from a pod's limits to the grant that its agent is to make."""

import json

from tests.unit.core.placement.test_instances import gpu
from tests.unit.scheduler.extender_world import World, replica, server

from purser.core.mig import MigPlacement
from purser.core.model import Enforcement, NodePolicy
from purser.core.names import ENFORCEMENT_ANNOTATION
from purser.core.placement import PolicySettings
from purser.kube.objects import Pod
from purser.kube.resources import PODS

PURSER = PolicySettings(NodePolicy.PURSER)


async def placed(world: World, pod: Pod, *nodes: str) -> list[tuple[str, MigPlacement | None]]:
    answer = await world.filter(pod, *nodes)
    assert answer.node_names
    assert not await world.bind(pod, answer.node_names[0])
    grant = await world.grant_on(pod)
    assert grant is not None and {part.enforcement for part in grant.containers} == {Enforcement.MIG}
    return [(share.uuid, share.mig) for part in grant.containers for share in part.shares]


async def test_modes_and_resources_of_a_pod_choose_between_gpus_that_are_cut_and_others() -> None:
    async with server() as api, replica(api, policy=PURSER) as world:
        await world.add_node("cut", devices=(gpu("gpu-0", 0),))
        await world.add_node("shared")
        plain = await world.filter(await world.add_pod("any"), "cut", "shared")
        assert sorted(plain.node_names) == ["cut", "shared"]
        mig = await world.add_pod("mig", annotations={"nvidia.com/vgpu-mode": "mig"})
        assert (await world.filter(mig, "cut", "shared")).node_names == ["cut"]
        core = await world.add_pod("core", annotations={"nvidia.com/vgpu-mode": "hami-core"})
        assert (await world.filter(core, "cut", "shared")).node_names == ["shared"]
        required = await world.add_pod("required", annotations={ENFORCEMENT_ANNOTATION: "required"})
        assert (await world.filter(required, "cut", "shared")).node_names == ["cut"]


async def test_pods_for_hamis_dynamic_mig_get_instances_and_its_record_of_them() -> None:
    mode = {"nvidia.com/vgpu-mode": "mig"}
    example = {**mode, "hami.io/gpu-scheduler-policy": "binpack"}
    liked = {**mode, "nvidia.com/mig-profile-preference": "4g"}
    async with server() as api, replica(api, policy=PURSER) as world:
        await world.add_node("n", devices=(gpu("gpu-0", 0), gpu("gpu-1", 1)))
        pods = {
            "1g.10gb": await world.add_pod("example", 8000, annotations=example, **{"nvidia.com/gpu": "2"}),
            "4g.20gb": await world.add_pod("liked", 8000, annotations=liked),
            "7g.40gb": await world.add_pod("whole", None, annotations=mode, **{"nvidia.com/gpu": "1"}),
        }
        for profile, pod in pods.items():
            held = await placed(world, pod, "n")
            assert [each and each.profile for _, each in held] == [profile] * (2 if profile == "1g.10gb" else 1)
            written = (await world.client.get(PODS, pod.metadata.name, "default")).metadata.annotations
            record = json.loads(written["hami.io/vgpu-mig-allocations"])
            assert [(each["gpuUUID"], each["profile"], each["placement"]["start"]) for each in record] == [
                (uuid, each.profile, each.start) for uuid, each in held if each
            ]
            assert written["hami.io/vgpu-node"] == "n"
            assert written["hami.io/vgpu-devices-allocated"].count(",NVIDIA,") == len(held)
