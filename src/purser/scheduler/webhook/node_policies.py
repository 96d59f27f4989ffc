"""`purser.core.node.writers.refusal` as the API server asks it: ValidatingAdmissionPolicies, in CEL.

For Kubernetes 1.30 and newer, whose tokens name the node of their pod. Before, Purser's own webhook asks.
"""

from collections.abc import Callable
from typing import Any

from purser.core.names import UNHEALTHY_TAINT
from purser.core.node.writers import (
    AGENT_LABELS,
    AMOUNT_FIELDS,
    NODE_NAME_EXTRA,
    NODE_WRITERS,
    SCHEDULER_WRITER,
    NodeWriter,
)
from purser.kube.resources import Raw

GROUP_VERSION = "admissionregistration.k8s.io/v1"
NODES_POLICY_NAME, EVENTS_POLICY_NAME = "purser-node-writes", "purser-node-events"
"""Names of the policies."""

_KEPT_VALUES_RULE = "{new}.all(k, {free} || (k in {old} && {old}[k] == {new}[k])) && {old}.all(k, {free} || k in {new})"
"""Every key has the value that it had, but for free ones."""


def user_of(writer: NodeWriter, namespace: str) -> str:
    """The user that an account is to the API server."""
    return f"system:serviceaccount:{namespace}:{writer.account}"


def node_policies(
    namespace: str, agents_taint: str = "false", agents_cordon: str = "false", agents_label: str = "false"
) -> list[Raw]:
    """The policies and their bindings, for accounts in this namespace. Whether agents may taint, cordon and label their
    nodes is a text as the namespace is: the chart has its values there."""
    found = (_nodes_policy(namespace, agents_taint, agents_cordon, agents_label), _events_policy(namespace))
    return [each for policy in found for each in (policy, _binding(policy["metadata"]["name"]))]


def match_conditions(namespace: str) -> list[Raw]:
    """Whom policies, and webhooks that know conditions (Kubernetes 1.28), are asked about: accounts on nodes."""
    users = _list([user_of(each, namespace) for each in NODE_WRITERS])
    return [{"name": "pursers-accounts-on-nodes", "expression": f"request.userInfo.username in {users}"}]


def writer_conditions(namespace: str) -> list[Raw]:
    """The same and, where nodes are written, the scheduler: its events are its own affair."""
    [on_nodes] = match_conditions(namespace)
    scheduler = f"request.userInfo.username == '{user_of(SCHEDULER_WRITER, namespace)}'"
    is_node_account = f"{on_nodes['expression']} || request.resource.resource == 'nodes' && {scheduler}"
    return [{"name": "pursers-accounts", "expression": is_node_account}]


def _nodes_policy(namespace: str, agents_taint: str, agents_cordon: str, agents_label: str) -> Raw:
    variables = {**_rights(namespace, agents_taint, agents_cordon, agents_label), **_fields()}
    guarded = {f"request.operation == 'UPDATE' && {rule}": why for rule, why in _node_rules().items()}
    return _policy(namespace, NODES_POLICY_NAME, ["nodes", "nodes/status"], variables, guarded)


def _rights(namespace: str, agents_taint: str, agents_cordon: str, agents_label: str) -> dict[str, str]:
    """By variable: on which node an account may write, and what."""
    agent = NODE_WRITERS[0]
    return {
        "node": _NODE,
        "anyNode": _value_by_user(namespace, lambda each: "true" if each.any_node else "false"),
        "annotations": _value_by_user(namespace, lambda each: _list(each.annotations)),
        "prefixes": _value_by_user(
            namespace,
            lambda each: (
                f"{agents_label} ? {_list(AGENT_LABELS)} : []" if each is agent else _list(each.label_prefixes)
            ),
        ),
        "conditions": _value_by_user(namespace, lambda each: _list(each.conditions)),
        "amounts": _value_by_user(namespace, lambda each: _list(each.amounts)),
        "taints": _value_by_user(
            namespace, lambda each: f"{agents_taint} ? ['{UNHEALTHY_TAINT}'] : []" if each is agent else "[]"
        ),
        "cordons": _value_by_user(
            namespace, lambda each: agents_cordon if each is agent else "true" if each.cordons else "false"
        ),
    }


def _fields() -> dict[str, str]:
    """By variable: parts of a node before and after the write; empty ones where there are none."""
    variables = {}
    for name, whose in (("new", "object"), ("old", "oldObject")):
        for part in ("annotations", "labels"):
            variables[f"{name}{part.title()}"] = _field_or_empty(whose, f"metadata.{part}", "{}")
        for part in ("spec", "status"):
            variables[f"{name}{part.title()}"] = _field_or_empty(whose, part, "{}")
        for part in AMOUNT_FIELDS:
            variables[f"{name}{part.title()}"] = _field_or_empty(whose, f"status.{part}", "{}", has="status")
        variables[f"{name}Taints"] = _field_or_empty(whose, "spec.taints", "[]", has="spec")
        variables[f"{name}Conditions"] = _field_or_empty(whose, "status.conditions", "[]", has="status")
    return variables


