"""The kubelets of all hollow nodes, in one: pods that are bound run, pods that are asked to go are gone soon.

What an operand's pod would write of its node is written here once that pod is ready: its GPUs, what discovery saw, and
the MIG worker's answers.
"""

import asyncio
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from purser.agent.mig.worker import answer
from purser.core.mig.listing import ids_by_resource, max_instances
from purser.core.model import Device, DeviceMode, Enforcement, NodeInventory
from purser.core.names import (
    GPU_RESOURCE,
    INVENTORY_ANNOTATION,
    MIG_RESULT_ANNOTATION,
    MIG_WANTED_ANNOTATION,
    NODE_FACTS_ANNOTATION,
)
from purser.core.node.amounts import listed_amounts
from purser.core.node.annotations import encode
from purser.core.node.facts import NodeFacts, PciGpu
from purser.core.node.mig_messages import MigRequest, MigResult, decode_request, decode_result
from purser.kube.client import Client
from purser.kube.clock import SystemClock, timestamp
from purser.kube.errors import ConflictError, NotFoundError
from purser.kube.informer import Informer
from purser.kube.pods import TERMINAL_PHASES
from purser.kube.resources import CONFIG_MAPS, NODES, PODS, Raw, key_of
from purser.kube.workqueue import WorkQueue, run_workers
from purser.lab.controllers.workloads.daemonplan import target
from purser.lab.controllers.workloads.owned import is_ready, owner_keys, phase
from purser.lab.hollow import pods as statuses
from purser.lab.hollow import vendors
from purser.lab.hollow.gpus import HollowGpus
from purser.lab.hollow.node import (
    FAMILY_ANNOTATION,
    LABEL,
    MIG_ANNOTATION,
    annotation,
    boot_of,
    device_count,
    device_id,
    gpu_count,
    has_nfd,
    is_away,
    is_failing,
    mig_kind_of,
    product_of,
    split_os,
)
from purser.lab.hollow.vendors import family_of
from purser.lab.kubelet.lease import keep_leases, renew_lease
from purser.operator.manifests import LAYOUTS_FILE, LAYOUTS_VOLUME, default_layouts

_WORKERS = 8
_VOLUME_RETRY_S = 1.0
_GPU_MEMORY_MIB = 80 * 1024
_SLOTS = 10
_PRODUCT_LABEL = "nvidia.com/gpu.product"
_UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}

log = structlog.get_logger("purser.lab.hollow")


class _ShownState(NamedTuple):
    doing: str
    boot: str
    restarts: int


