"""Syntax of names in Kubernetes (k8s.io/apimachinery/pkg/util/validation)."""

import re

DNS_LABEL_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""An RFC 1123 label, of any length."""

SUBDOMAIN_PATTERN = rf"{DNS_LABEL_PATTERN}(\.{DNS_LABEL_PATTERN})*"
"""An RFC 1123 subdomain, of any length."""

QUALIFIED_PATTERN = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
"""What follows the prefix in the key of a label or the name of a resource, of any length."""

MAX_LABEL_CHARACTERS = 63
"""Of a label, of a label's value, and of what follows the prefix of a key."""

MAX_SUBDOMAIN_CHARACTERS = 253

_LABEL, _SUBDOMAIN, _QUALIFIED = map(re.compile, (DNS_LABEL_PATTERN, SUBDOMAIN_PATTERN, QUALIFIED_PATTERN))


def is_label(text: str) -> bool:
    """Whether it is an RFC 1123 label, as names of namespaces and containers are."""
    return len(text) <= MAX_LABEL_CHARACTERS and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether it is an RFC 1123 subdomain, as names of most objects and prefixes of keys are."""
    return len(text) <= MAX_SUBDOMAIN_CHARACTERS and _SUBDOMAIN.fullmatch(text) is not None


def is_unprefixed_name(text: str) -> bool:
    """Whether it may follow the prefix in the key of a label or the name of a resource."""
    return len(text) <= MAX_LABEL_CHARACTERS and _QUALIFIED.fullmatch(text) is not None
