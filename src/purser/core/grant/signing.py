"""Grant annotations and their signatures.

Users can write annotations on their own pods, so a grant counts only with a signature of Purser's scheduler over the
exact bytes of the annotation. Ed25519: agents hold only the public key, so that a taken node cannot forge grants for
others.
"""

import base64
from collections.abc import Iterable, Mapping

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from purser.core.decoding import JsonReader, UnreadableError, as_bytes, brief, from_base64
from purser.core.model import Grant
from purser.core.names import GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION
from purser.core.wording import some

MAX_GRANT_BYTES = 64 * 1024
_grant_reader = JsonReader(Grant, f"annotation {GRANT_ANNOTATION}", max_bytes=MAX_GRANT_BYTES)
_MAX_SIGNATURE = 128
"""Characters; the 64 bytes of a signature are 88."""

UNKNOWN_KEY = "the grant is not signed with any of the scheduler's keys"
"""What is wrong where the reader may not have heard of the key yet."""

_PEM_BEGIN, _PEM_END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_MAX_PEM = 4096
"""Characters of one block; those of an Ed25519 key are 60."""

_ED25519 = bytes.fromhex("302a300506032b6570032100")
"""Before the 32 bytes of every Ed25519 public key in DER: RFC 8410, section 4. `cryptography`'s own reader of PEM knows
all other kinds of keys, for a MiB of an agent's memory."""


class GrantError(ValueError):
    """A grant annotation that cannot be trusted; the message says why."""


def sign(grant: Grant, key: Ed25519PrivateKey) -> dict[str, str]:
    """The annotations that carry a grant."""
    text = msgspec.json.encode(grant)
    return {
        GRANT_ANNOTATION: text.decode(),
        GRANT_SIGNATURE_ANNOTATION: base64.b64encode(key.sign(text)).decode(),
    }


def read(annotations: Mapping[str, str]) -> Grant | None:
    """The grant that annotations carry, None when they carry none. Its signature is not checked.

    Raises `GrantError` when the annotation is there but no grant.
    """
    text = annotations.get(GRANT_ANNOTATION)
    if text is None:
        return None
    try:
        return _grant_reader.read(text)
    except UnreadableError as error:
        raise GrantError(str(error)) from error


def verify(
    annotations: Mapping[str, str], *, pod_uid: str, node: str, keys: Iterable[Ed25519PublicKey] | None
) -> Grant | None:
    """The grant that annotations carry, once its signature, pod and node are found right; None when they carry none.
    ``keys`` None: its signature is not checked.

    Raises `GrantError` for a grant that is malformed, unsigned, signed by another key, or made for another pod or node.
    """
    grant = read(annotations)
    if grant is None:
        return None
    if (grant.pod_uid, grant.node) != (pod_uid, node):
        raise GrantError(
            brief(f"the grant is for pod {grant.pod_uid} on node {grant.node}, not for pod {pod_uid} on node {node}")
        )
    if keys is None:
        return grant
    signature = _signature(annotations)
    text = as_bytes(annotations[GRANT_ANNOTATION], GRANT_ANNOTATION)
    if not any(_is_signed_by(key, signature, text) for key in keys):
        raise GrantError(UNKNOWN_KEY)
    return grant


def parse_public_keys(text: str) -> tuple[tuple[Ed25519PublicKey, ...], str]:
    """The public keys in some PEM text, and what is wrong with the blocks that are none, in one sentence of bounded
    length; empty: nothing is."""
    keys, problems = [], []
    for number, block in enumerate(text.split(_PEM_END)[:-1], start=1):
        try:
            keys.append(_public_key(block))
        except ValueError as error:
            problems.append(f"PEM block {number}: {brief(error)}")
    return tuple(keys), some(problems, "block", between="; ")


def _public_key(block: str) -> Ed25519PublicKey:
    """The key in a block of PEM without its end. Raises ValueError."""
    _, begin, encoded = block.partition(_PEM_BEGIN)
    if not begin:
        raise ValueError("not a public key: its BEGIN line is missing")
    der = from_base64("".join(encoded.split()), "the public key", max_bytes=_MAX_PEM)
    if not der.startswith(_ED25519):
        raise ValueError("not an Ed25519 key")
    return Ed25519PublicKey.from_public_bytes(der.removeprefix(_ED25519))


def _signature(annotations: Mapping[str, str]) -> bytes:
    try:
        return from_base64(
            annotations[GRANT_SIGNATURE_ANNOTATION],
            f"annotation {GRANT_SIGNATURE_ANNOTATION}",
            max_bytes=_MAX_SIGNATURE,
        )
    except KeyError:
        raise GrantError("the grant has no signature") from None
    except UnreadableError as error:
        raise GrantError(str(error)) from error


def _is_signed_by(key: Ed25519PublicKey, signature: bytes, text: bytes) -> bool:
    try:
        key.verify(signature, text)
    except InvalidSignature:
        return False
    return True
