"""Which documents a client has already, by its header If-None-Match (RFC 9110)."""

import re
from collections.abc import Iterable

_TAG = re.compile(r'(?:W/)?("[^"]*")')


def is_known(tag: str, headers: Iterable[str]) -> bool:
    """Whether a document's tag is among those of the header's lines: any is, by ``*``. Weak tags are as good as strong
    ones."""
    return any(line.strip() == "*" or tag in _TAG.findall(line) for line in headers)
