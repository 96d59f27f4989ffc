"""Writes docs/read-api*.schema.json: the JSON schemas of the read API's documents, of their types.

python scripts/generate_read_api.py [REPOSITORY]
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from purser.core.state import (
    ROLLOUT_VERSION,
    STATE_VERSION,
    ClusterState,
    GrantList,
    NodeDetails,
    NodeList,
    PodDetails,
    PodWhy,
    Rollout,
    StateEvents,
    WaitingList,
)

REPOSITORY = Path(__file__).parents[1]
_DOCUMENTS = {
    Path("docs/read-api.schema.json"): (f"State {STATE_VERSION}", ClusterState),
    Path("docs/read-api-node.schema.json"): (f"Node {STATE_VERSION}", NodeDetails),
    Path("docs/read-api-nodes.schema.json"): (f"Nodes {STATE_VERSION}", NodeList),
    Path("docs/read-api-grants.schema.json"): (f"Grants {STATE_VERSION}", GrantList),
    Path("docs/read-api-waiting.schema.json"): (f"Waiting {STATE_VERSION}", WaitingList),
    Path("docs/read-api-rollout.schema.json"): (f"Rollout {ROLLOUT_VERSION}", Rollout),
    Path("docs/read-api-pod.schema.json"): (f"Pod {STATE_VERSION}", PodDetails),
    Path("docs/read-api-why.schema.json"): (f"Why {STATE_VERSION}", PodWhy),
    Path("docs/read-api-events.schema.json"): (f"Events {STATE_VERSION}", StateEvents),
}


def written() -> dict[Path, str]:
    """The files and their texts. What messages name may grow: unknown fields are allowed."""
    return {path: _schema(title, kind) for path, (title, kind) in _DOCUMENTS.items()}


def _schema(title: str, kind: type) -> str:
    schema: dict[str, Any] = msgspec.json.schema(kind)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(repository: Path) -> None:
    """Write them."""
    for path, text in written().items():
        (repository / path).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
