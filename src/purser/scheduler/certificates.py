"""The scheduler's own CA and serving certificate: made, kept, renewed, and changed without a restart.

Two rules make a change of CA unnoticed. A new CA is announced long before it signs anything, so that all clients of the
bundle have it by then; and an old one stays in the bundle until it expires.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from purser import pki
from purser.pki import KeyPair, Validity

AUTHORITY_LIFETIME = timedelta(days=730)
RENEW_AUTHORITY_BEFORE = timedelta(days=180)
"""A CA is followed by a new one when it has less than this left: always more than a serving certificate lives."""

SERVING_LIFETIME = timedelta(days=90)
RENEW_SERVING_BEFORE = timedelta(days=30)

CA_SETTLING_TIME = timedelta(hours=24)
"""How long a new CA is announced before it signs: every replica and every registration has it by then."""

BACKDATE = SERVING_LIFETIME + timedelta(days=10)
"""How long before their creation certificates become valid: clocks differ, and jump. A certificate made while a clock
was ahead by up to a serving certificate's lifetime is still valid when the clock is set back, and for other
replicas."""


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
    if material is not None and _is_usable_for(material.serving, signer, names, now):
        serving = material.serving
    else:
        serving = make_serving(signer, names, now)
    return Material(authorities, serving)


def expires_at(pair: KeyPair) -> datetime:
    """When a certificate ends."""
    return pki.load(pair).not_valid_after_utc


def is_valid_at(pair: KeyPair, now: datetime) -> bool:
    """Whether a certificate holds at this moment: one that was made by a clock ahead of time has not begun."""
    certificate = pki.load(pair)
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def check(material: Material) -> None:
    """Raises ValueError for material that holds something else than certificates and their keys."""
    for pair in (*material.authorities, material.serving):
        if pki.load(pair).public_key() != pki.load_key(pair).public_key():
            raise ValueError("the certificate and the key do not match")


def make_authority(now: datetime) -> KeyPair:
    """A new CA (`purser.pki.make_ca`), which is used for serving certificates alone."""
    return pki.make_ca(f"purser-ca-{now:%Y%m%d%H%M%S}", Validity(now - BACKDATE, now + AUTHORITY_LIFETIME))


def make_serving(authority: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    """A new serving certificate by a CA."""
    return pki.issue_serving(authority, "purser-scheduler", names, Validity(now - BACKDATE, now + SERVING_LIFETIME))


def _renewed_authorities(authorities: Sequence[KeyPair], now: datetime) -> tuple[KeyPair, ...]:
    alive = tuple(authority for authority in authorities if is_valid_at(authority, now))
    if not alive or expires_at(alive[-1]) - now < RENEW_AUTHORITY_BEFORE:
        return (*alive, make_authority(now))
    return alive


def _signer(authorities: Sequence[KeyPair], now: datetime) -> KeyPair:
    settled = [each for each in authorities if now - pki.load(each).not_valid_before_utc >= BACKDATE + CA_SETTLING_TIME]
    return settled[-1] if settled else authorities[0]


def _is_usable_for(serving: KeyPair, signer: KeyPair, names: Sequence[str], now: datetime) -> bool:
    certificate = pki.load(serving)
    try:
        certificate.verify_directly_issued_by(pki.load(signer))
    except (ValueError, TypeError, InvalidSignature):  # another issuer, another kind of key, another key
        return False
    held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    fits = set(held) >= {pki.alternative(name) for name in names}
    return fits and is_valid_at(serving, now) and expires_at(serving) - now >= RENEW_SERVING_BEFORE
