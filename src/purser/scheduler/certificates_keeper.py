"""Where certificate material is kept, and the coroutine that keeps a serving SSL context up to date with it."""

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from purser.core.decoding import JsonReader
from purser.core.names import TLS_SECRET
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from purser.kube.resources import SECRETS
from purser.kube.retrying import MAX_WRITE_CONFLICTS, retry_until_accepted
from purser.pki import KeyPair
from purser.scheduler.certificates import Material, check, expires_at, is_valid_at, renewed

log = structlog.get_logger("purser.scheduler")

CERTIFICATE_REFRESH_PERIOD_S = 600.0
VALIDITY_CHECK_PERIOD_S = 15.0
"""Between two looks whether what is served still holds: a clock that jumped is noticed before the next refresh."""

GIVEN_FILES = ("tls.crt", "tls.key", "ca.crt")
"""Of a certificate from another issuer, as cert-manager names them."""

_KEY = "material.json"

_material_reader = JsonReader(Material, f"field {_KEY}", max_bytes=1024 * 1024)


class StoredMaterial(msgspec.Struct, frozen=True):
    """Material with the version that it was read at; None where there is nothing readable."""

    material: Material | None
    version: str = ""
    """Empty: nothing is there yet."""


class LostRaceError(Exception):
    """Somebody else wrote in between: read again."""


class CertificateStore(Protocol):
    """Keeps material so that all replicas have the same."""

    is_given: bool
    """Whether another tool issues and renews it: then it is only loaded."""

    async def load(self) -> StoredMaterial:
        """What is there."""
        ...

    async def save(self, material: Material, version: str) -> None:
        """Keep material in place of what was read at this version. Raises `LostRaceError` when that has changed."""
        ...


class MemoryStore:
    """Keeps material as long as the process lives: for tests, and where there is no webhook to register."""

    is_given = False

    def __init__(self) -> None:
        self._stored = StoredMaterial(None)

    async def load(self) -> StoredMaterial:
        """What is there."""
        return self._stored

    async def save(self, material: Material, version: str) -> None:
        """Keep it."""
        if version != self._stored.version:
            raise LostRaceError
        self._stored = StoredMaterial(material, str(int(version or "0") + 1))


def _no_password() -> str:
    # Else OpenSSL asks on the terminal, and everything waits.
    raise KubeError("tls.key is password-protected: store the key unencrypted")


class FolderStore:
    """Material of another issuer, such as cert-manager: a mounted Secret with ``tls.crt``, ``tls.key`` and
    ``ca.crt``."""

    is_given = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def load(self) -> StoredMaterial:
        """What the files hold. Raises `KubeError` for files that are no certificate with its key and its CA."""
        # Of a mounted Secret kubelet changes all files at once, by one link: those of one version are read.
        versions = self._folder / "..data"
        folder = versions.resolve() if versions.exists() else self._folder
        paths = [folder / name for name in GIVEN_FILES]
        try:
            chain, key, bundle = (path.read_bytes().rstrip() + b"\n" for path in paths)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(paths[0], paths[1], password=_no_password)
            context.load_verify_locations(paths[2])
        except OSError as error:  # which SSLError is
            raise KubeError(f"cannot load {', '.join(GIVEN_FILES)} from {self._folder}: {error}") from error
        return StoredMaterial(Material((KeyPair(bundle, b""),), KeyPair(chain, key)))

    async def save(self, material: Material, version: str) -> None:
        """Never asked for."""
        raise KubeError(f"{self._folder} is read-only for Purser")


