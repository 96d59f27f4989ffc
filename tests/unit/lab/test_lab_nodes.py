"""What ``purser lab --node`` understands."""

import pytest

from purser.core.names import INVENTORY_ANNOTATION, KUBELET_ANNOTATION
from purser.core.node.amounts import AMOUNTS
from purser.kube.objects import Node, NodeStatus, ObjectMeta
from purser.lab.cluster import _offers_devices
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
    with pytest.raises(ValueError, match=r"must be PROFILE|profile .* does not exist"):
        chosen_nodes([text])


@pytest.mark.parametrize(
    ("listed", "is_ready"),
    [
        ({"nvidia.com/gpu": "4"}, True),
        ({"nvidia.com/gpu": "0", "nvidia.com/gpu.card": "4"}, True),
        ({"nvidia.com/mig-1g.5gb": "7"}, True),
        ({"nvidia.com/gpu": "0"}, False),
        ({"cpu": "4"}, False),
    ],
    ids=str,
)
def test_a_node_is_ready_under_whichever_names_its_gpus_are_listed(listed, is_ready):
    annotations = {INVENTORY_ANNOTATION: "{}", KUBELET_ANNOTATION: "told by a later version"}
    status = NodeStatus(allocatable={**dict.fromkeys(AMOUNTS, "0"), **listed})
    assert _offers_devices(Node(metadata=ObjectMeta(annotations=annotations), status=status)) is is_ready
