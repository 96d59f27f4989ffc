"""What others can write is read by `purser.core.decoding` and `purser.yaml_reading`, and by nothing beside them."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "purser"
PARSERS = re.compile(
    r"\b(msgspec\.json\.decode\(|msgspec\.json\.Decoder\(|msgspec\.yaml\b|msgspec\.convert\(|json\.loads?\(|yaml\.load|"
    r"yaml\.safe_load|b64decode\()"
)
OWN = {
    "core/decoding.py",
    "yaml_reading.py",
    # Plain values that a reader has let in, of bounded depth; each raises its own error.
    "core/kubelet/config.py",
    "operator/policy/importing/drivers.py",
    "operator/policy/importing/effects.py",
    "operator/policy/importing/__init__.py",
    "operator/policy/importing/sections.py",
    "operator/manifests/parts.py",
    "operator/policy/decoding.py",
    # base64 alone, of an annotation, whose length the API server limits.
    "core/pod/device_access.py",
    # What a command is about to print, written by itself a line before.
    "cli/output.py",
    # What the scheduler has encoded itself.
    "scheduler/read_api/lists.py",
    # Read by a command that its user runs, on that user's own files.
    "kube/config.py",
    "lab/driver/profiles.py",
    "lab/scenario/spec.py",
    # The lab reads what it wrote itself, or what comes with it.
    "lab/apiserver/admission.py",
    "lab/apiserver/jsonio.py",
    "lab/apiserver/protobuf.py",
    "lab/apiserver/schema.py",
    "lab/driver/files.py",
    "lab/driver/node.py",
    "lab/driver/python_state.py",
    "lab/driver/statefile.py",
    "lab/folders.py",
    "lab/kubelet/admission.py",
    "lab/kubelet/runtime.py",
}


FOUND = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if PARSERS.search(path.read_text())}


def test_nothing_else_parses():
    assert set() == FOUND - OWN, "read what others can write with purser.core.decoding or purser.yaml_reading"


def test_nobody_is_excused_who_parses_nothing():
    assert OWN <= FOUND
