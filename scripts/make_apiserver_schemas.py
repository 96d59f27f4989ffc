"""Write the lab API server's table of built-in types from the JSON schemas that kubernetes-validate carries.

What remains is fact, not prose: field names, types and the merge keys of lists. Descriptions are dropped. Run after
choosing another Kubernetes version: `python scripts/make_apiserver_schemas.py 1.37.0`.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

KINDS = {
    "admissionregistration.v1": ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
    "apiextensions.v1": ["CustomResourceDefinition"],
    "apps.v1": ["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    "authentication.v1": ["TokenReview"],
    "authorization.v1": ["SelfSubjectAccessReview", "SubjectAccessReview"],
    "autoscaling.v1": ["Scale"],
    "batch.v1": ["CronJob", "Job"],
    "coordination.v1": ["Lease"],
    "core.v1": [
        "Binding", "ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume",
        "PersistentVolumeClaim", "Pod", "ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount",
    ],
    "discovery.v1": ["EndpointSlice"],
    "events.v1": ["Event"],
    "networking.v1": ["NetworkPolicy"],
    "node.v1": ["RuntimeClass"],
    "policy.v1": ["Eviction", "PodDisruptionBudget"],
    "rbac.v1": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    "resource.v1": ["DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"],
    "scheduling.v1": ["PriorityClass"],
    "storage.v1": ["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment"],
}  # fmt: skip
TARGET = Path(__file__).parents[1] / "src/purser/lab/apiserver/builtin_schemas.json"
KEPT = (
    "type", "format", "items", "properties", "additionalProperties", "required", "$ref",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy", "x-kubernetes-preserve-unknown-fields",
)  # fmt: skip


def short(ref: str) -> str:
    """`#/$defs/io.k8s.api.core.v1.PodSpec` -> `core.v1.PodSpec`."""
    return ".".join(ref.rsplit("/", 1)[-1].split(".")[-3:])


def unstable(name: str) -> bool:
    """Whether a definition is of an alpha or beta version; stable types refer to some, behind gates that are off."""
    return "alpha" in name or "beta" in name


def slim(schema: dict[str, Any]) -> dict[str, Any]:
    """Keep what the server reads; the alternatives of quantities and ports become their well-known formats."""
    out: dict[str, Any] = {}
    for key in KEPT:
        if key not in schema:
            continue
        value = schema[key]
        if key == "type" and isinstance(value, list):
            value = next(t for t in value if t != "null")
        elif key == "properties":
            value = {name: slim(sub) for name, sub in sorted(value.items()) if not any(map(unstable, references(sub)))}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            value = slim(value)
        elif key == "$ref":
            value = "#/components/schemas/" + short(value)
        out[key] = value
    return out


def references(schema: object) -> set[str]:
    """Every `$ref` below a schema (a property may itself be called `$ref`, so only strings count)."""
    if isinstance(schema, dict):
        own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*(references(value) for value in schema.values()))
    return set()


def main(version: str) -> None:
    """Collect the wanted kinds and everything they refer to, one definition per line."""
    source = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local" / "_definitions.json"
    definitions = {short(name): body for name, body in json.loads(source.read_text())["$defs"].items()
                   if not unstable(name)}  # fmt: skip
    wanted = [f"{group}.{kind}" for group, kinds in KINDS.items() for kind in kinds]
    wanted += ["meta.v1.DeleteOptions", "meta.v1.Status"]
    done: dict[str, dict[str, Any]] = {}
    while wanted:
        name = wanted.pop()
        if name in done:
            continue
        done[name] = slim(definitions[name])
        wanted += [short(ref) for ref in references(done[name])]
    for name in done:
        if name.endswith(("resource.Quantity",)):
            done[name] = {"type": "string", "format": "quantity"}
        elif name.endswith("intstr.IntOrString"):
            done[name] = {"type": "string", "format": "int-or-string"}
    lines = [f"{json.dumps(name)}: {json.dumps(done[name], separators=(',', ':'))}" for name in sorted(done)]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "1.37.0")
