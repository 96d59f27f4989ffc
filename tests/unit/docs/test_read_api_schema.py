"""The schemas of the read API's documents are those of their types, and version 1 keeps what it has."""

import json
from pathlib import Path

import pytest
from tests.scripts import script

ROOT = Path(__file__).parents[3]

V1 = {
    "ClusterState": "instance sequence replica nodes grants waiting notes api_version",
    "StateReplica": "name places_pods leader",
    "StateNode": "name cordoned driver_version agent_version gpus",
    "StateGpu": "uuid index model mode resource parent health reason cordoned enforcement slots slots_held memory_mib "
    "memory_held_mib cores_percent cores_held_percent pods",
    "StateGrant": "namespace pod uid node state containers",
    "StateContainer": "name kind enforcement shares",
    "StateShare": "gpu index memory_mib cores_percent mig",
    "StateWaiting": "namespace pod uid since scheduler priority gpus reason message reasons",
    "StateReason": "by reason nodes gpus text",
}
"""Fields of the first release: more may come, none may go."""

V1_NODE = {
    "NodeDetails": "name gpus pools kubelet api_version",
    "StateNodeGpu": "uuid index pci_bus_id numa_nodes links",
    "StateLink": "peer level nvlinks nvlinks_differ",
    "StatePoolPlace": "resource place numa_node devices held levels",
    "StateKubelet": "version source topology_policy topology_scope cpu_policy memory_policy resources",
    "StateKubeletResource": "resource listed healthy held numa_nodes",
}
"""Of the document on one node."""

V1_POD = {"PodDetails": "name uid steps api_version", "StateStep": "name time seconds"}
V1_EVENTS = {"StateEvents": "events api_version", "StateEvent": "reason message type count seen_at component"}
V1_WHY = {
    "PodWhy": "namespace pod uid scheduler state node nodes fits objection reasons suggestions ended_early message "
    "last_message notes api_version",
    "WhyReason": "by reason nodes gpus text examples",
    "WhySuggestion": "kind text fits examples",
}
V1_LISTS = {
    "nodes": {"NodeList": "items continue notes api_version"},
    "grants": {"GrantList": "items continue notes api_version"},
    "waiting": {"WaitingList": "items continue notes api_version"},
}


def test_the_schema_is_that_of_the_types():
    for path, text in script("generate_read_api").written().items():
        assert (ROOT / path).read_text() == text, "run scripts/generate_read_api.py"


@pytest.mark.parametrize(
    ("page", "document"),
    [
        ("read-api.schema.json", V1),
        ("read-api-node.schema.json", V1_NODE),
        ("read-api-pod.schema.json", V1_POD),
        ("read-api-events.schema.json", V1_EVENTS),
        ("read-api-why.schema.json", V1_WHY),
        *((f"read-api-{name}.schema.json", fields) for name, fields in V1_LISTS.items()),
    ],
)
def test_no_field_of_the_version_is_missing(page, document):
    types = json.loads((ROOT / "docs" / page).read_text())["$defs"]
    for name, fields in document.items():
        assert set(fields.split()) <= set(types[name]["properties"]), f"{name}: make another version of the document"
