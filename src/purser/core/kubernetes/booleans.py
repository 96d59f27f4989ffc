"""Booleans in text, as Go reads them."""

_TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE_WORDS = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def parse_bool(text: str) -> bool | None:
    """What Go's strconv.ParseBool makes of it; None for any other text."""
    return True if text in _TRUE_WORDS else False if text in _FALSE_WORDS else None
