"""memory_manager_state: texts and checksums as kubelet's own unit tests have them, and what is written is read."""

import json

import pytest

from purser.core.kubelet.errors import CheckpointError
from purser.core.kubelet.masks import mask_of
from purser.core.kubelet.memorymanager.checkpoint import decode, encode
from purser.core.kubelet.state import MemoryBlock, MemoryNode, MemoryState, MemoryTable

NODE = (
    '{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,'
    '"reserved":512,"free":1024}},"cells":[]}'
)
BLOCKS = '[{"numaAffinity":[0],"type":"memory","size":512}]'
BODY = f'"policyName":"static","machineState":{{"0":{NODE}}},"entries":{{"pod":{{"container1":{BLOCKS}}}}}'
PODS = f'"podEntries":{{"pod":{{"memoryBlocks":{BLOCKS}}}}}'
WITH_DATA = json.dumps(
    {"policyName": "other", "machineState": {}, "checksum": 1234, "data": f"{{{BODY}}}", "dataChecksum": 1849615440}
)

STATE = MemoryState(
    nodes={
        0: MemoryNode(
            {"memory": MemoryTable(total=2048, system_reserved=512, allocatable=1536, reserved=512, free=1024)},
            group=0b1,
            assignments=0,
        )
    },
    blocks={("pod", "container1"): (MemoryBlock(0b1, "memory", 512),)},
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'{{{BODY},"checksum":4215593881}}', id="the first format with its checksum"),
        pytest.param(f'{{{BODY},"checksum":0}}', id="the first format without a checksum"),
        pytest.param(f'{{{BODY},{PODS},"checksum":1278640530}}', id="pod entries are summed up but not taken over"),
        pytest.param(WITH_DATA, id="the third format, whatever the rest of the file says"),
    ],
)
def test_every_format_is_read(text: str) -> None:
    assert decode(text) == ("static", STATE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(f'{{{BODY},"checksum":4215593882}}', "checkpoint is corrupted", id="wrong checksum"),
        pytest.param(WITH_DATA.replace("1849615440", "1"), "checkpoint is corrupted", id="wrong checksum of the data"),
        pytest.param("{", "not a valid memory_manager_state file", id="no JSON"),
        pytest.param('{"data":"{"}', "checkpoint is corrupted", id="data without a checksum"),
        pytest.param('{"machineState":{"70000":{}}}', "NUMA node 70000", id="a node that no Linux has"),
        pytest.param('{"entries":{"p":{"c":[{"numaAffinity":[-1]}]}}}', "NUMA node -1", id="a negative node"),
        pytest.param(b"\xff", "not a valid memory_manager_state file", id="no UTF-8"),
        pytest.param("[1]", "not a valid memory_manager_state file", id="no object"),
    ],
)
def test_what_kubelet_would_not_read_is_an_error(text: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        decode(text)


def test_nulls_are_nothing() -> None:
    assert decode('{"policyName":"Static","machineState":null,"entries":null}') == ("Static", MemoryState({}))


def test_what_is_written_is_read() -> None:
    table = MemoryTable(total=10, system_reserved=1, allocatable=9, reserved=4, free=5)
    nodes = {n: MemoryNode({"memory": table, "hugepages-2Mi": table}, mask_of([2, 10]), 2) for n in (2, 10)}
    blocks = (MemoryBlock(mask_of([2, 10]), "hugepages-2Mi", 4), MemoryBlock(mask_of([2, 10]), "memory", 4))
    state = MemoryState(nodes, {("uid<1>", "c"): blocks})
    text = encode("Static", state)
    assert decode(text) == ("Static", state)
    assert text.index('"10"') < text.index('"2"'), "Go sorts keys as text"
    assert "\\u003c" in text


def test_a_state_without_assignments_has_no_entries() -> None:
    text = encode("None", MemoryState({}))
    assert json.loads(text).keys() == {"policyName", "machineState", "checksum"}
    assert decode(text) == ("None", MemoryState({}))
