"""The key that signs grants: created once, kept in a Secret, its public half published for the agents.

Only the Secret is trusted: deleting it revokes all keys so far, in one step. After a planned rotation the public half
of the previous key stays in the Secret, as a retired one.

A grant without a valid key has no effect for a new pod. A pod keeps what it was given before: the agent's ledger has
it, and the scheduler counts what it has read itself and what agents report.
"""

import base64
import hashlib

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

from purser.core.grant.signing import parse_public_keys
from purser.core.names import GRANT_KEY_CONFIGMAP, GRANT_KEY_CONFIGMAP_FIELD, GRANT_KEY_SECRET, ROTATE_ANNOTATION
from purser.kube import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from purser.kube.objects import ConfigMap, Secret
from purser.kube.resources import CONFIG_MAPS, SECRETS
from purser.kube.retrying import MAX_WRITE_CONFLICTS

SECRET_FIELD = "key.pem"
"""In the Secret: the private key, PKCS#8 PEM."""

RETIRED_FIELD = "retired.pem"
"""In the Secret: public keys that signed before and still count, PEM, one after another."""

KEY_REFRESH_PERIOD_S = 30.0
"""Between two looks at the Secret."""


log = structlog.get_logger("purser.scheduler")


class SigningKeyError(Exception):
    """The Secret holds no usable key; the message says what to do."""


class GrantKeys:
    """The signing key and all public keys by which a grant may be signed."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        signing: Ed25519PrivateKey,
        public: tuple[Ed25519PublicKey, ...],
        problem: str = "",
    ):
        """``problem``: why keys of the Secret cannot be used."""
        self._client = client
        self._namespace = namespace
        self.signing = signing
        self.public = public
        self._announced = {_raw(key) for key in public}
        self._problem = problem

    async def refresh(self) -> None:
        """Take what another replica or an administrator changed meanwhile, and publish again.

        A new key signs from the second look on that finds it published, so that agents have it by then; at once where
        the one before is trusted no more. Raises `SigningKeyError` and `KubeError`.
        """
        fresh = await load_or_create_keys(self._client, self._namespace)
        trusted = {_raw(key) for key in fresh.public}
        revoked = {_raw(key) for key in self.public} - trusted
        if revoked:
            log.warning("Signing keys have been revoked: grants signed with them are invalid", keys=len(revoked))
        new = _raw(fresh.signing.public_key())
        if new in self._announced or _raw(self.signing.public_key()) not in trusted:
            self.signing = fresh.signing
        if fresh._problem != self._problem:
            fresh.report()
        self.public, self._announced, self._problem = fresh.public, trusted, fresh._problem

    def report(self) -> None:
        """Log which keys of the Secret cannot be used."""
        if self._problem:
            log.warning(
                "Some retired keys cannot be used", secret=GRANT_KEY_SECRET, field=RETIRED_FIELD, problem=self._problem
            )

    async def run(self, clock: Clock | None = None) -> None:
        """Look at the Secret until cancelled; what fails is logged and tried again, with the keys as they are."""
        clock = clock or SystemClock()
        while True:
            await clock.sleep(KEY_REFRESH_PERIOD_S)
            try:
                await self.refresh()
            except (KubeError, SigningKeyError) as error:
                log.warning("The signing key could not be checked", error=str(error), retry_in_s=KEY_REFRESH_PERIOD_S)


def names_key_of(keys: GrantKeys) -> bytes:
    """A key for hashes of names, by which the signing key cannot be found: another one after each rotation."""
    private = keys.signing.private_bytes_raw()
    return hashlib.blake2b(private, digest_size=32, person=b"purser log names").digest()


async def load_or_create_keys(client: Client, namespace: str) -> GrantKeys:
    """The cluster's signing key, created where there is none, with its public half published.

    Raises `SigningKeyError` for a Secret without a usable key, and `KubeError`.
    """
    for _ in range(MAX_WRITE_CONFLICTS):
        # The version first: a replica that read the Secret before another one changed both does not restore the old
        # keys.
        published = await _find_published(client, namespace)
        secret = await _get_or_create(client, namespace)
        try:
            if ROTATE_ANNOTATION in secret.metadata.annotations:
                secret = await _rotate(client, secret)
            signing, (retired, problem) = _read_secret(secret), _retired_keys(secret)
            public = tuple({_raw(key): key for key in (signing.public_key(), *retired)}.values())
            await _publish(client, namespace, published, public)
        except (ConflictError, AlreadyExistsError, NotFoundError):
            continue
        return GrantKeys(client, namespace, signing, public, problem)
    raise KubeError(f"the signing key or the published keys changed {MAX_WRITE_CONFLICTS} times while they were read")


async def _rotate(client: Client, secret: Secret) -> Secret:
    """A new key in place of the one that is there, whose public half goes on being trusted.

    Conditional on the version that was read: of replicas that race one rotates, the others read what it wrote. Raises
    `ConflictError`.
    """
    retired = "".join(_pem(key) for key in (_read_secret(secret).public_key(), *_retired_keys(secret)[0]))
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    meta = secret.metadata
    patch = {
        "metadata": {"resourceVersion": meta.resource_version, "annotations": {ROTATE_ANNOTATION: None}},
        "data": {SECRET_FIELD: _base64(pem), RETIRED_FIELD: _base64(retired.encode())},
    }
    log.info("Replacing the key that signs grants, as an annotation of its Secret requests", secret=GRANT_KEY_SECRET)
    return await client.patch_merge(SECRETS, GRANT_KEY_SECRET, patch, meta.namespace)


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
        "data": {SECRET_FIELD: _base64(pem)},
    }


def _read_secret(secret: Secret) -> Ed25519PrivateKey:
    where = f"Secret {secret.metadata.namespace}/{GRANT_KEY_SECRET}, field {SECRET_FIELD}"
    try:
        key = load_pem_private_key(secret.data[SECRET_FIELD], password=None)
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SigningKeyError(
            f"{where} does not hold a private key ({error!r}): delete the Secret, and Purser creates a new key"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError(
            f"{where} contains a key that is not Ed25519: delete the Secret, and Purser creates a new key"
        )
    return key


def _retired_keys(secret: Secret) -> tuple[tuple[Ed25519PublicKey, ...], str]:
    """The keys, and what is wrong with others."""
    return parse_public_keys(secret.data.get(RETIRED_FIELD, b"").decode(errors="replace"))


async def _publish(
    client: Client, namespace: str, published: ConfigMap | None, trusted: tuple[Ed25519PublicKey, ...]
) -> None:
    """Publish these keys and no others; nothing is written when that is so already.

    Raises `ConflictError`, `AlreadyExistsError` or `NotFoundError` after a concurrent write.
    """
    text = "".join(map(_pem, trusted))
    metadata = {"name": GRANT_KEY_CONFIGMAP, "namespace": namespace}
    if published is None:
        body = {"metadata": metadata, "data": {GRANT_KEY_CONFIGMAP_FIELD: text}}
        await client.create(CONFIG_MAPS, body)
    elif published.data.get(GRANT_KEY_CONFIGMAP_FIELD) != text:
        version = published.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version}, "data": {GRANT_KEY_CONFIGMAP_FIELD: text}}
        await client.patch_merge(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, patch, namespace)


async def _find_published(client: Client, namespace: str) -> ConfigMap | None:
    try:
        return await client.get(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, namespace)
    except NotFoundError:
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _pem(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
