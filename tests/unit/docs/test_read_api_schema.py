"""The schema of the state document is that of its types, and version 1 keeps what it has."""

import json
from pathlib import Path

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


def test_the_schema_is_that_of_the_types():
    for path, text in script("generate_read_api").written().items():
        assert (ROOT / path).read_text() == text, "run scripts/generate_read_api.py"


def test_no_field_of_the_version_is_missing():
    types = json.loads((ROOT / "docs/read-api.schema.json").read_text())["$defs"]
    for name, fields in V1.items():
        assert set(fields.split()) <= set(types[name]["properties"]), f"{name}: make another version of the document"
