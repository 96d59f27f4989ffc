"""What is read of a value with mistakes in it, and what is said of each."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from purser.core.decoding import UnreadableError
from purser.core.salvaging import cap_sentences, salvage, shown


class Entry(msgspec.Struct, frozen=True):
    name: str
    size: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("bad is not a name: write a good one")


class Part(msgspec.Struct, frozen=True):
    word: Literal["a", "b"] = "a"
    numbers: tuple[int, ...] | None = None


class File(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...] = ()
    part: Part = Part()
    flag: bool | None = None


def read(value: Any) -> tuple[File, list[str]]:
    mistakes: list[str] = []
    return salvage(value, File, "the file", mistakes, whole=(Entry,), advice={(Entry, "name"): "its name"}), mistakes


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"flag": 1}, "the file: flag is 1, but must be true or false. The value is ignored"),
        ({"flag": "true"}, 'the file: flag is the string "true", but must be true or false. The value is ignored'),
        ({"part": []}, "the file: part is an empty list, but must be an object. The value is ignored"),
        ({"part": {"word": "c"}}, "the file: part.word is c, but must be a or b. The value is ignored"),
        (
            {"part": {"numbers": ["x"]}},
            "the file: part.numbers is a list, but must be a list in which each item is an integer. The value is",
        ),
        (
            {"entries": {}},
            "the file: entries is an empty object, but must be a list of objects. The value is ignored",
        ),
        ({"entries": [3]}, "the file: entries[0] is 3, but must be an object. The value is ignored"),
        ({"entries": [{}]}, "the file: entries[0] lacks name, which must be its name. The entry is ignored"),
        ({"entries": [{"name": 1}]}, "the file: entries[0].name is 1, but must be its name. The entry is ignored"),
        (
            {"entries": [{"name": "x", "size": 10}]},
            "the file: entries[0].size is 10, but must be an integer from 1 to 9. The entry is ignored",
        ),
        (
            {"entries": [{"name": "bad"}]},
            "the file: entries[0] cannot be read: bad is not a name: write a good one. The",
        ),
    ],
)
def test_a_mistake_costs_itself_alone(value: dict[str, Any], sentence: str) -> None:
    rest = {"entries": [{"name": "x", "size": 2}], "part": {"word": "b"}, "flag": True}
    with_rest = {**rest, **value}
    if isinstance(value.get("entries"), list):
        with_rest["entries"] = [*value["entries"], *rest["entries"]]  # type: ignore[misc]
    if isinstance(value.get("part"), dict):
        with_rest["part"] = {**rest["part"], **value["part"]}  # type: ignore[dict-item]
    found, (mistake,) = read(with_rest)
    assert mistake.startswith(sentence)
    assert ("entries" in value and not isinstance(value["entries"], list)) or found.entries == (Entry("x", 2),)
    assert "part" in value or found.part.word == "b"
    assert "flag" in value or found.flag is True


@pytest.mark.parametrize("value", [[], "x", None, 3])
def test_what_is_no_object_at_all(value: Any) -> None:
    with pytest.raises(UnreadableError, match=r"the file is .*, but must be an object"):
        read(value)


def test_values_in_sentences_are_short_and_printable() -> None:
    assert len(shown("x" * 1000)) == 60
    assert shown("a\nb\x1b") == "a b\N{REPLACEMENT CHARACTER}"
    assert (shown(None), shown(True), shown(""), shown([1])) == ("null", "true", 'the string ""', "a list")


def test_what_is_not_said_is_counted() -> None:
    assert cap_sentences(["a", "b"], 2, "f") == ("a", "b")
    assert cap_sentences(["a", "b", "c", "d"], 2, "f") == (
        "a",
        "f: fix these first to see 3 more messages",
    )
