"""The key that signs grants: made once, kept in a Secret, its public half published for the agents.

Old public keys stay published, so that grants signed before the Secret was replaced keep counting; whoever may write
the ConfigMap may add keys, which is why only the scheduler may.
"""

import base64

import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from purser.core.names import GRANT_KEY_CONFIGMAP, GRANT_KEY_CONFIGMAP_FIELD, GRANT_KEY_SECRET
from purser.core.signing import parse_public_keys
from purser.kube import AlreadyExistsError, Client, NotFoundError
from purser.kube.objects import Secret
from purser.kube.resources import CONFIG_MAPS, SECRETS

SECRET_FIELD = "key.pem"
"""In the Secret: the private key, PKCS#8 PEM."""

log = structlog.get_logger("purser.scheduler")


class SigningKeyError(Exception):
    """The Secret holds no usable key; the message says what to do."""


class GrantKeys:
    """The signing key and all public keys by which a grant may be signed."""

    def __init__(
        self, client: Client, namespace: str, signing: Ed25519PrivateKey, public: tuple[Ed25519PublicKey, ...]
    ):
        self._client = client
        self._namespace = namespace
        self.signing = signing
        self.public = public

    async def refresh(self) -> None:
        """Take what another replica or an operator changed meanwhile, and publish again."""
        fresh = await load_or_create_keys(self._client, self._namespace)
        self.signing, self.public = fresh.signing, fresh.public


async def load_or_create_keys(client: Client, namespace: str) -> GrantKeys:
    """The cluster's signing key, created where there is none, with its public half published.

    Raises `SigningKeyError` for a Secret without a usable key, and `KubeError`.
    """
    signing = _read_secret(await _get_or_create(client, namespace))
    public = await _publish(client, namespace, signing.public_key())
    return GrantKeys(client, namespace, signing, public)


async def _get_or_create(client: Client, namespace: str) -> Secret:
    """Two replicas may race: the API server lets one create it, and the other reads that one."""
    try:
        return await client.get(SECRETS, GRANT_KEY_SECRET, namespace)
    except NotFoundError:
        pass
    try:
        return await client.create(SECRETS, _new_secret(namespace))
    except AlreadyExistsError:
        return await client.get(SECRETS, GRANT_KEY_SECRET, namespace)


def _new_secret(namespace: str) -> dict[str, object]:
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    log.info("Creating the key that signs grants", secret=GRANT_KEY_SECRET, namespace=namespace)
    return {
        "metadata": {"name": GRANT_KEY_SECRET, "namespace": namespace},
        "type": "Opaque",
        "data": {SECRET_FIELD: base64.b64encode(pem).decode()},
    }


def _read_secret(secret: Secret) -> Ed25519PrivateKey:
    where = f"Secret {secret.metadata.namespace}/{GRANT_KEY_SECRET}, field {SECRET_FIELD}"
    try:
        key = load_pem_private_key(secret.data[SECRET_FIELD], password=None)
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SigningKeyError(f"{where} holds no private key ({error!r}): delete it, a new one is made") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError(f"{where} holds a key that is not Ed25519: delete it, a new one is made")
    return key


async def _publish(client: Client, namespace: str, own: Ed25519PublicKey) -> tuple[Ed25519PublicKey, ...]:
    """Publish our key beside those that are there; nothing is written when it is there already."""
    known, problems = parse_public_keys(await _published(client, namespace))
    for problem in problems:
        log.warning("A published key cannot be used", configmap=GRANT_KEY_CONFIGMAP, problem=problem)
    if own in known:
        return known
    keys = (*known, own)
    body = {
        "metadata": {"name": GRANT_KEY_CONFIGMAP, "namespace": namespace},
        "data": {GRANT_KEY_CONFIGMAP_FIELD: "".join(map(_pem, keys))},
    }
    await client.apply(CONFIG_MAPS, body, force=True)
    return keys


async def _published(client: Client, namespace: str) -> str:
    try:
        return (await client.get(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, namespace)).data.get(GRANT_KEY_CONFIGMAP_FIELD, "")
    except NotFoundError:
        return ""


def _pem(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
