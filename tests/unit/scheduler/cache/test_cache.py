"""The cache: the book follows pods, the fleet follows nodes, and only what the scheduler signed counts."""

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.scheduler.extender_world import a_grant, eventually, replica, server

from purser.adapters.quotas import CORES
from purser.core.fleet import FreeResources
from purser.core.grant.signing import sign
from purser.core.model import DeviceRequest, GrantState
from purser.core.names import GRANT_ANNOTATION, INVENTORY_ANNOTATION
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NODES, PODS

SHARED = "nvidia.com/gpu.shared"


async def test_a_bound_pod_is_on_the_book_until_it_ends(world):
    await world.add_node("n1")
    pod = await world.add_pod("p")
    assert await world.bind(pod, "n1") == ""
    assert world.state_of(pod) is GrantState.BOUND
    await world.client.patch_merge(PODS, "p", {"status": {"phase": "Running"}}, "default", subresource="status")
    await eventually(lambda: world.state_of(pod) is GrantState.RUNNING)
    await world.client.patch_merge(PODS, "p", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    await eventually(lambda: world.state_of(pod) is None)
    assert world.memory_used("n1") == 0


async def test_a_deleted_pod_is_released_once_it_is_gone(world):
    await world.add_node("n1")
    pod = await world.add_pod("p")
    await world.bind(pod, "n1")
    await world.client.delete(PODS, "p", "default")
    await eventually(lambda: world.cache.pod_by_uid(pod.metadata.uid).metadata.deletion_timestamp != "")
    assert world.memory_used("n1") == 1000
    await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
    await eventually(lambda: world.memory_used("n1") == 0)


async def test_a_restarted_replica_has_the_same_book():
    async with server() as api:
        async with replica(api) as world:
            await world.add_node("n1", cards=2)
            for name in ("a", "b", "c"):
                assert await world.bind(await world.add_pod(name), "n1") == ""
            before = dict(world.ledger.usage("n1"))
            grants = sorted(world.ledger.grants(), key=lambda grant: grant.pod)
        async with replica(api) as world:
            assert dict(world.ledger.usage("n1")) == before
            assert sorted(world.ledger.grants(), key=lambda grant: grant.pod) == grants


async def bind_by_hand(world, pod, node, annotations):
    await world.client.bind("default", pod.metadata.name, pod.metadata.uid, node, annotations)


async def test_a_forged_grant_takes_nothing(world):
    await world.add_node("n1")
    pod = await world.add_pod("thief")
    forged = sign(a_grant(pod.metadata.uid, "n1", "n1-0", 8000), Ed25519PrivateKey.generate())
    await bind_by_hand(world, pod, "n1", forged)
    await eventually(lambda: pod.metadata.uid in world.cache.bound_grants.untrusted)
    assert "not signed with any of the scheduler's keys" in world.cache.bound_grants.untrusted[pod.metadata.uid]
    assert world.memory_used("n1") == 0


async def test_a_grant_copied_from_another_pod_takes_nothing(world):
    await world.add_node("n1")
    owner, thief = await world.add_pod("owner"), await world.add_pod("thief")
    await world.bind(owner, "n1")
    await bind_by_hand(world, thief, "n1", dict((await world.stored(owner)).metadata.annotations))
    await eventually(lambda: thief.metadata.uid in world.cache.bound_grants.untrusted)
    assert world.memory_used("n1") == 1000


async def test_defacing_a_running_pods_grant_frees_nothing(world):
    await world.add_node("n1")
    pod = await world.add_pod("p")
    await world.bind(pod, "n1")
    await eventually(lambda: world.cache.pod_by_uid(pod.metadata.uid).spec.node_name == "n1")
    for value, problem in (("{}", "cannot be read"), (None, "was removed")):
        await world.client.patch_merge(PODS, "p", {"metadata": {"annotations": {GRANT_ANNOTATION: value}}}, "default")
        await eventually(lambda wanted=problem: wanted in world.cache.bound_grants.untrusted.get(pod.metadata.uid, ""))
        assert world.memory_used("n1") == 1000


async def test_a_pod_that_others_bound_is_noted(world):
    await world.add_node("n1")
    pod, plain = await world.add_pod("p"), await world.add_pod("plain", memory=None)
    await bind_by_hand(world, plain, "n1", {})
    await bind_by_hand(world, pod, "n1", {})
    await eventually(lambda: dict(world.cache.bound_grants.ungranted) == {pod.metadata.uid: "n1"})
    assert world.memory_used("n1") == 0


def most(world, resource):
    return world.cache.gpus().most_of(DeviceRequest(1, memory_percent=100, resource=resource))


async def test_a_node_is_rebuilt_when_its_inventory_changes_and_forgotten_with_it(world):
    await world.add_node("n1", cards=4)
    assert most(world, "nvidia.com/gpu") == 4
    inventory = world.cache.fleet.node("n1").inventory
    fewer = msgspec.json.encode(msgspec.structs.replace(inventory, devices=inventory.devices[:3])).decode()
    await world.client.patch_merge(NODES, "n1", {"metadata": {"annotations": {INVENTORY_ANNOTATION: fewer}}})
    await eventually(lambda: len(world.cache.fleet.node("n1").devices) == 3)
    largest = world.cache.gpus().largest_of(())
    halves = [msgspec.structs.replace(each, replicas=2, slots=2, resource=SHARED) for each in inventory.devices[:2]]
    other = [*halves, inventory.devices[2]]
    text = msgspec.json.encode(msgspec.structs.replace(inventory, devices=tuple(other))).decode()
    await world.client.patch_merge(NODES, "n1", {"metadata": {"annotations": {INVENTORY_ANNOTATION: text}}})
    await eventually(lambda: most(world, SHARED) == 4)
    assert (most(world, "nvidia.com/gpu"), world.cache.gpus().largest_of(())) == (1, largest)
    await world.client.patch_merge(NODES, "n1", {"metadata": {"annotations": {INVENTORY_ANNOTATION: "{"}}})
    await eventually(lambda: world.cache.fleet.node("n1") is None)
    await world.client.patch_merge(NODES, "n1", {"metadata": {"annotations": {INVENTORY_ANNOTATION: fewer}}})
    await eventually(lambda: world.cache.fleet.node("n1") is not None)
    await world.client.delete(NODES, "n1")
    await eventually(lambda: world.cache.fleet.node("n1") is None)


async def test_quotas_leave_what_the_namespaces_pods_do_not_use(world):
    await world.add_node("n1")
    hard = {"limits.nvidia.com/gpumem": "2500", "pods": "10"}
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
    await world.client.create(RESOURCE_QUOTAS, quota)
    await eventually(lambda: world.cache.quota_remaining("default").memory_mib == 2500)
    first, second, third = [await world.add_pod(name) for name in "abc"]
    assert [await world.bind(pod, "n1") for pod in (first, second)] == ["", ""]
    assert world.cache.quota_remaining("default").memory_mib == 500
    assert "ResourceQuotaNotFit" in await world.bind(third, "n1")
    await world.client.delete(RESOURCE_QUOTAS, "q", "default")
    await eventually(lambda: world.cache.quota_remaining("default").memory_mib is None)


async def test_a_quota_that_no_longer_limits_gpus_does_not(world):
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {CORES: "50"}}}
    await world.client.create(RESOURCE_QUOTAS, quota)
    await eventually(lambda: world.cache.quota_remaining("default").cores_percent == 50)
    await world.client.patch_merge(RESOURCE_QUOTAS, "q", {"spec": {"hard": {CORES: None, "pods": "1"}}}, "default")
    await eventually(lambda: world.cache.quota_remaining("default").cores_percent is None)


