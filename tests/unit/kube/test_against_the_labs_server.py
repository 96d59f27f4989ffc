"""The room's contract, and faults, against the API server that the lab embeds."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from tests.unit.kube import contract
from tests.unit.kube.servers import eventually, running

from purser.kube import Client, ClusterConfig, Informer, NotFoundError
from purser.kube.backoff import Backoff
from purser.kube.resources import CONFIG_MAPS, NAMESPACES
from purser.lab.apiserver import ApiServer


@asynccontextmanager
async def cluster(folder, **options):
    async with ApiServer(**options) as server:
        config = ClusterConfig.load(server.write_kubeconfig(folder / "kubeconfig"))
        async with Client(config) as client:
            await client.create(NAMESPACES, {"metadata": {"name": "test"}})
            yield server, client


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
async def test_contract(check, tmp_path, monkeypatch):
    monkeypatch.setattr("purser.kube.client.PAGE_SIZE", 2)
    async with cluster(tmp_path) as (_, client):
        await check(client, "test")


async def test_bookmarks_keep_an_idle_informer_ahead_of_compaction(tmp_path):
    async with cluster(tmp_path, bookmark_seconds=0.02) as (server, client):
        informer = Informer(client, CONFIG_MAPS, "test")
        async with running(informer.run()):
            await informer.synced()
            await client.create(NAMESPACES, {"metadata": {"name": "elsewhere"}})
            version = server.resource_version
            await eventually(lambda: int(informer._version) >= int(version))


@pytest.mark.parametrize("seed", range(2))
async def test_the_store_equals_the_server_after_restarts_and_lost_history(seed, tmp_path):
    rng = random.Random(seed)
    async with cluster(tmp_path) as (server, client):
        informer = Informer(client, CONFIG_MAPS, "test", backoff=Backoff(0.001, 0.02))
        async with running(informer.run()):
            for step in range(60):
                await change_something(rng, client)
                if rng.random() < 0.1:
                    server.drop_history()
                if step in (25, 45):
                    await server.stop()
                    await server.start()
                await asyncio.sleep(rng.choice([0, 0, 0.002]))
            wanted = versions((await client.list(CONFIG_MAPS, "test")).items)
            await eventually(lambda: versions(informer.store.values()) == wanted)


async def change_something(rng, client):
    name = rng.choice("abcde")
    try:
        if rng.random() < 0.3:
            await client.delete(CONFIG_MAPS, name, "test")
        else:
            body = {"metadata": {"name": name, "namespace": "test"}, "data": {"n": str(rng.random())}}
            await client.apply(CONFIG_MAPS, body)
    except NotFoundError:
        pass


def versions(items):
    return {item.metadata.name: item.metadata.resource_version for item in items}


async def test_no_connection_is_left_when_a_client_is_closed(tmp_path):
    """Not those of watches either, nor of requests that were cancelled: a loop that ends next would leave them open."""
    async with ApiServer() as server:
        config = ClusterConfig.load(server.write_kubeconfig(tmp_path / "kubeconfig"))
        async with Client(config) as client:
            version = (await client.list(CONFIG_MAPS)).resource_version
            requests = [asyncio.create_task(client.list(CONFIG_MAPS)) for _ in range(3)]
            async with client.watch(CONFIG_MAPS, resource_version=version):
                opened = list(client._transport._sockets)
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)
            opened += client._transport._sockets
        assert opened
        assert [each for each in opened if each.fileno() >= 0] == []
