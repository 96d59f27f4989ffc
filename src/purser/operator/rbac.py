"""What the operator itself may do. Also all that it grants to operands: nobody may grant what they may not do.

``scripts/generate_chart.py`` writes the rules into the Helm chart; a test compares the two.
"""

from collections.abc import Iterable
from typing import Any

from purser.operator.names import GROUP, LEASE, PLURAL
from purser.operator.operands.accounts import ACCOUNTS, READ, rule

Raw = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_OWN = (*READ, "create", "patch", "delete")
"""Of kinds that it owns: server-side apply is create and patch."""

_CLUSTER = (
    rule(GROUP, [PLURAL], [*READ, "patch", "delete"]),
    rule(GROUP, [f"{PLURAL}/status"], ["patch"]),
    # Owner references that block an owner's deletion ask for this on the owner.
    rule(GROUP, [f"{PLURAL}/finalizers"], ["update"]),
    rule("", ["nodes"], [*READ, "patch"]),
    rule("", ["pods"], READ),
    rule("", ["pods/eviction"], ["create"]),
    rule("", ["events"], ["create", "patch"]),
    # Whether the operator whose policy this is has a namespace any more.
    rule("", ["namespaces"], ["get"]),
    rule("policy", ["poddisruptionbudgets"], ["list", "watch"]),
    # All of them, also those of others: one that is there under a wanted name is used as it is.
    rule("node.k8s.io", ["runtimeclasses"], _OWN),
    # While NVIDIA's operator has a policy of its own, this one keeps its hands off the nodes.
    rule("nvidia.com", [PLURAL], ["list", "watch"]),
    rule(_RBAC, ["clusterroles", "clusterrolebindings"], [*READ, "create"]),
    rule(_RBAC, ["clusterroles", "clusterrolebindings"], ["patch", "delete"], sorted(each.name for each in ACCOUNTS)),
)
_NAMESPACE = (
    rule("", ["serviceaccounts", "configmaps", "services"], _OWN),
    rule("", ["pods"], [*READ, "delete"]),
    rule("apps", ["daemonsets"], _OWN),
    rule(_RBAC, ["roles", "rolebindings"], _OWN),
    rule("monitoring.coreos.com", ["servicemonitors", "prometheusrules"], _OWN),
    rule("coordination.k8s.io", ["leases"], ["create"]),
    rule("coordination.k8s.io", ["leases"], ["get", "update", "patch", "delete"], [LEASE]),
)


def cluster_rules() -> list[Raw]:
    """For the whole cluster."""
    return _merged([*_CLUSTER, *(each for account in ACCOUNTS for each in account.cluster)])


def namespace_rules() -> list[Raw]:
    """In its own namespace."""
    return _merged([*_NAMESPACE, *(each for account in ACCOUNTS for each in account.namespace)])


def _merged(rules: Iterable[Raw]) -> list[Raw]:
    """One rule per resource and set of names, with the verbs of all, in the order in which they come first.

    One for certain names is left out where all names have its verbs.
    """
    found: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for each in rules:
        for resource in each["resources"]:
            verbs = found.setdefault((each["apiGroups"][0], resource, tuple(each.get("resourceNames", ()))), [])
            verbs.extend(verb for verb in each["verbs"] if verb not in verbs)
    return [
        rule(group, [resource], verbs, names)
        for (group, resource, names), verbs in found.items()
        if not names or not set(verbs) <= set(found.get((group, resource, ()), ()))
    ]
