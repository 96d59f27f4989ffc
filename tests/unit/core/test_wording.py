"""Of many the first are named, and the others counted."""

import pytest

from purser.core.wording import counted, natural_sort_key, pods_text, portion, some


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


@pytest.mark.parametrize(
    ("part", "total", "said"),
    [(0, 1, "0 of 1 node is"), (1, 1, "1 of 1 node is"), (1, 2, "1 of 2 nodes is"), (2, 2, "2 of 2 nodes are")],
)
def test_the_verb_goes_with_how_many_of_all(part: int, total: int, said: str) -> None:
    assert portion(part, total, "node") == said


def test_names_are_in_the_order_in_which_people_count() -> None:
    wanted = ["gpu", "gpu-1", "gpu-1a", "gpu-2", "gpu-10", "gpu-10-2", "gpu-10-11", "node"]
    as_texts = sorted(wanted)
    assert as_texts != wanted == sorted(as_texts, key=natural_sort_key)
    assert natural_sort_key("a01") != natural_sort_key("a1"), "two names share no place"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["a/x"], "pod a/x"),
        (["a/x", "a/y"], "pods a/x, a/y"),
        (["b/x"], "a pod in another namespace"),
        (["b/x", "c/x"], "2 pods in other namespaces"),
        (["a/x", "b/x", "aa/x"], "pod a/x and 2 more"),
        (["a/v", "a/w", "a/x", "a/y", "b/x"], "pods a/v, a/w, a/x and 2 more"),
    ],
)
def test_who_reads_of_other_pods_reads_the_names_of_the_own_namespace_alone(keys, said):
    assert pods_text("a", keys) == said
