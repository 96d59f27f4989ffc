"""A cluster in memory for the operator's kernel: what it decides is done at once, and controllers answer.

`World.round` is one round of the operator, `World.tick` a second of everybody else: DaemonSet controller, kubelets,
Purser's discovery and MIG worker on nodes, garbage collector. Nothing here is random, and no clock runs by itself.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from copy import copy, deepcopy
from functools import cache, wraps
from hashlib import sha256
from typing import Any, ParamSpec

import msgspec

from purser.core.kubernetes.taints import Taint
from purser.core.kubernetes.times import spelled
from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION, NODE_FACTS_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.facts import NodeFacts, PciGpu
from purser.core.node.mig_messages import MigResult, decode_request
from purser.operator.acting import subject
from purser.operator.deciding import nodes_to_inspect, reconcile
from purser.operator.gates.progress import untolerated_taint
from purser.operator.manifests.objects import applied_hash
from purser.operator.model import (
    Action,
    Adopt,
    AppliedObject,
    Apply,
    Budget,
    Delete,
    DeletePod,
    Evict,
    NodeView,
    NodeWorkload,
    ObjectKey,
    OperandPod,
    PatchNode,
    RefusedWrite,
    RoundOutcome,
    SetFinalizer,
    Snapshot,
    WriteStatus,
    patched,
)
from purser.operator.names import (
    DRIVER_CONFIG_LABEL,
    GROUP,
    KIND,
    NFD_KERNEL_LABEL,
    NFD_OS_ID_LABEL,
    NFD_OS_VERSION_LABEL,
    NFD_PREFIX,
    OPERAND_LABEL,
    TEMPLATE_LABEL,
    VERSION,
)
from purser.operator.order import Operand

NAMESPACE = "gpu"
START = 1_800_000_000.0
P = ParamSpec("P")
LINUX = {"kubernetes.io/os": "linux"}
GPU_LABEL = f"{NFD_PREFIX}pci-10de.present"


class Died(Exception):
    """The operator was killed between two writes."""


class World:
    """A cluster, and an operator that may die after any of its writes."""

    def __init__(self) -> None:
        self.now = START
        self.policies: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, NodeView] = {}
        self.gpus: dict[str, int] = {}
        """What is really in a node."""
        self.cards: dict[str, str] = {}
        """By node: PCI device id of these GPUs; where it is not given a Tesla T4, which cannot MIG."""
        self.objects: dict[ObjectKey, dict[str, Any]] = {}
        """Whoever changes one puts another in its place: parts of it are those of the rendered one, and of copies."""
        self.pods: dict[str, OperandPod] = {}
        self.settled: dict[ObjectKey, AppliedObject] = {}
        self.workloads: dict[str, NodeWorkload] = {}
        self.budgets: tuple[Budget, ...] = ()
        self.troubles: dict[tuple[str, str], str] = {}
        """(node, operand) -> why its pod does not become ready."""
        self.ready_in_boot: dict[str, set[str]] = {}
        """By node: operands that have been ready since it was started."""
        self.rivals: tuple[str, ...] = ()
        self.config_maps: dict[str, tuple[str, ...]] = {}
        """Of people: their keys."""
        self.foreign: frozenset[ObjectKey] = frozenset()
        self.refusing: dict[str, str] = {}
        """What the server refuses, as its key is spelled -> what it says."""
        self.refusals: tuple[RefusedWrite, ...] = ()
        self.lingering = False
        """Pods that were asked to go take their time."""
        self.mig_errors: dict[str, str] = {}
        self.history: list[Action] = []
        self.let_in: list[tuple[str, str]] = []
        """(node, operand), in the order in which operands were let in."""
        self.writes_left: int | None = None
        """After so many writes the operator dies; None: never."""
        self.watchers: list[Callable[[Action], None]] = []
        self._count = 0

    def copy(self) -> "World":
        """Another one that goes on from here; nobody watches it."""
        found = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list):
                setattr(found, name, value.copy())
        found.policies = deepcopy(self.policies)
        found.ready_in_boot = {name: set(operands) for name, operands in self.ready_in_boot.items()}
        found.watchers = []
        return found

    # --- what people and machines do

    def add_policy(self, name: str = "gpus", spec: Mapping[str, Any] | None = None, **metadata: Any) -> None:
        self.now += 1
        self.policies[name] = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "metadata": {
                "name": name,
                "uid": self._uid("policy"),
                "creationTimestamp": spelled(self.now),
                "generation": 1,
                "resourceVersion": self._uid(""),
                **metadata,
            },
            "spec": dict(spec or {}),
        }

    def change_policy(self, spec: Mapping[str, Any], name: str = "gpus") -> None:
        metadata = self.policies[name]["metadata"]
        self.policies[name]["spec"] = dict(spec)
        metadata["generation"] += 1
        metadata["resourceVersion"] = self._uid("")

    def delete_policy(self, name: str = "gpus") -> None:
        metadata = self.policies[name]["metadata"]
        if metadata.get("finalizers"):
            metadata["deletionTimestamp"] = spelled(self.now)
        else:
            del self.policies[name]

    def add_node(
        self,
        name: str,
        *,
        gpus: int = 1,
        nfd: bool = True,
        os: str = "22.04",
        labels: Mapping[str, str] = {},
        **more: Any,
    ) -> None:
        fields: dict[str, Any] = {
            "os_image": f"Ubuntu {os} LTS",
            "kernel": "6.8.0-45-generic",
            "runtime": "containerd://1.7.22",
            "boot_id": f"{name}-boot-1",
            "kubelet_version": "v1.31.1",
            **more,
        }
        self.gpus[name] = gpus
        self.nodes[name] = NodeView(name=name, uid=self._uid("node"), labels=LINUX | dict(labels), **fields)
        self._start_anew(name)
        if nfd:
            self.label(name, **self.nfd_labels(name))

    def nfd_labels(self, name: str) -> dict[str, str]:
        node = self.nodes[name]
        found = {
            NFD_KERNEL_LABEL: node.kernel,
            NFD_OS_ID_LABEL: "ubuntu",
            NFD_OS_VERSION_LABEL: node.os_image.split()[1],
        }
        return found | ({GPU_LABEL: "true"} if self.gpus[name] else {})

    def nfd_leaves(self, *names: str) -> None:
        for name in names or tuple(self.nodes):
            self.label(name, **{key: None for key in self.nodes[name].labels if key.startswith(NFD_PREFIX)})

    def nfd_comes(self, *names: str) -> None:
        for name in names or tuple(self.nodes):
            self.label(name, **self.nfd_labels(name))

    def label(self, node: str, **labels: str | None) -> None:
        self.nodes[node] = patched(self.nodes[node], PatchNode(node=node, labels=labels))

    def set_node(self, name: str, **fields: Any) -> None:
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], **fields)

    def annotate(self, node: str, key: str, value: str | None) -> None:
        self.nodes[node] = patched(self.nodes[node], PatchNode(node=node, annotations={key: value}))

    def reboot(self, name: str, **fields: Any) -> None:
        """Containers end, and are started again; kubelet says so together with the new boot."""
        self.set_node(name, boot_id=f"{name}-boot-{self._uid('')}", **fields)
        self._start_anew(name)

    def _start_anew(self, name: str) -> None:
        """The pods of a node that has just started, those of an earlier node of its name included."""
        self.ready_in_boot[name] = set()
        for pod in self.on(name):
            self._set_pod(pod, ready=False, ready_changed=self.now)

    def restart_driver(self, name: str) -> None:
        """Somebody deletes the driver's pod."""
        for pod in self.on(name):
            if pod.operand == Operand.DRIVER:
                self._set_pod(pod, terminating=True)

    def crash(self, node: str, operand: str, why: str = "CrashLoopBackOff") -> None:
        self.troubles[node, operand] = why
        for pod in self.on(node):
            if pod.operand == operand:
                self._set_pod(pod, ready=False, ready_changed=self.now, trouble=why, restarts=5, message="it broke")

    def heal(self, node: str, operand: str) -> None:
        del self.troubles[node, operand]

    # --- the operator

    def snapshot(self) -> Snapshot:
        seen = self._seen_by_operator()
        look = nodes_to_inspect(seen)
        pods = {name: tuple(each for each in self.workloads.values() if each.node == name) for name in look}
        return msgspec.structs.replace(seen, workloads=pods)

    def _seen_by_operator(self) -> Snapshot:
        return Snapshot(
            now=self.now,
            namespace=NAMESPACE,
            purser_image="purser:1",
            policies=tuple(self.policies.values()),
            nodes=tuple(self.nodes.values()),
            objects=dict(self.objects),
            settled=dict(self.settled),
            pods=tuple(self.pods.values()),
            budgets=self.budgets,
            versions={name: self.version(name) for name in self.nodes},
            foreign=self.foreign,
            rivals=self.rivals,
            config_keys=self.config_maps,
            refusals=self.refusals,
        )

    def round(self) -> RoundOutcome:
        """One round; raises `Died` at the write at which the operator is to die."""
        outcome = reconcile(self.snapshot())
        refusals = []
        for action in outcome.actions:
            if self.writes_left == 0:
                self.writes_left = None
                self.settled = {}
                self.refusals = ()
                raise Died
            key = subject(action)
            if told := self.refusing.get(str(key)):
                refusals.append(RefusedWrite(key, told))
                continue
            self.do(action)
            if self.writes_left is not None:
                self.writes_left -= 1
        self.refusals = tuple(refusals)
        return outcome

    def settle(self, limit: int = 400) -> None:
        """Rounds and ticks until nothing changes any more; an operator that dies is restarted."""
        for _ in range(limit):
            try:
                busy = bool(self.round().actions)
            except Died:
                busy = True
            if not self.tick() and not busy:
                return
        raise AssertionError(f"the world does not settle; last: {self.history[-5:]}")

    def run(self, rounds: int) -> None:
        """So many rounds, and a tick after each."""
        for _ in range(rounds):
            self.round()
            self.tick()

    def run_until(self, holds: Callable[[], bool], limit: int = 100) -> None:
        """Rounds, and a tick after each but the last: after that one something holds."""
        for _ in range(limit):
            self.round()
            if holds():
                return
            self.tick()
        raise AssertionError(f"that never came; last: {self.history[-5:]}")

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def do(self, action: Action) -> None:
        self.history.append(action)
        for watcher in self.watchers:
            watcher(action)
        match action:
            case Apply():
                self._apply(action)
            case Adopt(key=key, owner=owner):
                live = self.objects[key]
                self.objects[key] = live | {"metadata": live["metadata"] | {"ownerReferences": [dict(owner)]}}
            case Delete(key=key, uid=uid):
                if key in self.objects and self.objects[key]["metadata"]["uid"] == uid:
                    del self.objects[key]
            case PatchNode():
                self._patch(action)
            case DeletePod(pod=pod):
                if pod.uid in self.pods:
                    self._set_pod(self.pods[pod.uid], terminating=True)
            case Evict(workload=workload):
                self.workloads.pop(workload.uid, None)
            case WriteStatus(policy=name, status=status):
                if name in self.policies:
                    self.policies[name]["status"] = msgspec.json.decode(msgspec.json.encode(status))
                    self.policies[name]["metadata"]["resourceVersion"] = self._uid("")
            case SetFinalizer():
                self._finalize(action)

    def _apply(self, action: Apply) -> None:
        key = ObjectKey.of(action.object)
        before = self.objects.get(key)
        same = before is not None and before.get("spec") == action.object.get("spec")
        old = before["metadata"] if before is not None else {"uid": self._uid("object"), "generation": 0}
        server_s = {"uid": old["uid"], "generation": old["generation"] + (not same)}
        live = {**action.object, "metadata": action.object["metadata"] | server_s}
        if before is not None and "status" in before:
            live["status"] = before["status"]
        self.objects[key] = live
        self.settled[key] = AppliedObject(applied_hash(live), live)

    def _patch(self, action: PatchNode) -> None:
        if action.node not in self.nodes:
            return
        assert action.resource_version == self.version(action.node), "a patch is made on what was looked at"
        before, after = self.nodes[action.node], patched(self.nodes[action.node], action)
        self.nodes[action.node] = after
        for operand in Operand:
            if after.labels.get(operand.deploy_label) == "true" != before.labels.get(operand.deploy_label):
                self.let_in.append((action.node, operand.value))

    def _finalize(self, action: SetFinalizer) -> None:
        raw = self.policies.get(action.policy)
        if raw is None or raw["metadata"]["resourceVersion"] != action.resource_version:
            return
        raw["metadata"] |= {"finalizers": list(action.finalizers), "resourceVersion": self._uid("")}
        if not action.finalizers and "deletionTimestamp" in raw["metadata"]:
            del self.policies[action.policy]

    # --- Kubernetes

    def tick(self) -> bool:
        """A second passes for all the others; whether anything changed."""
        self.now += 1
        before = (dict(self.pods), dict(self.nodes), len(self.objects), self._seen())
        self._collect_garbage()
        self._kubelets()
        self._daemon_sets()
        self._workers()
        return before != (self.pods, self.nodes, len(self.objects), self._seen())

    def _seen(self) -> list[Any]:
        return [obj.get("status") for obj in self.objects.values()]

    def _collect_garbage(self) -> None:
        owners = {raw["metadata"]["uid"] for raw in self.policies.values()}
        for key, obj in list(self.objects.items()):
            references = obj["metadata"].get("ownerReferences", [])
            if references and not any(each["uid"] in owners for each in references):
                del self.objects[key]
        sets = {key.name for key in self.objects if key.kind == "DaemonSet"}
        for pod in list(self.pods.values()):
            if pod.daemon_set not in sets and not pod.terminating:
                self._set_pod(pod, terminating=True)

    def _kubelets(self) -> None:
        for pod in list(self.pods.values()):
            node = self.nodes.get(pod.node)
            if node is None:
                del self.pods[pod.uid]
            elif not node.ready:
                self._set_pod(pod, ready=False)
            elif pod.terminating and not self.lingering:
                del self.pods[pod.uid]
            elif (pod.node, pod.operand) in self.troubles:
                why = self.troubles[pod.node, pod.operand]
                self._set_pod(pod, ready=False, trouble=why, restarts=5, message="it broke")
            elif not pod.ready:
                self._set_pod(pod, ready=True, ready_changed=self.now, trouble="", restarts=0, message="")
                self.ready_in_boot.setdefault(pod.node, set()).add(pod.operand)

    def _daemon_sets(self) -> None:
        for key in sorted(self.objects):
            if key.kind == "DaemonSet":
                self._daemon_set(key, self.objects[key])

    def _daemon_set(self, key: ObjectKey, obj: dict[str, Any]) -> None:
        name, spec = obj["metadata"]["name"], obj["spec"]
        template = spec["template"]
        mine = [pod for pod in self.pods.values() if pod.daemon_set == name]
        wanted = {node.name for node in self.nodes.values() if _schedules(template["spec"], node)}
        untolerated = {name for name in wanted if untolerated_taint(self.nodes[name], [template["spec"]]) is not None}
        for pod in mine:
            if pod.node not in wanted:
                self._set_pod(pod, terminating=True)
        for node in sorted(wanted - untolerated - {pod.node for pod in mine}):
            self._create_pod(name, node, template["metadata"]["labels"])
        labels = template["metadata"]["labels"]
        old = [pod for pod in mine if pod.template != labels.get(TEMPLATE_LABEL, "") and pod.node in wanted]
        if spec["updateStrategy"]["type"] == "RollingUpdate" and old and not any(pod.terminating for pod in mine):
            self._set_pod(min(old, key=lambda pod: pod.node), terminating=True)
        self.objects[key] = obj | {"status": {"observedGeneration": obj["metadata"]["generation"]}}

    def _create_pod(self, daemon_set: str, node: str, labels: Mapping[str, str]) -> None:
        uid = self._uid("pod")
        self.pods[uid] = OperandPod(
            namespace=NAMESPACE,
            name=f"{daemon_set}-{uid}",
            uid=uid,
            node=node,
            operand=labels[OPERAND_LABEL],
            daemon_set=daemon_set,
            template=labels[TEMPLATE_LABEL],
            driver_config=labels.get(DRIVER_CONFIG_LABEL, ""),
            created=self.now,
        )

    def _workers(self) -> None:
        for pod in list(self.pods.values()):
            if not pod.ready or pod.terminating or pod.node not in self.nodes:
                continue
            if pod.operand == "gpu-discovery":
                gpus = tuple(PciGpu(self.cards.get(pod.node, "1eb8")) for _ in range(self.gpus[pod.node]))
                os_id, version = [*self.nodes[pod.node].os_image.lower().split(), "", ""][:2]
                facts = NodeFacts(os_id=os_id, os_version=version, gpus=gpus)
                self.annotate(pod.node, NODE_FACTS_ANNOTATION, encode(facts))
            elif pod.operand == Operand.MIG_MANAGER:
                self._mig_worker(pod.node)

    def _mig_worker(self, node: str) -> None:
        request = decode_request(self.nodes[node].annotations.get(MIG_WANTED_ANNOTATION))
        if request is not None:
            error = "" if request.check_only else self.mig_errors.get(node, "")
            result = MigResult(request.profile, request.attempt, error, differs=request.check_only)
            self.annotate(node, MIG_RESULT_ANNOTATION, encode(result))

    # --- what tests look at

    def version(self, node: str) -> str:
        """The resourceVersion of a node."""
        return sha256(msgspec.json.encode(self.nodes[node], order="deterministic")).hexdigest()

    def taint(self, node: str, key: str, effect: str = "NoSchedule") -> None:
        self.set_node(node, taints=(*self.nodes[node].taints, Taint(key, "", effect)))

    def on(self, node: str) -> list[OperandPod]:
        return [pod for pod in self.pods.values() if pod.node == node]

    def pod(self, node: str, operand: str) -> OperandPod | None:
        return next((pod for pod in self.on(node) if pod.operand == operand and not pod.terminating), None)

    def deployed(self, node: str) -> dict[str, str]:
        """The operands' labels of a node."""
        labels = self.nodes[node].labels
        return {each.value: labels[each.deploy_label] for each in Operand if each.deploy_label in labels}

    def status(self, name: str = "gpus") -> Any:
        return self.policies[name]["status"]

    def condition(self, kind: str, name: str = "gpus") -> Any:
        return next(each for each in self.status(name)["conditions"] if each["type"] == kind)

    def final(self) -> Any:
        """Everything that has to be equal however often the operator died; without uids, versions and times."""
        owners = {raw["metadata"]["uid"]: name for name, raw in self.policies.items()}
        objects = {}
        for key, obj in self.objects.items():
            text = json.dumps({k: v for k, v in obj.items() if k not in ("metadata", "status")}, sort_keys=True)
            owned = [owners.get(each["uid"], "nobody") for each in obj["metadata"].get("ownerReferences", [])]
            objects[key] = (text, obj["metadata"].get("labels"), owned)
        nodes = {name: (node.labels, sorted(node.annotations), node.unschedulable) for name, node in self.nodes.items()}
        pods = sorted((pod.node, pod.operand, pod.template, pod.ready) for pod in self.pods.values())
        policies = {
            name: (raw["metadata"].get("finalizers"), _timeless(raw.get("status")))
            for name, raw in self.policies.items()
        }
        return objects, nodes, pods, policies

    def _set_pod(self, pod: OperandPod, **fields: Any) -> None:
        self.pods[pod.uid] = msgspec.structs.replace(self.pods[pod.uid], **fields)

    def _uid(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"


def made_once(make: Callable[P, World]) -> Callable[P, World]:
    """The same world each time, as a copy of its own."""
    known = cache(make)

    @wraps(make)
    def copied(*args: P.args, **more: P.kwargs) -> World:
        return known(*args, **more).copy()  # type: ignore[arg-type]

    return copied


@made_once
def settled_world(*nodes: str, **labels: str) -> World:
    """A policy and these nodes with these labels, once nothing is left to do."""
    found = World()
    found.add_policy()
    for name in nodes:
        found.add_node(name, labels=labels)
    found.settle()
    return found


def _timeless(status: Any) -> Any:
    if status is None:
        return None
    bare = deepcopy(status)
    for each in bare["conditions"]:
        each.pop("last_transition_time", None)
        each.pop("lastTransitionTime", None)
    return bare


def _schedules(spec: Mapping[str, Any], node: NodeView) -> bool:
    selected = all(node.labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
    return selected and _fits_affinity(spec.get("affinity", {}), node)


def _fits_affinity(affinity: Mapping[str, Any], node: NodeView) -> bool:
    rule = affinity.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if rule is None:
        return True
    return any(all(_meets(each, node) for each in term["matchExpressions"]) for term in rule["nodeSelectorTerms"])


def _meets(expression: Mapping[str, Any], node: NodeView) -> bool:
    value = node.labels.get(expression["key"])
    match expression["operator"]:
        case "Exists":
            return value is not None
        case "In":
            return value in expression["values"]
        case _:
            return value is None


def same_order(events: Iterable[tuple[str, str]], node: str) -> list[str]:
    """Operands of one node, in the order in which they were let in."""
    return [operand for name, operand in events if name == node]
