"""A CA and what it signs, made for one test run."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for servers and clients."""

    def __init__(self, name: str = "test CA"):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, ip: str | None = None) -> tuple[bytes, bytes]:
        """PEMs of a certificate for a DNS name (and address), and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        alternatives = [x509.DNSName(name), *([x509.IPAddress(ip_address(ip))] if ip else [])]
        builder = _builder(subject, self._name, key)
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return pem, _key_pem(key)

    def server_context(self, folder: Path, name: str, *, ip: str | None, ask_clients: bool = False) -> ssl.SSLContext:
        """What a server under that name listens with."""
        certificate, key = self.issue(name, ip=ip)
        (folder / "server.pem").write_bytes(key + certificate)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "server.pem")
        if ask_clients:
            context.load_verify_locations(cadata=self.pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
