"""Of many the first are named, and the others counted."""

import pytest

from purser.operator.wording import counted, some


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("", ""),
        ("a", "a"),
        ("abc", "a, b, c"),
        ("abcd", "a, b, c (and 1 more node)"),
        ("abcde", "a, b, c (and 2 more nodes)"),
    ],
)
def test_the_first_are_named(told: str, said: str) -> None:
    assert some(tuple(told), "node") == said


def test_sentences_may_be_named_alone_or_set_apart() -> None:
    assert some(("a fails", "b fails"), named=1) == "a fails (and 1 more)"
    assert some(("a fails", "b fails"), between="; ") == "a fails; b fails"


@pytest.mark.parametrize(("number", "said"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")])
def test_one_is_no_plural(number: int, said: str) -> None:
    assert counted(number, "pod") == said
