"""The scheduler's own CA and serving certificate: made, kept, renewed, and changed without a restart.

Two rules make a change of CA unnoticed. A new CA is announced long before it signs anything, so that whoever trusts the
bundle has it by then; and an old one stays in the bundle until it expires.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = timedelta(days=730)
AUTHORITY_RENEWAL = timedelta(days=180)
"""A CA is followed by a new one when it has less than this left: always more than a serving certificate lives."""

SERVING_LIFETIME = timedelta(days=90)
SERVING_RENEWAL = timedelta(days=30)

SETTLING = timedelta(hours=24)
"""How long a new CA is announced before it signs: every replica and every registration has it by then."""

BACKDATE = SERVING_LIFETIME + timedelta(days=10)
"""Certificates are valid from so long before now: clocks differ, and jump. What is made while a clock runs ahead by as
much as a serving certificate lives is still good when it is set back, and for replicas whose clocks are right."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Without the key: Structs end up in logs."""
        return "KeyPair(...)"


class Material(msgspec.Struct, frozen=True):
    """All that is kept: the CAs, oldest first, and the serving certificate."""

    authorities: tuple[KeyPair, ...]
    serving: KeyPair

    @property
    def ca_bundle(self) -> bytes:
        """What clients must trust, PEM."""
        return b"".join(authority.certificate for authority in self.authorities)


def renewed(material: Material | None, names: Sequence[str], now: datetime) -> Material:
    """The same material where all is well, else with what had to be made: the caller keeps it when it differs.

    Names are DNS names and IP addresses that the serving certificate is for.
    """
    authorities = _renewed_authorities(material.authorities if material else (), now)
    signer = _signer(authorities, now)
    if material is not None and _serves(material.serving, signer, names, now):
        serving = material.serving
    else:
        serving = make_serving(signer, names, now)
    return Material(authorities, serving)


def expires_at(pair: KeyPair) -> datetime:
    """When a certificate ends."""
    return _load(pair).not_valid_after_utc


def is_valid_at(pair: KeyPair, now: datetime) -> bool:
    """Whether a certificate holds at this moment: one that was made by a clock ahead of time has not begun."""
    certificate = _load(pair)
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def check(material: Material) -> None:
    """Raises ValueError for material that holds something else than certificates and their keys."""
    for pair in (*material.authorities, material.serving):
        if _load(pair).public_key() != _load_key(pair).public_key():
            raise ValueError("a certificate and its key do not belong together")


def make_authority(now: datetime) -> KeyPair:
    """A new CA that may sign serving certificates and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"purser-ca-{now:%Y%m%d%H%M%S}")])
    builder = (
        _builder(name, name, key, now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def make_serving(authority: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    """A new serving certificate by a CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, issuer_key = _load(authority), _load_key(authority)
    builder = (
        _builder(_serving_name(), issuer.subject, key, now, SERVING_LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _renewed_authorities(authorities: Sequence[KeyPair], now: datetime) -> tuple[KeyPair, ...]:
    alive = tuple(authority for authority in authorities if is_valid_at(authority, now))
    if not alive or expires_at(alive[-1]) - now < AUTHORITY_RENEWAL:
        return (*alive, make_authority(now))
    return alive


def _signer(authorities: Sequence[KeyPair], now: datetime) -> KeyPair:
    settled = [each for each in authorities if now - _load(each).not_valid_before_utc >= BACKDATE + SETTLING]
    return settled[-1] if settled else authorities[0]


def _serves(serving: KeyPair, signer: KeyPair, names: Sequence[str], now: datetime) -> bool:
    certificate = _load(serving)
    try:
        certificate.verify_directly_issued_by(_load(signer))
    except (ValueError, TypeError, InvalidSignature):  # another issuer, another kind of key, another key
        return False
    held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    fits = set(held) >= {_alternative(name) for name in names}
    return fits and is_valid_at(serving, now) and expires_at(serving) - now >= SERVING_RENEWAL


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - BACKDATE,
        not_valid_after=now + lifetime,
    )


def _serving_name() -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "purser-scheduler")])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


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
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(certificate.public_bytes(pem), private)


def _load(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def _load_key(pair: KeyPair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is no ECDSA key")
    return key
