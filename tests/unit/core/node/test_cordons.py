"""Which GPUs annotations keep new pods off, and what is written for one more or one fewer."""

from hypothesis import given
from hypothesis import strategies as st

from purser.core.names import CORDONED_GPUS_ANNOTATION as OURS
from purser.core.names import HAMI_CORDON_ANNOTATION as HAMIS
from purser.core.node.cordons import MAX_CORDONED, cordoned, cordoned_gpus, uncordon_annotations

_TEXTS = st.lists(st.sampled_from(["a", " b", "c ", "", " ", "d"])).map(",".join)
_ANNOTATIONS = st.dictionaries(st.sampled_from([OURS, HAMIS, "else"]), _TEXTS)
_UUIDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=1)


def written(annotations: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in {**annotations, **changes}.items() if text is not None}


def test_both_annotations_count_and_blanks_do_not() -> None:
    assert cordoned_gpus({OURS: "GPU-1, GPU-2,,", HAMIS: " GPU-2 ,GPU-3"}) == ("GPU-1", "GPU-2", "GPU-3")
    assert cordoned_gpus({}) == ()


def test_what_is_longer_than_any_node_needs_is_not_read_to_its_end() -> None:
    assert len(cordoned_gpus({OURS: ",".join(map(str, range(100_000)))})) == MAX_CORDONED


@given(_ANNOTATIONS, _UUIDS)
def test_what_is_cordoned_is_so_beside_the_others_and_can_be_undone(before: dict[str, str], uuids: list[str]) -> None:
    there = set(cordoned_gpus(before))
    changes = cordoned(before, uuids)
    after = written(before, changes)
    assert set(cordoned_gpus(after)) == there | set(uuids)
    assert bool(changes) == bool(set(uuids) - there)
    assert cordoned(after, uuids) == {}
    freed = written(after, uncordon_annotations(after, uuids))
    assert set(cordoned_gpus(freed)) == there - set(uuids)
    assert uncordon_annotations(freed, uuids) == {}
    assert freed.get("else") == before.get("else")
