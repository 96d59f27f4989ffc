"""Bytes that a terminal sends, as keys: xterm's sequences, which all terminals of today send."""

from collections.abc import Iterator

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page-up", "page-down", "home", "end"
TAB, BACK_TAB, ENTER, ESCAPE, BACKSPACE, ERASE_LINE = "tab", "back-tab", "enter", "escape", "backspace", "erase-line"
REDRAW, INTERRUPT = "redraw", "interrupt"

_SEQUENCES = {
    b"[A": UP,
    b"[B": DOWN,
    b"OA": UP,
    b"OB": DOWN,
    b"[C": TAB,
    b"[D": BACK_TAB,
    b"OC": TAB,
    b"OD": BACK_TAB,
    b"[5~": PAGE_UP,
    b"[6~": PAGE_DOWN,
    b"[H": HOME,
    b"[F": END,
    b"OH": HOME,
    b"OF": END,
    b"[1~": HOME,
    b"[4~": END,
    b"[Z": BACK_TAB,
}
_CONTROLS = {
    0x03: INTERRUPT,
    0x06: PAGE_DOWN,
    0x02: PAGE_UP,
    0x08: BACKSPACE,
    0x09: TAB,
    0x0A: ENTER,
    0x0C: REDRAW,
    0x0D: ENTER,
    0x15: ERASE_LINE,
    0x7F: BACKSPACE,
}
_ESC = 0x1B
_MAX_SEQUENCE = 32
"""Bytes of an escape sequence; a longer one is none."""


class KeyReader:
    """Takes bytes as they come: a sequence may be torn, and a key of its own follows a lone Escape."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_waiting(self) -> bool:
        """Whether more may come of what looks like an Escape so far."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[str]:
        """Names of keys, or single characters."""
        data, self._rest = self._rest + data, b""
        at = 0
        while at < len(data):
            byte = data[at]
            if byte == _ESC:
                length = _sequence(data, at)
                if length is None:
                    self._rest = data[at:]
                    return
                if (key := _SEQUENCES.get(data[at + 1 : at + length])) is not None:
                    yield key
                elif length == 1:
                    yield ESCAPE
                at += length
            elif byte < 0x20 or byte == 0x7F:
                if byte in _CONTROLS:
                    yield _CONTROLS[byte]
                at += 1
            else:
                length = _utf8_length(byte)
                if at + length > len(data) and all(0x80 <= each < 0xC0 for each in data[at + 1 :]):
                    self._rest = data[at:]
                    return
                text = _character(data[at : at + length])
                if text and text.isprintable():
                    yield text
                at += length if text else 1

    def flush(self) -> Iterator[str]:
        """Nothing more came for a while: an Escape was the key itself."""
        data, self._rest = self._rest, b""
        if data[:1] == bytes([_ESC]):
            yield ESCAPE
            yield from self.feed(data[1:].lstrip(bytes([_ESC])))
            self._rest = b""


def _sequence(data: bytes, at: int) -> int | None:
    """Bytes of the sequence that starts there, of which 1 is a lone Escape; None: it has not ended."""
    rest = data[at + 1 : at + _MAX_SEQUENCE]
    if not rest:
        return None
    if rest[:1] == b"O":
        return None if len(rest) < 2 else 3
    if rest[:1] != b"[":
        return 1
    for place, byte in enumerate(rest[1:], 1):
        if 0x40 <= byte <= 0x7E:
            return place + 2
        if byte < 0x20:
            return place + 1
    return None if len(rest) < _MAX_SEQUENCE - 1 else _MAX_SEQUENCE


def _utf8_length(first: int) -> int:
    if not 0xC2 <= first <= 0xF4:
        return 1
    return 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def _character(data: bytes) -> str:
    """Empty: these bytes are none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""
