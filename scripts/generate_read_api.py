"""Writes docs/read-api.schema.json: the JSON schema of the state document, of its types.

python scripts/generate_read_api.py [REPOSITORY]
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from purser.core.state import STATE_VERSION, ClusterState

REPOSITORY = Path(__file__).parents[1]
PAGE = Path("docs/read-api.schema.json")


def written() -> dict[Path, str]:
    """The file and its text. What messages name may grow: unknown fields are allowed."""
    schema: dict[str, Any] = msgspec.json.schema(ClusterState)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"State {STATE_VERSION}", **schema}
    return {PAGE: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"}


def main(repository: Path) -> None:
    """Write it."""
    for path, text in written().items():
        (repository / path).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
