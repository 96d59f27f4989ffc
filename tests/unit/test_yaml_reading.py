"""YAML that somebody else wrote: one error, whatever it is, and no more work than its limits allow."""

import pytest

from purser.core.decoding import UnreadableError
from purser.yaml_reading import read_all_yaml, read_yaml

BOMB = "a0: &a0 [x, x, x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        MERGES,
        "[" * 20_000,
        "- " * 5000 + "x",
        "a: &a [*a]",
        "*nobody",
        "{{}: 1}",
        "x: 2001-99-99",
        "x: !!binary é",
        "x: !!python/object:os.system y",
        "x: 0x" + "f" * 10 + "\n\t- y",
        "x: " + "9" * 5000,
        "x: 0x" + "f" * 5000,
        b"\xff\xfe\x00",
        "\x00",
        "a: 1\n---\nb: 2",
        "x: \ud800",
        "'" * 1001,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_makes_no_sense_is_one_short_error(text) -> None:
    with pytest.raises(UnreadableError, match=r"^the file cannot be read: ") as caught:
        read_yaml(text, "the file")
    assert len(str(caught.value)) < 400


def test_more_than_the_limit_is_not_looked_at() -> None:
    with pytest.raises(UnreadableError, match="more than the maximum of 9"):
        read_yaml("x: 1234567", "the file", max_bytes=9)


def test_what_makes_sense_is_read_with_its_aliases() -> None:
    assert read_yaml("a: &a {x: [1]}\nb: *a\nc: {<<: *a, y: 2}", "it") == {
        "a": {"x": [1]},
        "b": {"x": [1]},
        "c": {"x": [1], "y": 2},
    }
    assert read_all_yaml("a: 1\n---\n---\n{b: 2}", "it") == [{"a": 1}, None, {"b": 2}]
    assert read_yaml("", "it") is None


def test_by_entry_an_endless_number_is_its_text():
    """So that the entry that has it is named, and not the whole file refused."""
    assert read_yaml(f"[1, {10**30}, -{10**30}]", "x", big_integers_as_text=True) == [1, str(10**30), f"-{10**30}"]
