"""The CustomResourceDefinition of ClusterPolicy, made from its types.

``scripts/generate_chart.py`` writes it into the Helm chart; a test compares the two. Rules in CEL work
from Kubernetes 1.25 on; older API servers leave them out, and the operator says in the policy's status what is wrong.
"""

from typing import Any

from purser.core.selectors import PATTERN
from purser.operator.definition.schemas import Schema, schema_of
from purser.operator.names import GROUP, KIND, PLURAL, VERSION
from purser.operator.policy.checks import DRIVER_VERSION, MAX_PROFILES, MAX_SLOTS, MOVING_LABELS
from purser.operator.policy.spec import ClusterPolicySpec
from purser.operator.policy.status import ClusterPolicyStatus

Raw = dict[str, Any]

_LIST = "x-kubernetes-list-type"
_KEYS = "x-kubernetes-list-map-keys"
_RULES = "x-kubernetes-validations"


def _some(done: str) -> Schema:
    """Of a number or percentage of nodes: more than none."""
    message = f"no node could ever be {done}, give 1 or more"
    return {_RULES: [{"rule": "type(self) == int ? self > 0 : self != '0%'", "message": message}]}


_NODES: Schema = {
    _RULES: [
        {
            "rule": f"[{', '.join(repr(label) for label in MOVING_LABELS)}].all(label, !(label in self))",
            "message": "selects nodes by a label that the operator itself writes: take another label",
        }
    ]
}
_MORE: dict[str, Schema] = {
    "devicePlugin.slots": {"minimum": 1, "maximum": MAX_SLOTS},
    "driver.profiles": {"maxItems": MAX_PROFILES, _LIST: "map", _KEYS: ["name"]},
    "driver.profiles[].nodeSelector": {"minProperties": 1, **_NODES},
    "driver.requirements": {"maxItems": MAX_PROFILES},
    "driver.requirements[].nodeSelector": _NODES,
    "driver.upgradePolicy.canary.nodeSelector": _NODES,
    "driver.requirements[].minimum": {"pattern": f"^({DRIVER_VERSION})?$"},
    "driver.requirements[].excluded[]": {"pattern": f"^({DRIVER_VERSION})?$"},
    "driver.upgradePolicy.maxUnavailable": _some("upgraded"),
    "driver.upgradePolicy.waitForCompletion.podSelector": {"pattern": PATTERN},
    "driver.upgradePolicy.drain.podSelector": {"pattern": PATTERN},
    "daemonsets.rollingUpdate.maxUnavailable": _some("updated"),
    "migManager": {
        _RULES: [
            {
                "rule": "self.enabled || !has(self.config) || !has(self.config.default) || self.config.default == ''",
                "message": "config.default is set but the MIG manager is disabled: enable it, or remove this",
            }
        ]
    },
}
"""What `purser.operator.policy.checks` says and types do not, by field of the spec."""

_COLUMNS = [
    {"name": "Status", "type": "string", "jsonPath": ".status.state"},
    {"name": "Ready", "type": "integer", "jsonPath": ".status.nodes.ready", "description": "Nodes that are complete"},
    {"name": "Nodes", "type": "integer", "jsonPath": ".status.nodes.total", "description": "Nodes with GPUs"},
    {
        "name": "Upgraded",
        "type": "string",
        "jsonPath": ".status.upgrade.progress",
        "description": "Nodes with the driver that they should have, while some have another",
    },
    {
        "name": "Halted",
        "type": "boolean",
        "jsonPath": ".status.upgrade.halted",
        "description": "Whether no further node begins its driver upgrade, because too many failed",
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def definition() -> Raw:
    """The whole object, as it is applied."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": _COLUMNS,
        "schema": {"openAPIV3Schema": _schema()},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["pcp"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _schema() -> Schema:
    spec = schema_of(ClusterPolicySpec)
    spec["description"] = "The GPU stack of a cluster. Everything has a default: an empty spec is a whole stack."
    spec["default"] = {}
    status = schema_of(ClusterPolicyStatus, defaults=False)
    status["description"] = "How the GPU stack is doing."
    _complete(spec, "")
    for name, key in (("conditions", "type"), ("operands", "name"), ("pools", "name")):
        status["properties"][name].update({_LIST: "map", _KEYS: [key]})
    return {
        "type": "object",
        "description": "The GPU stack of a cluster, rolled out by Purser's operator. The oldest one is active.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }


def _complete(schema: Schema, place: str) -> None:
    """Add to the schema at ``place``, and to those below it, what types do not say; in place."""
    schema.update(_MORE.get(place, {}))
    if place.rpartition(".")[2] == "env":
        schema.update({_LIST: "map", _KEYS: ["name"]})
    for name, each in schema.get("properties", {}).items():
        _complete(each, f"{place}.{name}" if place else name)
    if "items" in schema:
        _complete(schema["items"], f"{place}[]")
