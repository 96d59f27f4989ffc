"""What ``purser lab --node`` understands."""

import pytest

from purser.lab.settings import LabSettings, chosen_nodes, family_words


def test_profiles_are_emulated_and_families_of_other_vendors_hollow():
    nodes, hollow = chosen_nodes(["t4-4:2", "hygon-dcu", "ascend-910b4", "hygon-dcu:2"])
    assert [each.name for each in nodes] == ["t4-4-0", "t4-4-1"]
    assert [(each.names[-1], each.count, each.family) for each in hollow] == [
        ("hygon-dcu-2", 3, "Hygon DCU"),
        ("ascend-910b4-0", 1, "Ascend 910B4"),
    ]
    LabSettings(nodes, hollow=hollow)


def test_without_words_there_are_the_usual_nodes_and_families_alone_have_none_beside():
    assert [len(each) for each in chosen_nodes([])] == [3, 0]
    assert [len(each) for each in chosen_nodes(list(family_words()))] == [0, len(family_words())]


@pytest.mark.parametrize("text", ["hygon-dcu:0", "hygon-dcu:", "hygon dcu", "x"])
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError, match=r"write PROFILE|no profile"):
        chosen_nodes([text])
