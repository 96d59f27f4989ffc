"""The signing key: made once whoever races, published, never lost."""

import asyncio

import pytest

from purser.core.names import DEFAULT_NAMESPACE, GRANT_KEY_CONFIGMAP, GRANT_KEY_CONFIGMAP_FIELD, GRANT_KEY_SECRET
from purser.core.signing import parse_public_keys
from purser.kube.resources import CONFIG_MAPS, SECRETS
from purser.scheduler.keys import SigningKeyError, load_or_create_keys

from .extender_world import _client, server


async def published(client):
    config_map = await client.get(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, DEFAULT_NAMESPACE)
    return parse_public_keys(config_map.data[GRANT_KEY_CONFIGMAP_FIELD])[0]


async def test_replicas_that_race_share_one_key():
    async with server() as api, _client(api) as one, _client(api) as other:
        keys = await asyncio.gather(*(load_or_create_keys(c, DEFAULT_NAMESPACE) for c in (one, other) * 3))
        assert len({k.signing.private_bytes_raw() for k in keys}) == 1
        assert await published(one) == (keys[0].signing.public_key(),)


async def test_a_restart_finds_the_same_key_and_writes_nothing():
    async with server() as api, _client(api) as client:
        first = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        version = api.resource_version
        again = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        assert again.signing.private_bytes_raw() == first.signing.private_bytes_raw()
        assert api.resource_version == version


async def test_after_the_secret_was_replaced_old_signatures_keep_counting():
    async with server() as api, _client(api) as client:
        keys = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        old = keys.signing.public_key()
        await client.delete(SECRETS, GRANT_KEY_SECRET, DEFAULT_NAMESPACE)
        await keys.refresh()
        assert keys.public == (old, keys.signing.public_key()) == await published(client)
        assert keys.signing.public_key() != old


@pytest.mark.parametrize("data", [{}, {"key.pem": "bm8ga2V5"}], ids=["an empty secret", "a secret without a key in it"])
async def test_a_secret_without_a_key_is_an_error_that_says_what_to_do(data):
    async with server() as api, _client(api) as client:
        await client.create(
            SECRETS, {"metadata": {"name": GRANT_KEY_SECRET, "namespace": DEFAULT_NAMESPACE}, "data": data}
        )
        with pytest.raises(SigningKeyError, match="delete it"):
            await load_or_create_keys(client, DEFAULT_NAMESPACE)
