"""A pod whose share has to be held to its limits is placed where something holds it, and nowhere else."""

from tests.unit.scheduler.extender_world import eventually

from purser.core.model import Enforcement
from purser.core.names import ENFORCEMENT_ANNOTATION
from purser.kube.resources import NAMESPACES

REQUIRED = {ENFORCEMENT_ANNOTATION: "required"}
WHY = (
    "2 GPUs on 1 node do not enforce the pod's share, but the pod requires enforcement "
    "(available: none; required: mig, mps, hami-core or"
)


async def test_by_the_pods_annotation_or_by_its_namespaces(world):
    await world.add_node("open", cards=2)
    await world.add_node("held", enforcement=Enforcement.HAMI_CORE)
    required, plain = await world.add_pod("required", annotations=REQUIRED), await world.add_pod("plain")

    assert (await world.filter(required, "open", "held")).node_names == ["held"]
    assert WHY in (await world.filter(required, "open")).failed_nodes["open"]
    assert "ShareNotEnforced" in await world.bind(required, "open")
    assert await world.bind(required, "held") == ""
    granted = await world.grant_on(required)
    assert (granted.enforcement_required, granted.containers[0].enforcement) == (True, "hami-core")
    assert "; enforcement: hami-core" in (await world.event_messages())[-1]

    assert (await world.filter(plain, "open", "held")).node_names == ["open", "held"]
    await world.client.patch_merge(NAMESPACES, "default", {"metadata": {"annotations": REQUIRED}})
    await eventually(lambda: world.cache.enforcement_of_namespace("default") == "required")
    assert (await world.filter(plain, "open", "held")).node_names == ["held"]
    assert "ShareNotEnforced" in await world.bind(plain, "open")
    whole = await world.add_pod("whole", None, **{"nvidia.com/gpu": "1"})
    assert await world.bind(whole, "open") == ""
    assert (await world.grant_on(whole)).containers[0].enforcement == "whole-device"
