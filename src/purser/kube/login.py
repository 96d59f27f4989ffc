"""How Purser proves who it is: bearer tokens and client certificates, from files, literals or a plugin."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import ConfigError

CREDENTIAL_REREAD_PERIOD_S = 60.0
"""How long a file's content is believed: service account tokens and kubelet's certificates rotate under our feet.

client-go reads token files again after a minute, too.
"""

MAX_CREDENTIAL_BYTES = 1024 * 1024
"""Of a file with a token, certificate or key, and of what a plugin prints."""

_PLUGIN_TIMEOUT_S = 60.0
_EXPIRES_EARLY = timedelta(seconds=30)
_ZERO_TIME = datetime.min.replace(tzinfo=UTC)
"""Go's zero time, which plugins print where they set none; client-go takes it for none, too."""


@dataclass(frozen=True, slots=True)
class Login:
    """What goes along with one request."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    """PEM of the client certificate and its chain; empty without one."""
    key: bytes = field(default=b"", repr=False)


class LoginSource(Protocol):
    """Where logins come from."""

    async def login(self, rejected: Login | None = None) -> Login:
        """The login of now; a fresh one, if there is any, once the server has rejected the last one.

        Raises `ConfigError` when there is none to be had.
        """
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """A value that stands in the configuration itself, or in a file that may change."""

    where: str
    """For error messages: the file and field that it comes from."""
    data: bytes = b""
    path: Path | None = None

    def read(self) -> bytes:
        """The value now. Raises `ConfigError`."""
        if self.path is None:
            return self.data
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_CREDENTIAL_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{self.where}: cannot read {self.path}: {error.strerror}") from error
        if len(data) > MAX_CREDENTIAL_BYTES:
            raise ConfigError(f"{self.where}: {self.path} is larger than {MAX_CREDENTIAL_BYTES} bytes")
        return data


NOTHING = Source("nowhere")


class StoredLogin:
    """A token or a certificate, or both, as the configuration names them."""

    def __init__(
        self,
        token: Source = NOTHING,
        certificate: Source = NOTHING,
        key: Source = NOTHING,
        clock: Clock | None = None,
    ):
        self._sources = token, certificate, key
        self._clock = clock or SystemClock()
        self._current: Login | None = None
        self._read_at = 0.0

    async def login(self, rejected: Login | None = None) -> Login:
        """The login. Files are read again after `CREDENTIAL_REREAD_PERIOD_S`, and when the last login was rejected."""
        now = self._clock.monotonic()
        if self._current is None or self._current == rejected or now - self._read_at >= CREDENTIAL_REREAD_PERIOD_S:
            token, certificate, key = (source.read() for source in self._sources)
            self._current = Login(parse_token(self._sources[0].where, token), certificate, key)
            self._read_at = now
        return self._current


def parse_token(where: str, token: bytes) -> str:
    """A bearer token fit for a header. Raises `ConfigError`, without the token."""
    text = token.decode("ascii", errors="replace").strip()
    if any(not "!" <= character <= "~" for character in text):
        raise ConfigError(
            f"{where}: the token contains whitespace, control or non-ASCII characters: check that it is a bearer token"
        )
    return text


class _CredentialStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _CredentialStatus


_credential_reader = JsonReader(_ExecCredential, "its output", max_bytes=MAX_CREDENTIAL_BYTES)


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """An exec plugin of a kubeconfig: a command that prints an ExecCredential."""

    where: str
    """For error messages: the file and field that it comes from."""
    api_version: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cluster: Mapping[str, Any] | None = None
    """The cluster information for the plugin; None when it does not ask for it."""


class PluginLogin:
    """Runs an exec plugin, and again when its login expired or was rejected."""

    def __init__(self, command: PluginCommand, clock: Clock | None = None):
        self._command = command
        self._clock = clock or SystemClock()
        self._current: Login | None = None
        self._expires: datetime | None = None
        self._running = asyncio.Lock()

    async def login(self, rejected: Login | None = None) -> Login:
        """The plugin's login. Raises `ConfigError` when it fails."""
        async with self._running:
            if self._current is None or self._current == rejected or self._is_expired():
                status = parse_exec_credential(self._command.where, await run_plugin(self._command))
                self._expires = status.expiration_timestamp
                self._current = Login(
                    parse_token(self._command.where, status.token.encode()),
                    status.client_certificate_data.encode(),
                    status.client_key_data.encode(),
                )
            return self._current

    def _is_expired(self) -> bool:
        return self._expires is not None and self._clock.now() + _EXPIRES_EARLY >= self._expires


def parse_exec_credential(where: str, output: bytes) -> _CredentialStatus:
    """What a plugin printed. Raises `ConfigError`, without the output: it holds secrets."""
    try:
        status = _credential_reader.read(output).status
    except UnreadableError as error:
        raise ConfigError(f"{where}: the plugin did not print an ExecCredential: {error}") from error
    if not status.token and not status.client_certificate_data:
        raise ConfigError(f"{where}: the plugin returned neither status.token nor status.clientCertificateData")
    if status.expiration_timestamp is not None and status.expiration_timestamp.tzinfo is None:
        raise ConfigError(f"{where}: the plugin's status.expirationTimestamp has no time zone")
    if status.expiration_timestamp == _ZERO_TIME:
        status.expiration_timestamp = None
    return status


async def run_plugin(command: PluginCommand) -> bytes:
    """The plugin's standard output. Raises `ConfigError` with the end of its standard error."""
    spec = {"interactive": False} | ({"cluster": dict(command.cluster)} if command.cluster else {})
    info = {"apiVersion": command.api_version, "kind": "ExecCredential", "spec": spec}
    environment = os.environ | dict(command.environment) | {"KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise ConfigError(f"{command.where}: cannot run {command.argv[0]!r}: {error.strerror}") from error
    return await _read_output(process, command)


async def _read_output(process: asyncio.subprocess.Process, command: PluginCommand) -> bytes:
    try:
        async with asyncio.timeout(_PLUGIN_TIMEOUT_S):
            streams = process.stdout, process.stderr
            output, complaints = await asyncio.gather(*(_read_start(each, process) for each in streams))
            await process.wait()
    except TimeoutError:
        raise ConfigError(f"{command.where}: {command.argv[0]!r} ran longer than {_PLUGIN_TIMEOUT_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    if len(output) > MAX_CREDENTIAL_BYTES:
        raise ConfigError(f"{command.where}: {command.argv[0]!r} printed more than {MAX_CREDENTIAL_BYTES} bytes")
    if process.returncode:
        tail = complaints.decode(errors="replace").strip()[-500:]
        raise ConfigError(f"{command.where}: {command.argv[0]!r} exited with status {process.returncode}: {tail}")
    return output


async def _read_start(stream: asyncio.StreamReader | None, process: asyncio.subprocess.Process) -> bytes:
    """All that is printed, or the start of it, more than is read of any plugin, which is then killed. The rest is read
    as well: until its pipes are empty, a process is not known to have ended."""
    found = bytearray()
    while stream and (more := await stream.read(64 * 1024)):
        if len(found) <= MAX_CREDENTIAL_BYTES:
            found += more
        elif process.returncode is None:
            process.kill()
    return bytes(found)
