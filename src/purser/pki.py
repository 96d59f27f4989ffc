"""X.509 as Purser uses it: ECDSA P-256, a CA that signs for servers and clients, everything as PEM.

Callers decide on trust, validity and renewal.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Without the key: Structs end up in logs."""
        return "KeyPair(...)"


class Validity(NamedTuple):
    """From when until when a certificate holds."""

    since: datetime
    until: datetime


def make_ca(common_name: str, validity: Validity) -> KeyPair:
    """A new CA that may sign certificates of servers and clients, and no further CA."""
    key = new_key()
    subject = _name(common_name)
    builder = (
        _builder(subject, subject, key, validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue_serving(ca: KeyPair, common_name: str, names: Sequence[str], validity: Validity) -> KeyPair:
    """A new certificate of a server under these DNS names and IP addresses."""
    alternatives = x509.SubjectAlternativeName([alternative(name) for name in names])
    return _issue(ca, _name(common_name), validity, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)


def issue_client(ca: KeyPair, common_name: str, organizations: Sequence[str], validity: Validity) -> KeyPair:
    """A new certificate of a client: Kubernetes reads the user from the common name, the groups from organizations."""
    return _issue(ca, _name(common_name, organizations), validity, ExtendedKeyUsageOID.CLIENT_AUTH)


def load(pair: KeyPair) -> x509.Certificate:
    """The certificate. Raises ValueError."""
    return x509.load_pem_x509_certificate(pair.certificate)


def load_key(pair: KeyPair) -> ec.EllipticCurvePrivateKey:
    """The private key. Raises ValueError, also for one that is not an ECDSA key."""
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not an ECDSA key")
    return key


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM, PKCS #8."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def alternative(name: str) -> x509.GeneralName:
    """A DNS name or an IP address as certificates have it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _issue(
    ca: KeyPair,
    subject: x509.Name,
    validity: Validity,
    usage: x509.ObjectIdentifier,
    alternatives: x509.SubjectAlternativeName | None = None,
) -> KeyPair:
    key = new_key()
    issuer, issuer_key = load(ca), load_key(ca)
    builder = (
        _builder(subject, issuer.subject, key, validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, validity: Validity
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=validity.since,
        not_valid_after=validity.until,
    )


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))
