"""Annotations between the operator and what of it runs on nodes."""

import pytest

from purser.core.node.annotations import MAX_NODE_MESSAGE_BYTES, encode
from purser.core.node.facts import NodeFacts, PciGpu, decode_facts
from purser.core.node.mig_messages import MigRequest, MigResult, decode_request, decode_result


def test_what_is_written_is_read_back() -> None:
    facts = NodeFacts(os_id="ubuntu", os_version="22.04", gpus=(PciGpu("20b5"),), distribution="k3s")
    assert decode_facts(encode(facts)) == facts
    assert decode_request(encode(MigRequest("all-1g.5gb", "7"))) == MigRequest("all-1g.5gb", "7")
    assert decode_result(encode(MigResult("x", "7", "in use"))) == MigResult("x", "7", "in use")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"gpus": 3}', "{}" + " " * MAX_NODE_MESSAGE_BYTES])
def test_what_cannot_be_read_counts_as_not_there(text: str | None) -> None:
    assert decode_facts(text) is None