async def test_a_grant_whose_key_is_published_later_counts_after_the_next_relist(world):
    await world.add_node("n1")
    pod = await world.add_pod("p")
    newcomer = Ed25519PrivateKey.generate()
    await bind_by_hand(world, pod, "n1", sign(a_grant(pod.metadata.uid, "n1", "n1-0"), newcomer))
    await eventually(lambda: pod.metadata.uid in world.cache.bound_grants.untrusted)
    world.keys.public = (*world.keys.public, newcomer.public_key())
    await world.cache.wait_for_relist()
    assert world.memory_used("n1") == 1000
    assert not world.cache.bound_grants.untrusted


async def allow(world, node, **amounts):
    """What the node has for pods, as its kubelet says."""
    await world.client.patch_merge(NODES, node, {"status": {"allocatable": amounts}}, subresource="status")
    await eventually(lambda: world.cache.fleet.free_resources(node) != FreeResources())


async def test_every_bound_pod_takes_of_its_node_beside_gpus_until_it_ends(world):
    await world.add_node("n1")
    await allow(world, "n1", cpu="8", memory="64Gi", pods="110")
    await world.bind(await world.add_pod("gpu", cpu="2"), "n1")
    plain = await world.add_pod("plain", None, cpu="1")
    await bind_by_hand(world, plain, "n1", {})
    await eventually(lambda: world.cache.fleet.free_resources("n1") == FreeResources(5000, 64 * 1024, 108))
    await world.client.patch_merge(PODS, "plain", {"status": {"phase": "Failed"}}, "default", subresource="status")
    await eventually(lambda: world.cache.fleet.free_resources("n1") == FreeResources(6000, 64 * 1024, 109))
    await world.client.delete(PODS, "gpu", "default", grace_period_seconds=0)
    await eventually(lambda: world.cache.fleet.free_resources("n1") == FreeResources(8000, 64 * 1024, 110))
    await world.client.delete(NODES, "n1")
    await eventually(lambda: world.cache.fleet.free_resources("n1") == FreeResources())
