"""What a grant's signature is worth, and the public keys that it is verified with."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from purser.core.grant.signing import GrantError, parse_public_keys, sign, verify
from purser.core.model import Grant
from purser.core.names import GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION


def pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def test_keys_are_read_one_after_the_other_and_bad_ones_are_named():
    one, two = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
    keys, problem = parse_public_keys("noise\n" + pem(one) + broken + pem(generate_private_key(SECP256R1())) + pem(two))
    assert [key.public_bytes_raw() for key in keys] == [key.public_key().public_bytes_raw() for key in (one, two)]
    assert problem.startswith("PEM block 2: ")
    assert problem.endswith("; PEM block 3: not an Ed25519 key")


@pytest.mark.parametrize("text", ["", "\n", "nonsense"])
def test_text_without_keys_is_no_keys(text):
    assert parse_public_keys(text) == ((), "")


@pytest.mark.parametrize("block", ["AAAA", "x" * 5000, ""], ids=["short", "long", "empty"])
def test_of_thousands_of_bad_keys_the_first_are_named_and_the_others_are_counted(block):
    key = Ed25519PrivateKey.generate()
    bad = f"-----BEGIN PUBLIC KEY-----\n{block}\n-----END PUBLIC KEY-----\n"
    keys, problem = parse_public_keys(bad * 2000 + pem(key))
    assert len(keys) == 1
    assert problem.startswith("PEM block 1: ")
    assert problem.endswith(" (and 1997 more blocks)")
    assert len(problem) < 2000


KEY = Ed25519PrivateKey.generate()
GRANT = Grant("uid", "team-a", "p", "n1", ())
SIGNED = sign(GRANT, KEY)
CHANGED = SIGNED[GRANT_ANNOTATION].replace("team-a", "team-b")


def test_a_grant_counts_for_its_pod_on_its_node():
    assert verify(SIGNED, pod_uid="uid", node="n1", keys=[KEY.public_key()]) == GRANT
    others = Ed25519PrivateKey.generate().public_key()
    assert verify(SIGNED, pod_uid="uid", node="n1", keys=[others, KEY.public_key()]) == GRANT
    assert verify({}, pod_uid="uid", node="n1", keys=[KEY.public_key()]) is None


@pytest.mark.parametrize(
    ("annotations", "pod_uid", "node", "keys"),
    [
        pytest.param(SIGNED, "another", "n1", [KEY], id="copied to another pod"),
        pytest.param(SIGNED, "uid", "n2", [KEY], id="used on another node"),
        pytest.param(sign(GRANT, Ed25519PrivateKey.generate()), "uid", "n1", [KEY], id="signed by another key"),
        pytest.param(SIGNED, "uid", "n1", [], id="signed by a revoked key"),
        pytest.param({**SIGNED, GRANT_ANNOTATION: CHANGED}, "uid", "n1", [KEY], id="changed after it was signed"),
        pytest.param({GRANT_ANNOTATION: SIGNED[GRANT_ANNOTATION]}, "uid", "n1", [KEY], id="unsigned"),
        pytest.param({**SIGNED, GRANT_SIGNATURE_ANNOTATION: "é"}, "uid", "n1", [KEY], id="signature not base64"),
    ],
)
def test_no_other_grant_counts(annotations, pod_uid, node, keys):
    with pytest.raises(GrantError):
        verify(annotations, pod_uid=pod_uid, node=node, keys=[key.public_key() for key in keys])
