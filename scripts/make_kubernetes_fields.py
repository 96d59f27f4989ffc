"""Writes which fields the kinds that Purser installs had in the oldest Kubernetes it supports, for the tests.

    python scripts/make_kubernetes_fields.py API

API is a git directory of github.com/kubernetes/api. What is kept are facts: names of fields and their types.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

BRANCH = "release-1.20"
GROUPS = ("admissionregistration", "apps", "batch", "coordination", "core", "networking", "node", "policy", "rbac")
KINDS = (
    *("apps/v1 DaemonSet", "apps/v1 Deployment", "batch/v1 Job", "v1 ConfigMap", "v1 Service", "v1 ServiceAccount"),
    *(f"admissionregistration.k8s.io/v1 {kind}WebhookConfiguration" for kind in ("Mutating", "Validating")),
    *("node.k8s.io/v1 RuntimeClass", "policy/v1beta1 PodDisruptionBudget", "networking.k8s.io/v1 NetworkPolicy"),
    *(f"rbac.authorization.k8s.io/v1 {kind}" for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")),
)
VERSIONS = {"policy": "v1beta1"}
TARGET = Path(__file__).parents[1] / "tests" / "unit" / "deploy" / "kubernetes_1_20.json"
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r'^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`json:"([^",]*)(,inline)?')


def main(repository: str) -> None:
    structs: dict[str, dict[str, str]] = {}
    for group in GROUPS:
        structs |= read(repository, group)
    kinds = {kind: f"{group_of(kind)}.{kind.split()[1]}" for kind in KINDS}
    kept: dict[str, dict[str, str]] = {}
    keep(list(kinds.values()), structs, kept)
    TARGET.write_text(json.dumps({"kinds": kinds, "types": kept}, indent=1, sort_keys=True) + "\n")


def group_of(kind: str) -> str:
    group = kind.split()[0].rpartition("/")[0]
    return group.partition(".")[0] or "core"


def read(repository: str, group: str) -> dict[str, dict[str, str]]:
    """Fields by type: the name in JSON, and the type without pointer or list; inlined types are taken apart later."""
    where = f"{BRANCH}:{group}/{VERSIONS.get(group, 'v1')}/types.go"
    command = ["git", f"--git-dir={repository}", "show", where]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {}
    for name, body in _STRUCT.findall(text):
        fields: dict[str, str] = {}
        for line in body.splitlines():
            if not (match := _FIELD.match(line)):
                continue
            kind = re.sub(r"^(\*|\[\]|map\[\w+\])*", "", match[2])
            kind = kind.replace("v1.", "core.") if kind.startswith("v1.") else kind
            fields[match[3] or f"+{kind}"] = kind if "." in kind else f"{group}.{kind}"
        found[f"{group}.{name}"] = fields
    return found


def keep(wanted: list[str], structs: dict[str, dict[str, str]], kept: dict[str, dict[str, str]]) -> None:
    """The types that the wanted ones lead to; fields of other types have none that could be listed."""
    for name in wanted:
        if name in kept or name not in structs:
            continue
        kept[name] = flat(name, structs)
        keep(list(kept[name].values()), structs, kept)


def flat(name: str, structs: dict[str, dict[str, str]]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for field, kind in structs[name].items():
        if field.startswith("+"):
            fields |= flat(kind, structs) if kind in structs else {}
        else:
            fields[field] = kind
    return fields


if __name__ == "__main__":
    main(sys.argv[1])
