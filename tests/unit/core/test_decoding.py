"""The decoder of what others write: one error whatever the text, the same limits whoever asks."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text

from purser.core.decoding import (
    MAX_DEPTH,
    MAX_MESSAGE,
    JsonReader,
    UnreadableError,
    brief,
    check_depth,
    convert_value,
    from_base64,
    text_of,
)


class _Told(msgspec.Struct):
    number: int = 0
    share: float = 0.0
    word: str = ""
    words: tuple[str, ...] = ()


READER = JsonReader(_Told, "annotation example", max_bytes=1 << 20)
ANY: JsonReader[Any] = JsonReader(Any, "the body", max_bytes=1 << 20)
DEEP = "[" * 20_000 + "]" * 20_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        DEEP,
        f'{{"skipped":{DEEP}}}',
        f'{{"words":{DEEP}}}',
        '{"share":1e400}',
        '{"number":' + "9" * 5000 + "}",
        '{"word":"\ud800"}',
        '{"word":"\\ud800"}',
        b'{"word":"\xff"}',
        b"\xff\xfe",
        b"\x00",
        '{"number":1e400}',
    ],
    ids=repr,
)
def test_every_failure_is_one_error_that_names_the_text(text: str | bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^annotation example ") as caught:
        READER.read(text)
    assert len(str(caught.value)) < MAX_MESSAGE + 60


def test_more_bytes_than_allowed_are_not_looked_at() -> None:
    with pytest.raises(UnreadableError, match=r"^it has 7 bytes, more than the maximum of 6$"):
        JsonReader(Any, "it", max_bytes=6).read('"ääx"')


def test_a_message_quotes_a_long_or_unprintable_text_in_part_only() -> None:
    said = brief(ValueError("a\nb" + "x" * 100_000))
    assert len(said) == MAX_MESSAGE
    assert said.isprintable()


@pytest.mark.parametrize("depth", [1, MAX_DEPTH, MAX_DEPTH + 1, 1000])
@pytest.mark.parametrize("stack", [0, 500, 700])
def test_the_limit_on_depth_is_the_same_wherever_one_stands_on_the_stack(depth: int, stack: int) -> None:
    if stack:
        test_the_limit_on_depth_is_the_same_wherever_one_stands_on_the_stack(depth, stack - 1)
    else:
        _expect(depth)


def _expect(depth: int) -> None:
    text = '{"skipped":' * depth + "0" + "}" * depth
    if depth <= MAX_DEPTH:
        assert READER.read(text) == _Told()
        return
    with pytest.raises(UnreadableError, match=f"deeper than {MAX_DEPTH} levels"):
        READER.read(text)


def test_wide_is_not_deep() -> None:
    assert len(ANY.read(json.dumps([{"a": ["]", "[", '\\"[', "\\"]}] * 1000))) == 1000


@given(st.recursive(st.text('[]{}"\\a'), lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}"\\'), inner)))
def test_depth_is_counted_as_json_means_it(value: Any) -> None:
    text, depth = json.dumps(value).encode(), _depth(value)
    check_depth(text, "it", depth)
    if depth:
        with pytest.raises(UnreadableError):
            check_depth(text, "it", depth - 1)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


@given(st.binary(max_size=200) | any_text(max_size=200))
def test_no_text_raises_anything_else(text: str | bytes) -> None:
    for reader in (READER, ANY):
        with suppress(UnreadableError):
            reader.read(text)


@pytest.mark.parametrize("text", ["é", "a", "\ud800", b"\xff", "a b=", "====", "A" * 65])
def test_what_is_no_base64(text: str | bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^the signature "):
        from_base64(text, "the signature", max_bytes=64)


def test_what_is_no_text() -> None:
    with pytest.raises(UnreadableError, match=r"^the file "):
        text_of(b"\xff", "the file", max_bytes=9)


def test_plain_values_of_another_type() -> None:
    with pytest.raises(UnreadableError, match=r"^the policy cannot be read: Expected `int`"):
        convert_value({"number": "x" * 9}, _Told, "the policy")