class SecretStore:
    """Keeps material in a Secret."""

    is_given = False

    def __init__(self, client: Client, namespace: str, name: str = TLS_SECRET) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def load(self) -> StoredMaterial:
        """What the Secret holds. Raises `KubeError`."""
        try:
            secret = await self._client.get(SECRETS, self._name, self._namespace)
        except NotFoundError:
            return StoredMaterial(None)
        return StoredMaterial(self._decode(secret.data.get(_KEY, b"")), secret.metadata.resource_version)

    async def save(self, material: Material, version: str) -> None:
        """Create the Secret, or write it over. Raises `KubeError`."""
        data = {_KEY: base64.b64encode(msgspec.json.encode(material)).decode()}
        try:
            if version:
                patch = {"metadata": {"resourceVersion": version}, "data": data}
                await self._client.patch_merge(SECRETS, self._name, patch, self._namespace)
            else:
                body = {"metadata": {"name": self._name, "namespace": self._namespace}, "type": "Opaque", "data": data}
                await self._client.create(SECRETS, body, self._namespace)
        except (AlreadyExistsError, ConflictError) as error:
            raise LostRaceError from error

    def _decode(self, data: bytes) -> Material | None:
        try:
            material = _material_reader.read(data)
            check(material)
            return material
        except Exception as error:  # any error of x509: without certificates no client is served
            where = f"{self._namespace}/{self._name}"
            log.warning("The certificates Secret is invalid; issuing new certificates", secret=where, error=str(error))
            return None


class CertificateKeeper:
    """Keeps contexts serving a valid certificate, and ``ca_bundle`` what clients must trust."""

    def __init__(self, store: CertificateStore, names: Sequence[str], clock: Clock | None = None) -> None:
        self._contexts: list[ssl.SSLContext] = []
        self._store = store
        self._names = tuple(names)
        self._clock = clock or SystemClock()
        self._material: Material | None = None
        self._listeners: list[Callable[[], None]] = []
        self._served = asyncio.Event()

    @property
    def ca_bundle(self) -> bytes:
        """PEM; empty before the first `refresh`."""
        return self._material.ca_bundle if self._material else b""

    @property
    def is_valid(self) -> bool:
        """Whether there is a certificate, and it holds now: begun, and not expired."""
        return self._material is not None and is_valid_at(self._material.serving, self._clock.now())

    async def served(self) -> None:
        """Return once there is a certificate to serve."""
        await self._served.wait()

    def new_context(self) -> ssl.SSLContext:
        """One that serves the certificate from now on, or from when there is one; for one server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.num_tickets = 0  # Go resumes a session where it has a cache for them; clients of Kubernetes have none
        if self._material is not None:
            _load_into(context, self._material)
        self._contexts.append(context)
        return context

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have a plain function called whenever the certificate or the bundle has changed."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Load what is kept, renew what is due, and serve it from now on. Raises `KubeError`."""
        for _ in range(MAX_WRITE_CONFLICTS):
            stored = await self._store.load()
            if self._store.is_given and stored.material is not None:
                self._take(stored.material)
                return
            material = renewed(stored.material, self._names, self._clock.now())
            try:
                if material != stored.material:
                    await self._store.save(material, stored.version)
            except LostRaceError:
                continue
            self._take(material)
            return
        raise KubeError(
            f"another client changed the certificates {MAX_WRITE_CONFLICTS} times while Purser renewed them"
        )

    async def run(self) -> None:
        """Refresh until cancelled; what fails is logged and tried again."""
        while True:
            await retry_until_accepted(self.refresh, "Failed to refresh the certificates", self._clock)
            await self._sleep_until_refresh()

    async def _sleep_until_refresh(self) -> None:
        for _ in range(int(CERTIFICATE_REFRESH_PERIOD_S / VALIDITY_CHECK_PERIOD_S)):
            await self._clock.sleep(VALIDITY_CHECK_PERIOD_S)
            if not self.is_valid:
                log.warning("The certificate has expired or is not valid yet; refreshing it")
                return

    def _take(self, material: Material) -> None:
        if material == self._material:
            return
        for context in self._contexts:
            _load_into(context, material)
        self._material = material
        self._served.set()
        log.info("Serving a certificate", until=expires_at(material.serving).isoformat())
        for listener in self._listeners:
            listener()


def _load_into(context: ssl.SSLContext, material: Material) -> None:
    # The ssl module reads files only; new connections use what was loaded last.
    with tempfile.TemporaryDirectory(prefix="purser-tls-") as folder:
        path = Path(folder, "serving.pem")
        path.touch(mode=0o600)
        path.write_bytes(material.serving.certificate + material.serving.key)
        context.load_cert_chain(path)
