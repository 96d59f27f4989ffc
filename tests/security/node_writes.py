"""Writes by accounts whose token lies on nodes, and whether they are admitted.

The table to which every way of asking is held.
"""

import copy
from dataclasses import dataclass
from typing import Any

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n1",
        "uid": "u1",
        "resourceVersion": "7",
        "labels": {"kubernetes.io/hostname": "n1", "nvidia.com/gpu.deploy.driver": "true"},
        "annotations": {"purser.dev/inventory": "{}", "purser.dev/cordoned-by": "driver-upgrade", "a/b": "c"},
        "finalizers": ["example.org/keep"],
    },
    "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PurserGpuDisputed", "status": "False"}],
    },
}
BARE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}, "status": {}}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e.1", "namespace": "team"},
    "involvedObject": {"kind": "Pod", "namespace": "team", "name": "p", "uid": "p-1"},
    "reason": "GpuRefused",
    "message": "why",
    "count": 1,
    "source": {"component": "purser-agent"},
    "reportingComponent": "purser-agent",
    "reportingInstance": "n1",
}
AGENT, DISCOVERY, MIG, DRIVER = "purser-agent", "purser-gpu-discovery", "purser-mig-manager", "purser-driver"


@dataclass(frozen=True)
class Case:
    """One write."""

    says: str
    admitted: bool
    account: str = AGENT
    node: str = "n1"
    """Where the token is used; empty: it does not say."""
    operation: str = "UPDATE"
    resource: str = "nodes"
    new: Any = None
    old: Any = None
    name: str = "n1"


def changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with other values at some paths, whose keys are apart by ``|``; None takes one away."""
    found = copy.deepcopy(base)
    for path, value in changes.items():
        *above, last = path.split("|")
        place = found
        for key in above:
            place = place.setdefault(key, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return found


def _update(says: str, admitted: bool, changes: dict[str, Any], base: dict[str, Any] = NODE, **more: Any) -> Case:
    return Case(says, admitted, new=changed(base, changes), old=base, **more)


def _event(says: str, admitted: bool, changes: dict[str, Any], **more: Any) -> Case:
    """One that is reported again."""
    return Case(says, admitted, operation="CREATE", resource="events", new=changed(EVENT, changes), **more)


def _annotation(key: str, value: str | None = "x") -> dict[str, Any]:
    return {f"metadata|annotations|{key}": value}


_BY_SCHEDULER: dict[str, Any] = {"account": "purser-scheduler", "node": ""}
_OTHER_NODE = changed(NODE, {"metadata|name": "n2"})
_CONDITIONS = NODE["status"]["conditions"]
FIELDS = ("capacity", "allocatable")
_LISTED = changed(NODE, {f"status|{field}|nvidia.com/gpumem": "16k" for field in FIELDS})
_DISPUTED = [_CONDITIONS[0], {"type": "PurserGpuDisputed", "status": "True"}]
_UNHEALTHY = {"type": "PurserGpuUnhealthy", "status": "True"}

CASES = (
    _update("its inventory", True, _annotation("purser.dev/inventory")),
    _update("its kubelet's report", True, _annotation("purser.dev/kubelet")),
    _update("what it disputes", True, _annotation("purser.dev/disputes")),
    _update("an answer to Volcano's scheduler", True, _annotation("volcano.sh/node-vgpu-handshake")),
    _update("its inventory away", True, _annotation("purser.dev/inventory", None)),
    _update("a node's first annotation", True, _annotation("purser.dev/inventory"), BARE),
    _update(
        "its only annotation away",
        True,
        {"metadata|annotations": None},
        changed(BARE, _annotation("purser.dev/kubelet")),
    ),
    _update("nothing at all", True, {}),
    _update(
        "what the API server writes by itself", True, {"metadata|resourceVersion": "8", "metadata|managedFields": [{}]}
    ),
    _update("its own condition", True, {"status|conditions": _DISPUTED}),
    _update("its condition of health", True, {"status|conditions": [*_CONDITIONS, _UNHEALTHY]}),
    _update("its own condition away", True, {"status|conditions": _CONDITIONS[:1]}),
    _update("its own condition as the first", True, {"status|conditions": _DISPUTED[1:]}, BARE),
    _update("its inventory on another node", False, _annotation("purser.dev/inventory"), _OTHER_NODE, name="n2"),
    _update("its own condition on another node", False, {"status|conditions": _DISPUTED}, _OTHER_NODE, name="n2"),
    _update("nothing on another node", False, {}, _OTHER_NODE, name="n2"),
    _update("its inventory with a token that names no node", False, _annotation("purser.dev/inventory"), node=""),
    _update("discovery's facts", False, _annotation("purser.dev/node-facts")),
    _update("the operator's mark on a cordon", False, _annotation("purser.dev/cordoned-by", None)),
    _update("another value of it", False, _annotation("purser.dev/cordoned-by", "mig-change")),
    _update("somebody's annotation", False, _annotation("a/b")),
    _update("all annotations away", False, {"metadata|annotations": None}),
    _update("a key that begins like its own", False, _annotation("purser.dev/inventory2")),
    _update("a label", False, {"metadata|labels|node-role.kubernetes.io/control-plane": ""}),
    _update("a label of the operator's", False, {"metadata|labels|nvidia.com/gpu.deploy.driver": "false"}),
    _update("all labels away", False, {"metadata|labels": None}),
    _update("a node's first label", False, {"metadata|labels|x": "y"}, BARE),
    _update("taints away", False, {"spec|taints": None}),
    _update("another taint", False, {"spec|taints": []}),
    _update("a cordon", False, {"spec|unschedulable": True}),
    _update("finalizers away", False, {"metadata|finalizers": None}),
    _update("a finalizer", False, {"metadata|finalizers": ["x/y"]}, BARE),
    _update(
        "an owner", False, {"metadata|ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}
    ),
    _update("amounts that it lists", True, {f"status|{field}|nvidia.com/gpumem": "16k" for field in FIELDS}),
    _update("a node's first amount", True, {"status|allocatable": {"volcano.sh/gpu-memory": "9"}}, BARE),
    _update("another value of one", True, {"status|capacity|nvidia.com/gpumem": "0"}, _LISTED),
    _update("one away", True, {"status|capacity|nvidia.com/gpumem": None}, _LISTED),
    _update("the last one away", True, {"status|allocatable": None}, _LISTED),
    _update("an amount of another node", False, {"status|capacity|nvidia.com/gpumem": "1"}, _OTHER_NODE, name="n2"),
    _update("capacity", False, {"status|capacity": {"nvidia.com/gpu": "800"}}),
    _update("all capacity away", False, {"status|capacity": None}),
    _update("what pods can have of kubelet's devices", False, {"status|allocatable|nvidia.com/gpu": "800"}),
    _update("CPUs", False, {"status|capacity|cpu": "800"}),
    _update("an amount and CPUs", False, {"status|capacity|nvidia.com/gpumem": "1", "status|capacity|cpu": "8"}),
    _update("a word that begins like an amount", False, {"status|capacity|nvidia.com/gpumem2": "1"}),
    _update("addresses", False, {"status|addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}),
    _update(
        "another's condition", False, {"status|conditions": [{"type": "Ready", "status": "False"}, _CONDITIONS[1]]}
    ),
    _update("another's condition away", False, {"status|conditions": _CONDITIONS[1:]}),
    _update("all conditions away", False, {"status|conditions": None}),
    _update("an own key and another's", False, {**_annotation("purser.dev/inventory"), **_annotation("a/b")}),
    Case("a new node", False, operation="CREATE", new=BARE),
    Case("its node away", False, operation="DELETE", old=NODE),
    _update("discovery: its facts", True, _annotation("purser.dev/node-facts"), account=DISCOVERY),
    _update("discovery: the agent's inventory", False, _annotation("purser.dev/inventory"), account=DISCOVERY),
    _update("discovery: an amount", False, {"status|capacity|nvidia.com/gpumem": "1"}, account=DISCOVERY),
    _update("discovery: a condition", False, {"status|conditions": _DISPUTED}, account=DISCOVERY),
    _update("MIG: its result", True, _annotation("purser.dev/mig-result"), account=MIG),
    _update("MIG: the operator's request", False, _annotation("purser.dev/mig-wanted"), account=MIG),
    _update(
        "driver: labels of operands", True, {"metadata|labels|nvidia.com/gpu.deploy.nvsm": "paused"}, account=DRIVER
    ),
    _update(
        "driver: a label of them away", True, {"metadata|labels|nvidia.com/gpu.deploy.driver": None}, account=DRIVER
    ),
    _update("driver: a cordon", True, {"spec|unschedulable": True}, account=DRIVER),
    _update(
        "driver: a cordon lifted",
        True,
        {"spec|unschedulable": None},
        changed(NODE, {"spec|unschedulable": True}),
        account=DRIVER,
    ),
    _update("driver: a taint with it", False, {"spec|unschedulable": True, "spec|taints": None}, account=DRIVER),
    _update("driver: another label", False, {"metadata|labels|nvidia.com/gpu.present": "true"}, account=DRIVER),
    _update("driver: an annotation", False, _annotation("purser.dev/inventory"), account=DRIVER),
    _update(
        "driver: another node's cordon", False, {"spec|unschedulable": True}, _OTHER_NODE, name="n2", account=DRIVER
    ),
    _event("an event of a pod", True, {}, name="e.1"),
    _event("an event without a name yet", True, {}, name=""),
    _event("an event of its node", True, {"involvedObject": {"kind": "Node", "name": "n1"}}),
    _event("an event of another node", False, {"involvedObject": {"kind": "Node", "name": "n2"}}),
    _event("an event of a policy", False, {"involvedObject": {"kind": "ClusterPolicy", "name": "n1"}}),
    _event("an event of nothing", False, {"involvedObject": {}}),
    _event("an event in another node's name", False, {"reportingInstance": "n2"}),
    _event("an event in nobody's name", False, {"reportingInstance": None}),
    _event("an event in kubelet's name", False, {"reportingComponent": "kubelet"}),
    _event("an event from kubelet, as people read it", False, {"source": {"component": "kubelet", "host": "n1"}}),
    _event("an event without a source", True, {"source": None}),
    _update(
        "kubelet's event of the same node",
        False,
        {"reportingComponent": "purser-agent", "source": {"component": "purser-agent"}},
        changed(EVENT, {"reportingComponent": "kubelet", "source": {"component": "kubelet"}}),
        resource="events",
    ),
    _event("an event with a token that names no node", False, {}, node=""),
    _event("an event of discovery's", False, {}, account=DISCOVERY),
    _update("an event counted up", True, {"count": 2}, EVENT, resource="events", name="e.1"),
    _update(
        "another's event in its own name",
        False,
        {"reportingInstance": "n1"},
        changed(EVENT, {"reportingInstance": "n2"}),
        resource="events",
    ),
    _update(
        "an old event without a name in its own",
        False,
        {"reportingInstance": "n1"},
        changed(EVENT, {"reportingInstance": None}),
        resource="events",
    ),
    _update("an event about something else now", False, {"involvedObject|name": "q"}, EVENT, resource="events"),
    Case("an event away", False, operation="DELETE", resource="events", old=EVENT),
    _update("scheduler: the lock of a node", True, _annotation("hami.io/mutex.lock"), **_BY_SCHEDULER),
    _update("scheduler: another plugin's", True, _annotation("cambricon.com/dsmlu.lock"), **_BY_SCHEDULER),
    _update("scheduler: amounts", True, {"status|capacity|nvidia.com/gpumem": "1"}, **_BY_SCHEDULER),
    _update("scheduler: devices", False, {"status|capacity|nvidia.com/gpu": "9"}, **_BY_SCHEDULER),
    _update("scheduler: what plugins register", False, _annotation("hami.io/node-dcu-register"), **_BY_SCHEDULER),
    _update("scheduler: an inventory", False, _annotation("purser.dev/inventory"), **_BY_SCHEDULER),
    _update("scheduler: a label", False, {"metadata|labels|x": "y"}, **_BY_SCHEDULER),
    _update("scheduler: a taint", False, {"spec|taints": []}, **_BY_SCHEDULER),
    _update("scheduler: a cordon", False, {"spec|unschedulable": True}, **_BY_SCHEDULER),
    _update("scheduler: a condition", False, {"status|conditions": _DISPUTED}, **_BY_SCHEDULER),
    Case("scheduler: a new node", False, operation="CREATE", new=BARE, **_BY_SCHEDULER),
    Case("scheduler: a node away", False, operation="DELETE", old=NODE, **_BY_SCHEDULER),
    _event("scheduler: an event", True, {"reportingComponent": "purser-scheduler"}, **_BY_SCHEDULER),
)