def _node_rules() -> dict[str, str]:
    """By what has to be true of an update: what is refused otherwise."""
    same_lists = " && ".join(
        f"{_field_or_empty('object', path, '[]')} == {_field_or_empty('oldObject', path, '[]')}"
        for path in ("metadata.finalizers", "metadata.ownerReferences")
    )
    taints = "variables.{}Taints.filter(t, !(t.key in variables.taints))"
    others = "variables.{}Conditions.filter(c, !(c.type in variables.conditions))"
    return {
        "(variables.anyNode || variables.node != '')": "the token is not bound to a node",
        "(variables.anyNode || request.name == variables.node)": "the service account may write only its own node",
        _kept("Annotations", "k in variables.annotations"): "the service account may write only its own annotations",
        _kept(
            "Labels", "variables.prefixes.exists(p, k.startsWith(p))"
        ): "the service account may write only its own labels",
        same_lists: "the service account may not write finalizers or owner references",
        _kept(
            "Spec", "(variables.cordons && k == 'unschedulable' || k == 'taints')"
        ): "the service account may not write this field of the node's spec",
        f"{taints.format('new')} == {taints.format('old')}": "the service account may write only its own taints",
        _kept(
            "Status", f"k in {_list(['conditions', *AMOUNT_FIELDS])}"
        ): "the service account may not write this field of the node's status",
        **{
            _kept(part.title(), "k in variables.amounts"): (
                f"the service account may write only its own resources in status.{part}"
            )
            for part in AMOUNT_FIELDS
        },
        f"{others.format('new')} == {others.format('old')}": "the service account may write only its own conditions",
    }


def _events_policy(namespace: str) -> Raw:
    variables = {
        "node": _NODE,
        "account": _value_by_user(namespace, lambda each: f"'{each.account}'"),
        "reports": _value_by_user(namespace, lambda each: "true" if each.reports else "false"),
        "about": _field_or_empty("object", "involvedObject", "{}"),
        "before": _field_or_empty("oldObject", "involvedObject", "{}"),
    }
    own = (
        "has({0}.reportingInstance) && {0}.reportingInstance == variables.node"
        " && has({0}.reportingComponent) && {0}.reportingComponent == variables.account"
        " && (!has({0}.source) || !has({0}.source.component) || {0}.source.component == variables.account)"
    )
    about_itself = (
        "has(variables.about.kind) && (variables.about.kind == 'Pod' || variables.about.kind == 'Node' && "
        "has(variables.about.name) && variables.about.name == variables.node)"
    )
    validations = {
        "variables.node != ''": "the token is not bound to a node",
        "variables.reports && request.operation != 'DELETE'": "the service account may not write or delete this event",
        about_itself: "the service account's events must be about its own node or about pods",
        own.format(
            "object"
        ): "the event must name the service account in reportingComponent and its node in reportingInstance",
        f"request.operation == 'CREATE' || {own.format('oldObject')} && variables.about == variables.before": (
            "the service account may change only its own events"
        ),
    }
    return _policy(namespace, EVENTS_POLICY_NAME, ["events"], variables, validations)


_NODE = (
    f"has(request.userInfo.extra) && '{NODE_NAME_EXTRA}' in request.userInfo.extra"
    f" ? request.userInfo.extra['{NODE_NAME_EXTRA}'][0] : ''"
)


def _kept(part: str, free: str) -> str:
    return _KEPT_VALUES_RULE.format(new=f"variables.new{part}", old=f"variables.old{part}", free=free)


def _field_or_empty(whose: str, path: str, empty: str, has: str = "") -> str:
    """A field that may be missing. ``dyn`` keeps the API server from finding fault with maps of unlike values."""
    guard = f"has({whose}.{has}) && " if has else ""
    return f"({guard}has({whose}.{path}) ? dyn({whose}.{path}) : dyn({empty}))"


def _value_by_user(namespace: str, value: Callable[[NodeWriter], str]) -> str:
    """A value that depends on who writes."""
    writers = (*NODE_WRITERS, SCHEDULER_WRITER)
    cases = ", ".join(f"'{user_of(each, namespace)}': {value(each)}" for each in writers)
    return f"{{{cases}}}[request.userInfo.username]"


def _list(texts: tuple[str, ...] | list[str]) -> str:
    return "[" + ", ".join(f"'{each}'" for each in texts) + "]"


def _policy(
    namespace: str, name: str, resources: list[str], variables: dict[str, str], validations: dict[str, str]
) -> Raw:
    rule: dict[str, Any] = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": resources,
    }
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": writer_conditions(namespace),
            "variables": [{"name": name, "expression": rule} for name, rule in variables.items()],
            "validations": [{"expression": rule, "message": f"Purser: {why}"} for rule, why in validations.items()],
        },
    }


def _binding(policy: str) -> Raw:
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": policy},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    }
