"""Certificates, token file and kubeconfigs of one real control plane."""

import base64
import datetime
import ipaddress
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


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
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("purser-ca", ())
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.files = _write(folder, "ca", certificate, self._key)

    def serving(self, name: str, dns_names: Sequence[str], addresses: Sequence[str]) -> PemFiles:
        """Issue a server certificate for names and IP addresses."""
        names = [x509.DNSName(each) for each in dns_names]
        ips = [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        return self._issue(name, (), ExtendedKeyUsageOID.SERVER_AUTH, [*names, *ips])

    def client(self, name: str, groups: Sequence[str] = ()) -> PemFiles:
        """Issue a client certificate; Kubernetes reads the user from CN and the groups from O."""
        return self._issue(name, groups, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _issue(
        self, name: str, groups: Sequence[str], usage: x509.ObjectIdentifier, alternatives: list[x509.GeneralName]
    ) -> PemFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name, groups), self._name, key)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return _write(self._folder, name, builder.sign(self._key, hashes.SHA256()), key)


def write_signing_keys(folder: Path) -> PemFiles:
    """Key pair of service account tokens; `cert` is the bare public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = PemFiles(folder / "service-account.pub", folder / "service-account.key")
    write_private(pair.key, _pem(key))
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


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=7))
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> PemFiles:
    pair = PemFiles(folder / f"{name}.crt", folder / f"{name}.key")
    pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    write_private(pair.key, _pem(key))
    return pair


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may ever read."""
    path.touch(mode=0o600)
    path.write_bytes(content)
