"""The public keys that grants are verified with."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from purser.core.grant.signing import parse_public_keys


def pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def test_keys_are_read_one_after_the_other_and_bad_ones_are_named():
    one, two = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
    keys, problems = parse_public_keys(
        "noise\n" + pem(one) + broken + pem(generate_private_key(SECP256R1())) + pem(two)
    )
    assert [key.public_bytes_raw() for key in keys] == [key.public_key().public_bytes_raw() for key in (one, two)]
    assert len(problems) == 2
    assert "not an Ed25519 key" in problems[1]


@pytest.mark.parametrize("text", ["", "\n", "nonsense"])
def test_text_without_keys_is_no_keys(text):
    assert parse_public_keys(text) == ((), ())
