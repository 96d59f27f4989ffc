"""A revoked signing key grants nothing any more, and takes nothing from pods that run."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from purser.core.grant.signing import sign
from purser.core.names import DEFAULT_NAMESPACE, GRANT_KEY_SECRET
from purser.kube.informer import Informer
from purser.kube.resources import CONFIG_MAPS, PODS, SECRETS
from tests.unit.agent import conftest
from tests.unit.agent.builders import part
from tests.unit.agent.conftest import eventually
from tests.unit.agent.emulated_kubelet import Rejected
from tests.unit.scheduler.extender_world import replica, server

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

# What an agent runs in, for these tests as well.
api, client, folder, driver = conftest.api, conftest.client, conftest.folder, conftest.driver
kubelet, world, short_waits = conftest.kubelet, conftest.world, conftest.short_waits


async def test_a_running_pod_keeps_its_device_and_may_start_its_container_again(world, kubelet):
    a, *_ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("runs", part("main", a, memory_mib=10000))
        await kubelet.admit("default/runs", [("main", 1)])
        ids = kubelet.pods["default/runs"]["main"]
        await world.set_phase("runs", "Running")
    old, world.key = world.key, Ed25519PrivateKey.generate()
    await world.publish_keys(world.key)
    async with world.agent() as agent:  # and after a restart, with its checkpoint alone
        await eventually(agent.ready)
        await kubelet.pre_start(ids)
        await world.pod("forged", part("main", a, memory_mib=1000), key=old)
        with pytest.raises(Rejected, match="not signed with any of the scheduler's keys"):
            await kubelet.admit("default/forged", [("main", 1)])
        await world.delete_pod("forged")
        await world.pod("too-much", part("main", a, memory_mib=10000))
        with pytest.raises(Rejected, match="another pod was admitted first"):
            await kubelet.admit("default/too-much", [("main", 1)])


async def test_a_pod_that_took_a_running_ones_name_gets_nothing_of_its(world, kubelet):
    a, *_ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("runs", part("main", a))
        await kubelet.admit("default/runs", [("main", 1)])
        ids = kubelet.pods["default/runs"]["main"]
        await world.delete_pod("runs")
        await world.pod("runs", counts={"main": 1})
        with pytest.raises(Rejected, match="has no valid grant"):
            await kubelet.pre_start(ids)


async def test_the_scheduler_counts_what_it_granted_and_believes_no_more_of_that_key():
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        runs, forged = await world.add_pod("runs"), await world.add_pod("forged")
        assert await world.bind(runs, "n1") == ""
        old = world.keys.signing
        await world.client.delete(SECRETS, GRANT_KEY_SECRET, DEFAULT_NAMESPACE)
        await world.keys.refresh()
        grant = world.ledger.grant(runs.metadata.uid)
        stolen = sign(type(grant)(forged.metadata.uid, "default", "forged", "n1", grant.containers), old)
        await world.client.bind("default", "forged", forged.metadata.uid, "n1", stolen)
        await eventually(lambda: forged.metadata.uid in world.cache.bound_grants.untrusted)
        touched = {"metadata": {"labels": {"touched": "yes"}}}
        await world.client.patch_merge(PODS, "runs", touched, "default")
        await eventually(lambda: world.cache.pod_by_uid(runs.metadata.uid).metadata.labels)
        assert world.memory_used("n1") == 1000
        later = await world.add_pod("later")
        assert await world.bind(later, "n1") == ""
        stored = await world.stored(later)
        assert stored.metadata.annotations["purser.dev/grant-signature"]
        assert world.cache.bound_grants.trusted_grant(stored) is not None


async def test_an_agent_that_has_not_heard_of_a_new_key_asks_before_it_refuses(world, kubelet, monkeypatch):
    """The watch of its keys may lag behind: the scheduler signs with the new one at once where the old is revoked."""
    a, *_ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        apply = Informer._apply

        def lagging(informer, event):
            if informer.resource is not CONFIG_MAPS:
                apply(informer, event)

        monkeypatch.setattr(Informer, "_apply", lagging)
        world.key = Ed25519PrivateKey.generate()
        await world.publish_keys(world.key)
        await world.pod("new", part("main", a))
        await kubelet.admit("default/new", [("main", 1)])


async def test_a_secret_without_a_key_is_named_in_answers_of_the_new_leader():
    async with server() as api, replica(api) as world:
        broken = {"data": {"key.pem": "bm9uZQ=="}}
        await world.client.patch_merge(SECRETS, GRANT_KEY_SECRET, broken, DEFAULT_NAMESPACE)
        answer = await world.filter(await world.add_pod("asks"), "n1")
        assert "does not hold a private key" in answer.error
