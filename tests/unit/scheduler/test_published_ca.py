"""The CA of Purser's certificate, in the ConfigMap that clients of the read API mount."""

import asyncio

from tests import waiting
from tests.unit.kube.servers import HastyClock

from purser.core.names import CA_CONFIGMAP, CA_CONFIGMAP_FIELD, DEFAULT_NAMESPACE
from purser.kube.resources import CONFIG_MAPS
from purser.scheduler.published_ca import PublishedCa

from .extender_world import _client, server


async def published(client):
    return (await client.get(CONFIG_MAPS, CA_CONFIGMAP, DEFAULT_NAMESPACE)).data[CA_CONFIGMAP_FIELD]


async def test_it_is_created_and_written_when_it_changes_and_only_then():
    bundle = b"one"
    async with server() as api, _client(api) as client:
        ca = PublishedCa(client, DEFAULT_NAMESPACE, lambda: bundle)
        await ca.publish()
        assert await published(client) == "one"
        version = api.resource_version
        await ca.publish()
        assert api.resource_version == version
        bundle = b"one, two"
        await ca.publish()
        assert await published(client) == "one, two"


async def test_what_somebody_removes_or_changes_comes_back():
    async with server() as api, _client(api) as client:
        running = asyncio.ensure_future(PublishedCa(client, DEFAULT_NAMESPACE, lambda: b"one", HastyClock()).run())
        try:
            await has(client, "one")
            await client.delete(CONFIG_MAPS, CA_CONFIGMAP, DEFAULT_NAMESPACE)
            await has(client, "one")
            await client.patch_merge(CONFIG_MAPS, CA_CONFIGMAP, {"data": {CA_CONFIGMAP_FIELD: "x"}}, DEFAULT_NAMESPACE)
            await has(client, "one")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def has(client, text):
    found = ""
    async with waiting.limit():
        while found != text:
            listed = (await client.list(CONFIG_MAPS, DEFAULT_NAMESPACE)).items
            found = next((each.data[CA_CONFIGMAP_FIELD] for each in listed if each.metadata.name == CA_CONFIGMAP), "")
            await asyncio.sleep(0.01)
