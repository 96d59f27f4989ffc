"""A node's links as a matrix, in the words of `nvidia-smi topo -m`."""

import msgspec
import pytest
from tests.unit.top.states import details

from purser.core.model import PcieLevel
from purser.core.state import NodeDetails, StateLink
from purser.web.hardware import hardware_of


def pair(level=None, nvlinks=0, *, differ=False):
    one, other = details("n", 2).gpus
    gpus = (
        msgspec.structs.replace(one, links=(StateLink(other.uuid, level, nvlinks, differ),)),
        msgspec.structs.replace(other, links=(StateLink(one.uuid, level, nvlinks, differ),)),
    )
    return hardware_of(NodeDetails("n", gpus, (), None))


@pytest.mark.parametrize(
    ("level", "word"),
    [
        (PcieLevel.SAME_BOARD, "PSB"),
        (PcieLevel.SINGLE_SWITCH, "PIX"),
        (PcieLevel.MULTI_SWITCH, "PXB"),
        (PcieLevel.HOST_BRIDGE, "PHB"),
        (PcieLevel.SAME_CPU, "NODE"),
        (PcieLevel.CROSS_CPU, "SYS"),
    ],
)
def test_a_level_has_the_word_that_nvidia_smi_has(level, word):
    found = pair(level)
    assert [row.words for row in found.gpus] == [["X", word], [word, "X"]]
    assert [each for each, _ in found.legend] == [word]
    assert pair(level, 18).gpus[0].words == ["X", "NV18"], "NVLinks go first"


def test_ends_that_differ_are_marked():
    found = pair(PcieLevel.SAME_CPU, differ=True)
    assert found.gpus[0].words == ["X", "NODE*"]
    assert [each for each, _ in found.legend] == ["NODE", "*"]
    assert pair(None, differ=True).gpus[0].words == ["X", "?*"]


def test_without_any_link_there_is_no_matrix():
    found = pair()
    assert (found.has_links, found.legend, found.gpus[0].numa_nodes) == (False, [], "0")
