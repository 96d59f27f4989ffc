"""What operands need beside their DaemonSets: RuntimeClasses, accounts and roles."""

from purser.operator.model import Rendered, RenderInputs
from purser.operator.operands.accounts import Account, accounts_of
from purser.operator.operands.parts import OPERATOR, Raw, owned

_MODES = ("nvidia-cdi", "nvidia-legacy")
_RBAC = "rbac.authorization.k8s.io"


def render(wanted: RenderInputs) -> list[Rendered]:
    """RuntimeClasses, and each account with its roles."""
    spec = wanted.policy.spec
    classes = [_runtime_class(wanted, name) for name in _runtimes(spec.operator.runtime_class)]
    return [*classes, *(each for account in accounts_of(spec) for each in _account(wanted, account))]


def _runtimes(name: str) -> tuple[str, ...]:
    """What the toolkit installs: one under the policy's name, and two for pods that want their GPUs in another way. A
    policy that names one of these two gets the first as ``nvidia``."""
    return ("nvidia" if name in _MODES else name, *_MODES)


def _runtime_class(wanted: RenderInputs, name: str) -> Rendered:
    obj = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
    return owned(wanted, OPERATOR, obj)


def _account(wanted: RenderInputs, account: Account) -> list[Rendered]:
    metadata = {"name": account.name, "namespace": wanted.namespace}
    objects: list[Raw] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}]
    if account.cluster:
        objects += _role("Cluster", {"name": account.name}, wanted.namespace, account.cluster)
    if account.namespace:
        objects += _role("", metadata, wanted.namespace, account.namespace)
    return [owned(wanted, account.operand, each) for each in objects]


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
