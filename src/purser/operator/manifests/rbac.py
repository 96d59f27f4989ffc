"""RBAC: what the operands' accounts may do, no more than each needs and never a wildcard; RuntimeClasses, accounts and
roles as objects; and what the operator itself may do, which includes all that it grants.

``scripts/generate_chart.py`` writes the operator's rules into the Helm chart; a test compares the two."""

from collections.abc import Iterable, Sequence

import msgspec

from purser.core.names import GRANT_KEY_CONFIGMAP
from purser.operator.manifests import (
    agent,
    device_plugin,
    discovery,
    driver,
    mig_manager,
    monitoring,
    toolkit,
    validator,
)
from purser.operator.manifests.parts import GPU_DISCOVERY, OPERATOR, Raw, owned
from purser.operator.model import RenderedManifest, RenderInputs
from purser.operator.names import GROUP, LEASE, NFD_GROUP, PLURAL
from purser.operator.order import Operand
from purser.operator.policy.sections import DevicePluginSpec
from purser.operator.policy.spec import ClusterPolicySpec

READ_VERBS = ("get", "list", "watch")


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A ServiceAccount of an operand, and its rules."""

    name: str
    operand: str
    cluster: tuple[Raw, ...] = ()
    """For the whole cluster."""
    namespace: tuple[Raw, ...] = ()
    """In the operator's namespace."""


def rule(group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Raw:
    """A rule of a role."""
    found: Raw = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**found, "resourceNames": list(names)} if names else found


_NODES = rule("", ["nodes"], READ_VERBS)
_PODS = rule("", ["pods"], READ_VERBS)
_EVENTS = rule("", ["events"], ["create", "patch"])
_DAEMON_SETS = rule("apps", ["daemonsets"], READ_VERBS)
_PATCH_NODE = rule("", ["nodes"], ["list", "watch", "patch"])
_PATCH_NODE_STATUS = rule("", ["nodes/status"], ["patch"])
_KEYS = rule("", ["configmaps"], ["list", "watch"], [GRANT_KEY_CONFIGMAP])

_EVICTIONS = rule("", ["pods/eviction"], ["create"])
_NODE_FEATURES = rule(NFD_GROUP, ["nodefeatures"], ["list", "watch", "create", "patch"])

_AGENT = Account(
    name=agent.ACCOUNT,
    operand=Operand.DEVICE_PLUGIN,
    cluster=(_PODS, _PATCH_NODE, _PATCH_NODE_STATUS, _EVENTS),
    namespace=(_KEYS,),
)
"""The same as the Helm chart gives it without an operator; for more see `_agent`."""

# The driver manager labels its node, and looks for pods that use the driver: of DaemonSets in any namespace.
_DRIVER = Account(
    name=driver.ACCOUNT,
    operand=Operand.DRIVER,
    cluster=(rule("", ["nodes"], [*READ_VERBS, "patch"]), _PODS, rule("apps", ["daemonsets"], ["get"])),
)
_OTHERS = (
    Account(name=toolkit.ACCOUNT, operand=Operand.TOOLKIT, namespace=(_DAEMON_SETS,)),
    Account(name=device_plugin.ACCOUNT, operand=Operand.DEVICE_PLUGIN, cluster=(_NODES,), namespace=(_DAEMON_SETS,)),
    Account(
        name=discovery.GFD_ACCOUNT,
        operand=Operand.GFD,
        cluster=(_NODES,),
        namespace=(rule("", ["pods"], ["get"]), rule(NFD_GROUP, ["nodefeatures"], [*READ_VERBS, "create", "update"])),
    ),
    Account(name=validator.ACCOUNT, operand=Operand.VALIDATOR, cluster=(_NODES,), namespace=(_DAEMON_SETS,)),
    Account(name=monitoring.EXPORTER_ACCOUNT, operand=Operand.DCGM_EXPORTER, cluster=(_PODS,)),
    Account(
        name=validator.EXPORTER_ACCOUNT,
        operand=Operand.NODE_STATUS_EXPORTER,
        cluster=(_NODES,),
        namespace=(_PODS, _DAEMON_SETS),
    ),
    Account(name=mig_manager.ACCOUNT, operand=Operand.MIG_MANAGER, cluster=(_PATCH_NODE,)),
    Account(name=discovery.ACCOUNT, operand=GPU_DISCOVERY, cluster=(rule("", ["nodes"], ["get", "patch"]),)),
)
ACCOUNTS = (_DRIVER, _AGENT, *_OTHERS)
"""All that there can be."""


