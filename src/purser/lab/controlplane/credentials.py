"""Certificates, token file and kubeconfigs of one real control plane."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from purser import pki
from purser.pki import KeyPair, Validity


@dataclass(frozen=True)
class TokenUser:
    """Somebody the API server knows by a static token."""

    token: str
    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class PemFiles:
    """A certificate and its key as PEM files."""

    cert: Path
    key: Path


class CertificateAuthority:
    """A certificate authority that lives as long as the cluster."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        self._folder = folder
        self._validity = Validity(now - timedelta(hours=1), now + timedelta(days=7))
        self._pair = pki.make_ca("purser-ca", self._validity)
        self.files = _write(folder, "ca", self._pair)

    def serving(self, name: str, dns_names: Sequence[str], addresses: Sequence[str]) -> PemFiles:
        """Issue a server certificate for names and IP addresses."""
        pair = pki.issue_serving(self._pair, name, [*dns_names, *addresses], self._validity)
        return _write(self._folder, name, pair)

    def client(self, name: str, groups: Sequence[str] = ()) -> PemFiles:
        """Issue a client certificate of a user and its groups."""
        return _write(self._folder, name, pki.issue_client(self._pair, name, groups, self._validity))


def write_signing_keys(folder: Path) -> PemFiles:
    """Key pair of service account tokens; `cert` is the bare public key."""
    key = pki.new_key()
    pair = PemFiles(folder / "service-account.pub", folder / "service-account.key")
    write_private(pair.key, pki.key_pem(key))
    pair.cert.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return pair


def write_token_file(path: Path, users: Iterable[TokenUser]) -> None:
    """The CSV of --token-auth-file: token, user, uid, groups. The API server reads it only when it starts."""
    lines = [f'{user.token},{user.name},{user.name},"{",".join(user.groups)}"' for user in users]
    write_private(path, "\n".join([*lines, ""]).encode())


def write_kubeconfig(path: Path, server: str, ca_file: Path, token: str) -> Path:
    """A kubeconfig with one context and everything inline, so that it can be copied anywhere."""
    ca_data = base64.b64encode(ca_file.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority-data": ca_data}}],
        "users": [{"name": "lab", "user": {"token": token}}],
    }
    write_private(path, json.dumps(config, indent=1).encode())
    return path


def _write(folder: Path, name: str, pair: KeyPair) -> PemFiles:
    files = PemFiles(folder / f"{name}.crt", folder / f"{name}.key")
    files.cert.write_bytes(pair.certificate)
    write_private(files.key, pair.key)
    return files


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may ever read."""
    path.touch(mode=0o600)
    path.write_bytes(content)
