"""The signing key: made once whoever races, published, never lost."""

import asyncio
import base64

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from purser.core.grant.signing import parse_public_keys
from purser.core.names import (
    DEFAULT_NAMESPACE,
    GRANT_KEY_CONFIGMAP,
    GRANT_KEY_CONFIGMAP_FIELD,
    GRANT_KEY_SECRET,
    ROTATE_ANNOTATION,
)
from purser.kube import Client
from purser.kube.resources import CONFIG_MAPS, SECRETS
from purser.scheduler.keys import RETIRED_FIELD, SigningKeyError, load_or_create_keys

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


async def test_a_deleted_secret_revokes_its_key_at_once():
    async with server() as api, _client(api) as client:
        keys = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        old = keys.signing.public_key()
        await client.delete(SECRETS, GRANT_KEY_SECRET, DEFAULT_NAMESPACE)
        await keys.refresh()
        assert keys.signing.public_key() != old
        assert keys.public == (keys.signing.public_key(),) == await published(client)


async def ask_for_rotation(client):
    patch = {"metadata": {"annotations": {ROTATE_ANNOTATION: "now"}}}
    await client.patch_merge(SECRETS, GRANT_KEY_SECRET, patch, DEFAULT_NAMESPACE)


async def test_a_planned_rotation_goes_on_trusting_and_signs_with_the_new_key_once_agents_have_it():
    async with server() as api, _client(api) as client:
        keys = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        old = keys.signing.public_key()
        await ask_for_rotation(client)
        await keys.refresh()
        new, retired = await published(client)
        assert (keys.signing.public_key(), retired) == (old, old)
        await keys.refresh()
        assert keys.signing.public_key() == new != old
        assert keys.public == (new, old)
        secret = await client.get(SECRETS, GRANT_KEY_SECRET, DEFAULT_NAMESPACE)
        assert ROTATE_ANNOTATION not in secret.metadata.annotations
        assert b"PRIVATE" not in secret.data[RETIRED_FIELD]
        version = api.resource_version
        await keys.refresh()
        assert api.resource_version == version


async def test_rotations_add_up_until_retired_keys_are_dropped():
    async with server() as api, _client(api) as client:
        keys = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        for _ in range(2):
            await ask_for_rotation(client)
            await keys.refresh()
            await keys.refresh()
        assert len(await published(client)) == 3
        dropped = [{"op": "remove", "path": "/data/retired.pem"}]
        await client.patch_json(SECRETS, GRANT_KEY_SECRET, dropped, DEFAULT_NAMESPACE)
        await keys.refresh()
        assert await published(client) == (keys.signing.public_key(),) == keys.public


async def test_replicas_that_hear_of_a_rotation_at_once_rotate_once():
    async with server() as api, _client(api) as one, _client(api) as other:
        replicas = [await load_or_create_keys(c, DEFAULT_NAMESPACE) for c in (one, other)]
        await ask_for_rotation(one)
        await asyncio.gather(*(keys.refresh() for keys in replicas * 2))
        for keys in replicas:
            await keys.refresh()
        assert len({k.signing.private_bytes_raw() for k in replicas}) == 1
        assert len(await published(one)) == 2


async def test_who_read_the_secret_too_early_does_not_bring_a_revoked_key_back():
    class Slow(Client):
        """Held up between the Secret and the ConfigMap."""

        async def get(self, resource, name, namespace=None):
            found = await super().get(resource, name, namespace)
            if resource is SECRETS and not revoked:
                revoked.append(found)
                await other.delete(SECRETS, GRANT_KEY_SECRET, DEFAULT_NAMESPACE)
                new.append(await load_or_create_keys(other, DEFAULT_NAMESPACE))
            return found

    revoked, new = [], []
    async with server() as api, _client(api) as other, _client(api, Slow) as slow:
        await load_or_create_keys(other, DEFAULT_NAMESPACE)
        outdated = {"data": {GRANT_KEY_CONFIGMAP_FIELD: ""}}
        await other.patch_merge(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, outdated, DEFAULT_NAMESPACE)
        keys = await load_or_create_keys(slow, DEFAULT_NAMESPACE)
        assert keys.public == new[0].public == await published(other)
        assert keys.signing.private_bytes_raw() == new[0].signing.private_bytes_raw()


async def test_what_others_published_is_not_trusted():
    async with server() as api, _client(api) as client:
        keys = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        mine = await published(client)
        stranger = Ed25519PrivateKey.generate().public_key()
        pem = stranger.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        patch = {"data": {GRANT_KEY_CONFIGMAP_FIELD: pem}}
        await client.patch_merge(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, patch, DEFAULT_NAMESPACE)
        await keys.refresh()
        assert keys.public == mine == await published(client)


@pytest.mark.parametrize("data", [{}, {"key.pem": "bm8ga2V5"}], ids=["an empty secret", "a secret without a key in it"])
async def test_a_secret_without_a_key_is_an_error_that_says_what_to_do(data):
    async with server() as api, _client(api) as client:
        await client.create(
            SECRETS, {"metadata": {"name": GRANT_KEY_SECRET, "namespace": DEFAULT_NAMESPACE}, "data": data}
        )
        with pytest.raises(SigningKeyError, match="delete the Secret"):
            await load_or_create_keys(client, DEFAULT_NAMESPACE)


async def test_retired_keys_that_cannot_be_used_are_reported_when_they_are_others():
    """The Secret is read twice a minute."""

    async def retire(blocks):
        text = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n" * blocks
        patch = {"data": {RETIRED_FIELD: base64.b64encode(text.encode()).decode()}}
        await client.patch_merge(SECRETS, GRANT_KEY_SECRET, patch, DEFAULT_NAMESPACE)
        with structlog.testing.capture_logs() as logs:
            await keys.refresh()
            await keys.refresh()
        return [entry["problem"].count("PEM block") for entry in logs]

    async with server() as api, _client(api) as client:
        keys = await load_or_create_keys(client, DEFAULT_NAMESPACE)
        assert [await retire(blocks) for blocks in (1, 3000, 0, 1)] == [[1], [3], [], [1]]
