"""The signing key: made once whoever races, published, never lost."""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from purser.core.names import DEFAULT_NAMESPACE, GRANT_KEY_CONFIGMAP, GRANT_KEY_SECRET
from purser.kube.resources import CONFIG_MAPS, SECRETS
from purser.scheduler.keys import CONFIGMAP_FIELD, SigningKeyError, load_or_create_keys, parse_public_keys

from .extender_world import _client, server


async def published(client):
    return parse_public_keys(
        (await client.get(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, DEFAULT_NAMESPACE)).data[CONFIGMAP_FIELD]
    )


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


def test_what_is_no_key_among_the_published_ones_is_left_out():
    key = Ed25519PrivateKey.generate().public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    broken = "-----BEGIN PUBLIC KEY-----\nbm8=\n-----END PUBLIC KEY-----\n"
    assert parse_public_keys("noise\n" + broken + pem + "more noise") == (key,)
