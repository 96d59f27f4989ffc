"""What the accounts of operands may do: no more than each needs, and never a wildcard."""

from collections.abc import Sequence

import msgspec

from purser.core.names import GRANT_KEY_CONFIGMAP
from purser.operator.names import NFD_GROUP
from purser.operator.operands import (
    dcgm_exporter,
    device_plugin,
    discovery,
    driver,
    gfd,
    mig_manager,
    node_status_exporter,
    toolkit,
    validator,
)
from purser.operator.operands.parts import GPU_DISCOVERY, Raw
from purser.operator.order import Operand
from purser.operator.policy.spec import ClusterPolicySpec

READ = ("get", "list", "watch")


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


_NODES = rule("", ["nodes"], READ)
_PODS = rule("", ["pods"], READ)
_EVENTS = rule("", ["events"], ["create", "patch"])
_DAEMON_SETS = rule("apps", ["daemonsets"], READ)
_PATCH_NODE = rule("", ["nodes"], ["list", "watch", "patch"])
_PATCH_NODE_STATUS = rule("", ["nodes/status"], ["patch"])
_KEYS = rule("", ["configmaps"], ["list", "watch"], [GRANT_KEY_CONFIGMAP])

AGENT = Account(
    name=device_plugin.AGENT_ACCOUNT,
    operand=Operand.DEVICE_PLUGIN,
    cluster=(_PODS, _PATCH_NODE, _PATCH_NODE_STATUS, _EVENTS),
    namespace=(_KEYS,),
)
"""The same as the Helm chart gives it without an operator."""

# The driver manager labels its node, and looks for pods that use the driver: of DaemonSets in any namespace.
_DRIVER = Account(
    name=driver.ACCOUNT,
    operand=Operand.DRIVER,
    cluster=(rule("", ["nodes"], [*READ, "patch"]), _PODS, rule("apps", ["daemonsets"], ["get"])),
)
_OTHERS = (
    Account(name=toolkit.ACCOUNT, operand=Operand.TOOLKIT, namespace=(_DAEMON_SETS,)),
    Account(name=device_plugin.ACCOUNT, operand=Operand.DEVICE_PLUGIN, cluster=(_NODES,), namespace=(_DAEMON_SETS,)),
    Account(
        name=gfd.ACCOUNT,
        operand=Operand.GFD,
        cluster=(_NODES,),
        namespace=(rule("", ["pods"], ["get"]), rule(NFD_GROUP, ["nodefeatures"], [*READ, "create", "update"])),
    ),
    Account(name=validator.ACCOUNT, operand=Operand.VALIDATOR, cluster=(_NODES,), namespace=(_DAEMON_SETS,)),
    Account(name=dcgm_exporter.ACCOUNT, operand=Operand.DCGM_EXPORTER, cluster=(_PODS,)),
    Account(
        name=node_status_exporter.ACCOUNT,
        operand=Operand.NODE_STATUS_EXPORTER,
        cluster=(_NODES,),
        namespace=(_PODS, _DAEMON_SETS),
    ),
    Account(name=mig_manager.ACCOUNT, operand=Operand.MIG_MANAGER, cluster=(_PATCH_NODE,)),
    Account(name=discovery.ACCOUNT, operand=GPU_DISCOVERY, cluster=(rule("", ["nodes"], ["get", "patch"]),)),
)
ACCOUNTS = (_DRIVER, AGENT, *_OTHERS)
"""All that there can be."""


def accounts_of(spec: ClusterPolicySpec) -> list[Account]:
    """Those that a policy leads to."""
    purser = spec.device_plugin.flavor == "purser"
    unused = {device_plugin.ACCOUNT if purser else device_plugin.AGENT_ACCOUNT}
    if not dcgm_exporter.asks_api(spec.dcgm_exporter):
        unused.add(dcgm_exporter.ACCOUNT)
    running = {*spec.enabled, *([GPU_DISCOVERY] if spec.discovery.enabled else [])}
    return [each for each in ACCOUNTS if each.operand in running and each.name not in unused]
