"""Bytes of a terminal as keys."""

import random

import pytest

from purser.top import keys
from purser.top.keys import KeyReader


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"jk", ["j", "k"]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", [keys.UP, keys.DOWN, keys.UP, keys.DOWN]),
        (b"\x1b[5~\x1b[6~", [keys.PAGE_UP, keys.PAGE_DOWN]),
        (b"\t\x1b[Z\r\n", [keys.TAB, keys.BACK_TAB, keys.ENTER, keys.ENTER]),
        (b"\x03\x7f\x15", [keys.INTERRUPT, keys.BACKSPACE, keys.ERASE_LINE]),
        ("é界".encode(), ["é", "界"]),
        (b"\x1b[200~x\x1b[<0;1;1M", ["x"]),
        (b"\x1bx", [keys.ESCAPE, "x"]),
        (b"\x00\x01\xff\x80\xe2q", ["q"]),
    ],
)
def test_each_key_is_found_be_it_torn_or_not(data: bytes, found: list[str]) -> None:
    whole = KeyReader()
    assert [*whole.feed(data), *whole.flush()] == found
    torn = KeyReader()
    pieces = [key for byte in data for key in torn.feed(bytes([byte]))]
    assert [*pieces, *torn.flush()] == found


def test_a_lone_escape_is_the_key_once_nothing_follows() -> None:
    reader = KeyReader()
    assert list(reader.feed(b"\x1b")) == []
    assert reader.is_waiting
    assert list(reader.flush()) == [keys.ESCAPE]
    assert not reader.is_waiting


def test_any_bytes_are_taken_and_not_kept() -> None:
    dice = random.Random(5)
    reader = KeyReader()
    for _ in range(3000):
        data = bytes(dice.choice((0x1B, 0x5B, 0x4F, 0xE2, 0x41, 0x7E, dice.randrange(256))) for _ in range(9))
        for key in reader.feed(data):
            assert len(key) > 1 or key.isprintable()
        assert len(reader._rest) < 64
    list(reader.flush())
    assert list(reader.feed(b"q")) == ["q"]
