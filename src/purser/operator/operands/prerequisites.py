"""What operands need beside their DaemonSets: the RuntimeClass, accounts and roles."""

from purser.operator.model import Rendered, Wanted
from purser.operator.operands.grants import Grant, granted
from purser.operator.operands.parts import OPERATOR, Raw, owned

_RBAC = "rbac.authorization.k8s.io"


def render(wanted: Wanted) -> list[Rendered]:
    """The RuntimeClass, and each account with its roles."""
    spec = wanted.policy.spec
    return [_runtime_class(wanted), *(each for grant in granted(spec) for each in _account(wanted, grant))]


def _runtime_class(wanted: Wanted) -> Rendered:
    name = wanted.policy.spec.operator.runtime_class
    obj = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
    return owned(wanted, OPERATOR, obj)


def _account(wanted: Wanted, grant: Grant) -> list[Rendered]:
    metadata = {"name": grant.account, "namespace": wanted.namespace}
    objects: list[Raw] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}]
    if grant.cluster:
        objects += _role("Cluster", {"name": grant.account}, wanted.namespace, grant.cluster)
    if grant.namespace:
        objects += _role("", metadata, wanted.namespace, grant.namespace)
    return [owned(wanted, grant.operand, each) for each in objects]


def _role(prefix: str, metadata: Raw, namespace: str, rules: tuple[Raw, ...]) -> list[Raw]:
    name = metadata["name"]
    kind = f"{prefix}Role"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
            "subjects": [subject],
        },
    ]