class HollowFleet:
    """Kubelets of every Node with the label `LABEL`, while `run` runs. They find out by themselves which these are."""

    def __init__(
        self,
        client: Client,
        *,
        start_s: float = 0.05,
        stop_s: float = 0.05,
        binds_daemon_pods: bool = False,
        renews_leases: bool = False,
    ) -> None:
        """``start_s`` and ``stop_s``: how long a pod takes to become ready, and to end. ``binds_daemon_pods``: where no
        scheduler runs, pods that can run on one node only are bound to it here. ``renews_leases``: where a real
        kube-controller-manager runs, which takes nodes without for lost."""
        self._client = client
        self._start_s = start_s
        self._stop_s = stop_s
        self._binds = binds_daemon_pods
        self._renews_leases = renews_leases
        self._nodes: Informer[Raw] = Informer(client, NODES.raw(), label_selector=f"{LABEL}=true")
        self._pods: Informer[Raw] = Informer(client, PODS.raw())
        self._on: dict[str, set[str]] = defaultdict(set)
        """Keys of pods by node."""
        self._shown: dict[str, _ShownState] = {}
        """By uid of a pod: what was written of it."""
        self._mig_gpus: dict[str, HollowGpus] = {}
        self._folder = Path()
        """Of files that MIG workers have of ConfigMaps."""
        self._pod_queue: WorkQueue[str] = WorkQueue(initial_s=0.05, cap_s=2.0)
        self._node_queue: WorkQueue[str] = WorkQueue(initial_s=0.05, cap_s=2.0)
        self._nodes.add_handler(self._node_changed, lambda _, node: self._node_changed(node))
        self._pods.add_handler(self._pod_added, self._pod_updated, self._pod_deleted)

    async def run(self) -> None:
        """Until cancelled."""
        with tempfile.TemporaryDirectory(prefix="purser-hollow-") as folder:
            self._folder = Path(folder)
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            await self._nodes.synced()
            group.create_task(self._pods.run())
            if self._renews_leases:
                group.create_task(keep_leases(self._client, SystemClock(), self._live_nodes))
            group.create_task(run_workers(self._pod_queue, self._work_pod, _WORKERS))
            group.create_task(run_workers(self._node_queue, self._work_node, _WORKERS))

    # --- handlers of informers

    def _node_changed(self, node: Raw) -> None:
        name = node["metadata"]["name"]
        self._node_queue.add(name)
        for key in self._on[name]:
            self._pod_queue.add(key)

    def _pod_added(self, pod: Raw) -> None:
        if self._place(pod):
            self._on[self._place(pod)].add(key_of(pod))
            self._pod_queue.add_after(key_of(pod), self._start_s)
        elif self._binds and owner_keys(pod, "DaemonSet"):
            self._pod_queue.add(key_of(pod))

    def _pod_updated(self, old: Raw, pod: Raw) -> None:
        key, place = key_of(pod), self._place(pod)
        if place and not self._place(old):
            self._pod_added(pod)
        elif place and pod["metadata"].get("deletionTimestamp"):
            self._pod_queue.add_after(key, self._stop_s)
        if place and is_ready(pod) != is_ready(old):
            self._node_queue.add(place)
            self._correct_readiness(pod)

    def _correct_readiness(self, pod: Raw) -> None:
        """The node lifecycle controller says of a lost node's pods that they are not ready: kubelet says otherwise."""
        shown = self._shown.get(pod["metadata"]["uid"])
        if shown is not None and shown.doing == "running" and not is_ready(pod):
            self._shown[pod["metadata"]["uid"]] = shown._replace(doing="")
            self._pod_queue.add(key_of(pod))

    def _pod_deleted(self, pod: Raw) -> None:
        self._shown.pop(pod["metadata"]["uid"], None)
        self._on[self._place(pod)].discard(key_of(pod))
        self._node_queue.add(self._place(pod))

    def _place(self, pod: Raw) -> str:
        return str(pod["spec"].get("nodeName") or "")

    # --- pods

    async def _work_pod(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None:
            return
        if not self._place(pod):
            await self._bind(pod)
            return
        node = self._nodes.store.get(self._place(pod))
        if node is None or is_away(node):
            return
        try:
            if pod["metadata"].get("deletionTimestamp"):
                await self._end(pod)
            elif phase(pod) not in TERMINAL_PHASES:
                await self._serve(pod, node)
                await self._show(pod, node)
        except (NotFoundError, ConflictError):
            return  # Somebody else ended it.

    async def _bind(self, pod: Raw) -> None:
        metadata, node = pod["metadata"], target(pod)
        if node in self._nodes.store:
            try:
                await self._client.bind(metadata["namespace"], metadata["name"], metadata["uid"], node, {})
            except (NotFoundError, ConflictError):
                return

    async def _end(self, pod: Raw) -> None:
        metadata = pod["metadata"]
        await self._client.delete(
            PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace_period_seconds=0
        )

    async def _serve(self, pod: Raw, node: Raw) -> None:
        """As a device plugin of HAMi's answers Allocate for the pod that its node is locked for, and unlocks it."""
        family, metadata = family_of(annotation(node, FAMILY_ANNOTATION)), pod["metadata"]
        changes = {} if family is None else vendors.served(metadata.get("annotations") or {})
        if family is None or not changes:
            return
        patch = {"metadata": {"uid": metadata["uid"], "annotations": changes}}
        await self._client.patch_merge(PODS, metadata["name"], patch, metadata["namespace"])
        if family.lock is not None:
            unlocked = {"metadata": {"annotations": {family.lock.annotation: None}}}
            await self._client.patch_merge(NODES, node["metadata"]["name"], unlocked)

    async def _show(self, pod: Raw, node: Raw) -> None:
        """What the pod does, if that is not written yet."""
        uid, boot = pod["metadata"]["uid"], boot_of(node)
        known = self._shown.get(uid, _ShownState("", boot, _restart_count(pod)))
        if known.boot != boot:
            self._shown[uid] = again = _ShownState("restarting", boot, known.restarts + 1)
            await self._write(pod, statuses.restarting_status(pod, self._now(), again.restarts))
            self._pod_queue.add_after(key_of(pod), self._start_s)
            return
        doing = "crashing" if is_failing(node, pod) else "running"
        if known.doing != doing:
            make = statuses.crashing_status if doing == "crashing" else statuses.running
            await self._write(pod, make(pod, self._now(), known.restarts))
            self._shown[uid] = _ShownState(doing, boot, known.restarts)

    async def _write(self, pod: Raw, status: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self._client.patch_merge(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")

    # --- nodes

    async def _work_node(self, name: str) -> None:
        node = self._nodes.store.get(name)
        if node is None:
            return
        try:
            await self._report(node)
            await self._taint(node)
            if not is_away(node):
                await self._describe(node)
        except NotFoundError:
            return

    def _live_nodes(self) -> list[str]:
        return [node["metadata"]["name"] for node in self._nodes.store.values() if not is_away(node)]

    async def _report(self, node: Raw) -> None:
        """Readiness, boot and GPUs, where they differ from what stands there."""
        status = node.get("status") or {}
        wanted = "Unknown" if is_away(node) else "True"
        patch: dict[str, Any] = {}
        if all((c["type"], c["status"]) != ("Ready", wanted) for c in status.get("conditions") or ()):
            reason = "KubeletReady" if wanted == "True" else "NodeStatusUnknown"
            ready = {"type": "Ready", "status": wanted, "reason": reason, "message": "hollow"}
            patch["conditions"] = [{**ready, "lastTransitionTime": self._now()}]
            if self._renews_leases and wanted == "True":  # before the node is taken for lost by its old one
                await renew_lease(self._client, node["metadata"]["name"], SystemClock().now())
        if (status.get("nodeInfo") or {}).get("bootID") != boot_of(node):
            patch["nodeInfo"] = {"bootID": boot_of(node)}
        family = family_of(annotation(node, FAMILY_ANNOTATION))
        devices, runs = _listed(node), self._runs(node, "device-plugin")
        wanted_devices = {name: str(count if runs else 0) for name, count in devices.items()}
        if family is not None:  # its plugin is not Purser's
            wanted_devices = vendors.listed(family, device_count(node))
        there = status.get("allocatable") or {}
        if not is_away(node) and any(there.get(name, "0") != count for name, count in wanted_devices.items()):
            # The amounts are the agent's, and stay while it is away.
            amounts = listed_amounts(_inventory(node), ()) if runs and gpu_count(node) and family is None else {}
            listed = {**wanted_devices, **{name: str(amount) for name, amount in amounts.items()}}
            patch |= {"capacity": listed, "allocatable": listed}
        if patch:
            await self._client.patch_merge(NODES, node["metadata"]["name"], {"status": patch}, subresource="status")

    async def _taint(self, node: Raw) -> None:
        """As the node lifecycle controller does: no pod is scheduled to a node without heartbeats."""
        taints = (node.get("spec") or {}).get("taints") or []
        others = [each for each in taints if each["key"] != _UNREACHABLE["key"]]
        wanted = [*others, _UNREACHABLE] if is_away(node) else others
        if len(wanted) != len(taints):
            await self._client.patch_merge(NODES, node["metadata"]["name"], {"spec": {"taints": wanted}})

    async def _describe(self, node: Raw) -> None:
        """What pods on the node write of it."""
        annotations: dict[str, str] = {}
        if self._runs(node, "device-plugin") and gpu_count(node):
            annotations[INVENTORY_ANNOTATION] = msgspec.json.encode(_inventory(node)).decode()
        if (family := family_of(annotation(node, FAMILY_ANNOTATION))) is not None:
            annotations |= vendors.registration(family, node["metadata"]["name"], device_count(node))
        if self._runs(node, "gpu-discovery"):
            annotations[NODE_FACTS_ANNOTATION] = _facts(node)
        worker = self._pod_of(node, "mig-manager")
        if worker is not None and (result := await self._mig_answer(node, worker)):
            annotations[MIG_RESULT_ANNOTATION] = result
        labels: dict[str, str] = {}
        if self._runs(node, "gpu-feature-discovery") and product_of(node) and has_nfd(node):
            labels[_PRODUCT_LABEL] = product_of(node)
        patch = {**_changed_values(node, "annotations", annotations), **_changed_values(node, "labels", labels)}
        if patch:
            await self._client.patch_merge(NODES, node["metadata"]["name"], {"metadata": patch})

    async def _mig_answer(self, node: Raw, worker: Raw) -> str:
        """As Purser's MIG worker, a pod on the node, answers on GPUs that are not there. Empty: nothing is asked that
        has no answer, or there is nothing to answer by."""
        request = decode_request(annotation(node, MIG_WANTED_ANNOTATION))
        result = decode_result(annotation(node, MIG_RESULT_ANNOTATION))
        behaviour = annotation(node, MIG_ANNOTATION)
        if request is None or (result is not None and result.attempt == request.attempt):
            return ""
        if behaviour == "silent" or (behaviour == "hanging" and not request.check_only):
            return ""
        name = node["metadata"]["name"]
        try:
            text = await self._layouts(worker)
        except NotFoundError:  # a real kubelet does not start the pod before its volume is there
            self._node_queue.add_after(name, _VOLUME_RETRY_S)
            return ""
        gpus = self._mig_gpus.setdefault(name, HollowGpus(gpu_count(node), device_id(product_of(node))))
        gpus.is_refusing = behaviour == "refusing"
        return encode(await asyncio.to_thread(self._answer_request, text, request, gpus))

    async def _layouts(self, worker: Raw) -> str | None:
        """The file that a MIG worker's pod mounts, None where its ConfigMap has none; of a pod without the volume
        Purser's own. Raises `NotFoundError`, `KubeError`."""
        volumes = {each["name"]: each for each in worker["spec"].get("volumes") or ()}
        source = volumes.get(LAYOUTS_VOLUME, {}).get("configMap")
        if source is None:
            return default_layouts()
        found = await self._client.get(CONFIG_MAPS, source["name"], worker["metadata"]["namespace"])
        return found.data.get(LAYOUTS_FILE)

    def _answer_request(self, layouts: str | None, request: MigRequest, gpus: HollowGpus) -> MigResult:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            path = Path(folder) / LAYOUTS_FILE
            if layouts is not None:
                path.write_text(layouts, encoding="utf-8")
            return answer(request, path, lambda: gpus)

    def _runs(self, node: Raw, operand: str) -> bool:
        """Whether a pod of the operand is ready there."""
        return self._pod_of(node, operand) is not None

    def _pod_of(self, node: Raw, operand: str) -> Raw | None:
        """A pod of the operand that is ready there."""
        for key in self._on[node["metadata"]["name"]]:
            pod = self._pods.store.get(key)
            labels = (pod["metadata"].get("labels") or {}) if pod is not None else {}
            if pod is not None and labels.get("purser.dev/operand") == operand and is_ready(pod):
                return pod
        return None

    def _now(self) -> str:
        return timestamp(SystemClock().now())


def _changed_values(node: Raw, kind: str, wanted: dict[str, str]) -> dict[str, dict[str, str]]:
    there = node["metadata"].get(kind) or {}
    differing = {key: value for key, value in wanted.items() if there.get(key) != value}
    return {kind: differing} if differing else {}


def _restart_count(pod: Raw) -> int:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(each.get("restartCount", 0)) for each in containers), default=0)


def _inventory(node: Raw) -> NodeInventory:
    name, kind = node["metadata"]["name"], mig_kind_of(node)
    gpu = Device(uuid="", index=0, model="Hollow", memory_mib=_GPU_MEMORY_MIB, slots=_SLOTS)
    if kind is not None:
        cut = {"mode": DeviceMode.MIG, "enforcement": Enforcement.MIG, "mig_kind": kind.name}
        gpu = msgspec.structs.replace(gpu, slots=max_instances(kind), **cut)
    gpus = (msgspec.structs.replace(gpu, uuid=f"GPU-{name}-{at}", index=at) for at in range(gpu_count(node)))
    return NodeInventory(node=name, devices=tuple(gpus))


def _listed(node: Raw) -> dict[str, int]:
    """How many ids its device plugin lists, by resource."""
    found: Counter[str] = Counter({GPU_RESOURCE: 0})
    for device in _inventory(node).devices:
        found.update({resource: len(ids) for resource, ids in ids_by_resource(device).items()})
    return dict(found)


def _facts(node: Raw) -> str:
    os_id, version = split_os(str(((node.get("status") or {}).get("nodeInfo") or {}).get("osImage", "")))
    gpus = tuple(PciGpu(device_id(product_of(node))) for _ in range(gpu_count(node)))
    return encode(NodeFacts(os_id=os_id, os_version=version, gpus=gpus))