def accounts_of(spec: ClusterPolicySpec) -> list[Account]:
    """Those that a policy leads to."""
    plugin = spec.device_plugin
    unused = {device_plugin.ACCOUNT if plugin.flavor == "purser" else agent.ACCOUNT}
    if not monitoring.reads_pods(spec.dcgm_exporter):
        unused.add(monitoring.EXPORTER_ACCOUNT)
    running = {*spec.enabled, *([GPU_DISCOVERY] if spec.discovery.enabled else [])}
    accounts = (_agent(plugin) if each is _AGENT else each for each in ACCOUNTS)
    return [each for each in accounts if each.operand in running and each.name not in unused]


def _agent(plugin: DevicePluginSpec) -> Account:
    """With the permissions that some of its settings need."""
    evictions = [_EVICTIONS] if plugin.evict_over_users or plugin.evict_from_unhealthy_gpus else []
    features = [_NODE_FEATURES] if plugin.feature_labels == "node-feature" else []
    return msgspec.structs.replace(
        _AGENT, cluster=(*_AGENT.cluster, *evictions), namespace=(*_AGENT.namespace, *features)
    )


# --- the operands' objects


_MODES = ("nvidia-cdi", "nvidia-legacy")
_RBAC_GROUP = "rbac.authorization.k8s.io"


def render(wanted: RenderInputs) -> list[RenderedManifest]:
    """RuntimeClasses, and each account with its roles."""
    spec = wanted.policy.spec
    classes = [_runtime_class(wanted, name) for name in _runtimes(spec.operator.runtime_class)]
    return [*classes, *(each for account in accounts_of(spec) for each in _account(wanted, account))]


def _runtimes(name: str) -> tuple[str, ...]:
    """What the toolkit installs: one under the policy's name, and two for pods that want their GPUs in another way. A
    policy that names one of these two gets the first as ``nvidia``."""
    return ("nvidia" if name in _MODES else name, *_MODES)


def _runtime_class(wanted: RenderInputs, name: str) -> RenderedManifest:
    obj = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
    return owned(wanted, OPERATOR, obj)


def _account(wanted: RenderInputs, account: Account) -> list[RenderedManifest]:
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
        {"apiVersion": f"{_RBAC_GROUP}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{_RBAC_GROUP}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC_GROUP, "kind": kind, "name": name},
            "subjects": [subject],
        },
    ]


# --- what the operator itself may do


_OWNER_VERBS = (*READ_VERBS, "create", "patch", "delete")
"""Of kinds that it owns: server-side apply is create and patch."""

_CLUSTER = (
    rule(GROUP, [PLURAL], [*READ_VERBS, "patch", "delete"]),
    rule(GROUP, [f"{PLURAL}/status"], ["patch"]),
    # Owner references that block an owner's deletion ask for this on the owner.
    rule(GROUP, [f"{PLURAL}/finalizers"], ["update"]),
    rule("", ["nodes"], [*READ_VERBS, "patch"]),
    rule("", ["pods"], READ_VERBS),
    rule("", ["pods/eviction"], ["create"]),
    rule("", ["events"], ["create", "patch"]),
    # Whether the operator whose policy this is has a namespace any more.
    rule("", ["namespaces"], ["get"]),
    rule("policy", ["poddisruptionbudgets"], ["list", "watch"]),
    # All of them, also those of others: one that is there under a wanted name is used as it is.
    rule("node.k8s.io", ["runtimeclasses"], _OWNER_VERBS),
    # While NVIDIA's operator has a policy of its own, this one keeps its hands off the nodes.
    rule("nvidia.com", [PLURAL], ["list", "watch"]),
    rule(_RBAC_GROUP, ["clusterroles", "clusterrolebindings"], [*READ_VERBS, "create"]),
    rule(
        _RBAC_GROUP,
        ["clusterroles", "clusterrolebindings"],
        ["patch", "delete"],
        sorted(each.name for each in ACCOUNTS),
    ),
)
_NAMESPACE = (
    rule("", ["serviceaccounts", "configmaps", "services"], _OWNER_VERBS),
    rule("", ["pods"], [*READ_VERBS, "delete"]),
    rule("apps", ["daemonsets"], _OWNER_VERBS),
    rule(_RBAC_GROUP, ["roles", "rolebindings"], _OWNER_VERBS),
    rule("monitoring.coreos.com", ["servicemonitors", "prometheusrules"], _OWNER_VERBS),
    rule("coordination.k8s.io", ["leases"], ["create"]),
    rule("coordination.k8s.io", ["leases"], ["get", "update", "patch", "delete"], [LEASE]),
)


def cluster_rules() -> list[Raw]:
    """For the whole cluster."""
    return _merge_rules([*_CLUSTER, *(each for account in ACCOUNTS for each in account.cluster), _EVICTIONS])


def namespace_rules() -> list[Raw]:
    """In its own namespace."""
    return _merge_rules([*_NAMESPACE, *(each for account in ACCOUNTS for each in account.namespace), _NODE_FEATURES])


def _merge_rules(rules: Iterable[Raw]) -> list[Raw]:
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
