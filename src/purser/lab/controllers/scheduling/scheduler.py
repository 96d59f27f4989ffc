"""The loop: one pod at a time, filters, extenders, scores, binding; and what happens when nothing fits."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock, timestamp
from purser.kube.errors import ApiError, ApiUnavailableError, ConflictError, KubeError, NotFoundError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.pods import TERMINAL_PHASES
from purser.kube.resources import PODS, Raw, ref_of
from purser.lab.controllers.scheduling import preemption
from purser.lab.controllers.scheduling.claims import find_obstacle
from purser.lab.controllers.scheduling.extender import ExtenderError, HttpExtender
from purser.lab.controllers.scheduling.filters import NodeMismatch, PodInfo, fit_error
from purser.lab.controllers.scheduling.nodes import NodeCache, NodeInfo, scheduling_key
from purser.lab.controllers.scheduling.nominations import PodNominator, nominated_node
from purser.lab.controllers.scheduling.queue import SchedulingQueue
from purser.lab.controllers.scheduling.requests import priority_of
from purser.lab.controllers.scheduling.scores import least_allocated

_RAW_PODS = PODS.raw()

log = structlog.get_logger("purser.lab.scheduler")


class NoNodeFitsError(Exception):
    """No node fits the pod; why, by node. ``why_none``: what was found before any node was looked at."""

    def __init__(self, node_count: int, unfits: dict[str, NodeMismatch], why_none: str = "") -> None:
        summary = f"0/{node_count} nodes are available: {why_none}."
        super().__init__(summary if why_none else fit_error(node_count, unfits.values()))
        self.unfits = unfits


class Scheduler:
    """One kube-scheduler with one profile. All nodes are scored (``percentageOfNodesToScore: 100``)."""

    def __init__(
        self,
        name: str,
        client: Client,
        pods: Informer[Raw],
        nodes: Informer[Raw],
        claims: Informer[Raw],
        extenders: Sequence[HttpExtender] = (),
        clock: Clock | None = None,
    ) -> None:
        self._name = name
        self._client = client
        self._pods = pods
        self._claims = claims
        self._extenders = extenders
        self._ignored = frozenset(name for each in extenders for name in each.settings.ignored_resources)
        self._clock = clock or SystemClock()
        self._cache = NodeCache()
        self._nominator = PodNominator()
        self._queue = SchedulingQueue(self._clock)
        self._recorder = EventRecorder(client, name, name, exact_times=True)
        pods.add_handler(on_add=self._pod_added, on_update=self._pod_updated, on_delete=self._pod_deleted)
        nodes.add_handler(on_add=self._node_added, on_update=self._node_updated, on_delete=self._node_deleted)
        claims.add_handler(on_add=lambda _: self._queue.move_all())

    async def run(self) -> None:
        """Schedule until cancelled."""
        await self._pods.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._loop())

    def resting(self) -> int:
        """How many pods were tried, did not fit, and are not due again yet."""
        return self._queue.resting()

    # --- handlers of informers

    def _pod_added(self, pod: Raw) -> None:
        self._cache.set_pod(pod)
        if self._is_own_pod(pod):
            self._queue.add(pod["metadata"]["uid"], priority_of(pod))
            if node := nominated_node(pod):
                self._nominator.nominate(pod, node)

    def _pod_updated(self, old: Raw, pod: Raw) -> None:
        if pod["spec"].get("nodeName"):
            self._cache.set_pod(pod)
            self._nominator.remove(pod)
            self._queue.remove(pod["metadata"]["uid"])
            if _phase(old) not in TERMINAL_PHASES and _phase(pod) in TERMINAL_PHASES:
                self._queue.move_all()
        elif self._is_own_pod(pod):
            self._pod_added(pod)
            self._nominator.update(old, pod)
            if nominated_node(old) and nominated_node(old) != nominated_node(pod):
                self._queue.move_all()
            if (old["spec"], old["metadata"].get("annotations")) != (pod["spec"], pod["metadata"].get("annotations")):
                self._queue.move_all()
        else:
            self._nominator.remove(pod)
            self._queue.remove(pod["metadata"]["uid"])

    def _pod_deleted(self, pod: Raw) -> None:
        self._cache.remove_pod(pod)
        was_nominated = bool(self._nominator.node_of(pod))
        self._nominator.remove(pod)
        self._queue.remove(pod["metadata"]["uid"])
        if was_nominated or (pod["spec"].get("nodeName") and _phase(pod) not in TERMINAL_PHASES):
            self._queue.move_all()

    def _node_added(self, node: Raw) -> None:
        self._cache.set_node(node)
        self._queue.move_all()

    def _node_updated(self, old: Raw, node: Raw) -> None:
        self._cache.set_node(node)
        if scheduling_key(old) != scheduling_key(node):
            self._queue.move_all()

    def _node_deleted(self, node: Raw) -> None:
        self._cache.remove_node(node)

    def _is_own_pod(self, pod: Raw) -> bool:
        return (
            pod["spec"].get("schedulerName", "default-scheduler") == self._name
            and not pod["spec"].get("nodeName")
            and not pod["spec"].get("schedulingGates")
            and not pod["metadata"].get("deletionTimestamp")
            and _phase(pod) not in TERMINAL_PHASES
        )

    # --- one attempt

    async def _loop(self) -> None:
        while True:
            uid, mark = await self._queue.pop()
            pod = self._pods.store.by_uid(uid)
            if pod is None or not self._is_own_pod(pod):
                self._queue.remove(uid)
                continue
            try:
                is_error = await self._schedule(pod)
            except Exception:  # whatever one pod does to the scheduler, the others get their turn
                log.exception("Scheduling a pod failed", pod=pod["metadata"]["name"])
                is_error = True
            if is_error is not None:
                self._queue.put_back(uid, mark, is_error=is_error)

    async def _schedule(self, pod: Raw) -> bool | None:
        """One attempt. Returns None where the pod is bound; else whether it was an error that kept it from a node."""
        try:
            await self._attempt(pod)
        except NoNodeFitsError as error:
            why_not = await self._preempt(pod, error)
            await self._refused(pod, f"{error} preemption: {why_not}" if why_not else str(error))
            return False
        except (ExtenderError, KubeError) as error:
            await self._refused(pod, str(error))
            return True
        return None

    async def _attempt(self, pod: Raw) -> None:
        """Raises `NoNodeFitsError`, `ExtenderError`, `KubeError`."""
        if why := find_obstacle(pod, self._claims.store.get):
            raise NoNodeFitsError(len(list(self._cache)), {}, why)
        extenders = [extender for extender in self._extenders if extender.is_interested(pod)]
        view = PodInfo.of(pod, self._ignored)
        fitting = await self._find_fitting_nodes(view, extenders)
        node = await self._best(view, fitting, extenders)
        await self._bind(pod, node, extenders)

    async def _find_fitting_nodes(self, view: PodInfo, extenders: Sequence[HttpExtender]) -> list[NodeInfo]:
        """The node that is nominated for the pod, where it fits: else all that fit. Raises `NoNodeFitsError`."""
        nominated = self._cache.get(self._nominator.node_of(view.pod))
        if nominated is not None:
            with contextlib.suppress(NoNodeFitsError):
                return await self._filter(view, extenders, [nominated])
        return await self._filter(view, extenders, list(self._cache))

    async def _filter(
        self, view: PodInfo, extenders: Sequence[HttpExtender], nodes: Sequence[NodeInfo]
    ) -> list[NodeInfo]:
        unfits: dict[str, NodeMismatch] = {}
        fitting: dict[str, NodeInfo] = {}
        for node in nodes:
            unfit = self._nominator.check(view, node)
            if unfit is None:
                fitting[node.name] = node
            else:
                unfits[node.name] = unfit
        for extender in extenders:
            if not fitting or not extender.settings.filter_verb:
                break
            try:
                result = await extender.filter(view.pod, fitting)
            except ExtenderError:
                if extender.settings.is_ignorable:
                    continue
                raise
            unfits |= {name: NodeMismatch((reason,), True) for name, reason in result.failed.items()}
            unfits |= {name: NodeMismatch((reason,), False) for name, reason in result.unresolvable_nodes.items()}
            fitting = {name: fitting[name] for name in result.node_names if name in fitting}
        if not fitting:
            raise NoNodeFitsError(len(nodes), unfits)
        return list(fitting.values())

    async def _best(self, view: PodInfo, fitting: list[NodeInfo], extenders: Sequence[HttpExtender]) -> str:
        if len(fitting) == 1:
            return fitting[0].name
        scores = {node.name: least_allocated(view, node) for node in fitting}
        for extender in extenders:
            if not extender.settings.prioritize_verb:
                continue
            try:
                extra = await extender.prioritize(view.pod, scores)
            except ExtenderError as error:
                # As kube-scheduler does: scores are a wish, the pod is placed without them.
                log.warning("An extender failed to return scores", error=str(error))
                continue
            for name, score in extra.items():
                if name in scores:
                    scores[name] += score
        return max(sorted(scores), key=scores.__getitem__)

    async def _bind(self, pod: Raw, node: str, extenders: Sequence[HttpExtender]) -> None:
        metadata = pod["metadata"]
        self._cache.assume(pod, node)
        self._nominator.remove(pod)
        binder = next((extender for extender in extenders if extender.settings.bind_verb), None)
        try:
            if binder is not None:
                await binder.bind(pod, node)
            else:
                await self._client.bind(metadata["namespace"], metadata["name"], metadata["uid"], node, {})
        except BaseException:
            self._forget(pod)
            raise
        self._queue.remove(metadata["uid"])
        message = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self._recorder.event(ref_of(_RAW_PODS, pod), "Scheduled", message)

    def _forget(self, pod: Raw) -> None:
        """Undo `assume`, unless the informer has seen the binding after all."""
        self._cache.remove_pod(pod)
        if (known := self._pods.store.by_uid(pod["metadata"]["uid"])) is not None:
            self._cache.set_pod(known)

    # --- nothing fits

    async def _refused(self, pod: Raw, message: str) -> None:
        self._recorder.event(ref_of(_RAW_PODS, pod), "FailedScheduling", message, type="Warning")
        conditions = (pod.get("status") or {}).get("conditions") or ()
        before = next((each for each in conditions if each.get("type") == "PodScheduled"), None)
        since = before.get("lastTransitionTime") if before is not None and before.get("status") == "False" else None
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": since or timestamp(self._clock.now()),
        }
        if condition != before:  # as UpdatePodCondition (pkg/api/v1/pod/util.go) decides
            others = [each for each in conditions if each.get("type") != "PodScheduled"]
            await self._write_status(pod, {"conditions": [*others, condition]})

    async def _preempt(self, pod: Raw, error: NoNodeFitsError) -> str:
        """Evict others where that makes room; why it does not, empty where it does."""
        nominated = self._cache.get(self._nominator.node_of(pod))
        if nominated is not None and (unfit := error.unfits.get(nominated.name)) and not unfit.is_resolvable:
            nominated = None
        if why_not := preemption.why_not_eligible(pod, nominated):
            return why_not
        view = PodInfo.of(pod, self._ignored)
        run = preemption.dry_run(pod, self._cache, error.unfits, lambda node: self._nominator.check(view, node))
        if not run.candidates:
            if not run.errors:
                await self._nominate(pod, "")
            return run.message
        try:
            found = await self._ask_extenders(pod, run.candidates)
        except ExtenderError as failure:
            return str(failure)
        chosen = preemption.best(found)
        if chosen is None:
            return preemption.NO_CANDIDATE
        for lower in self._nominator.lower(chosen.node, priority_of(pod)):
            await self._nominate(dict(lower), "")
        await self._nominate(pod, chosen.node)
        for victim in chosen.victims:
            await self._evict(victim, pod, chosen.node)
        return ""

    async def _nominate(self, pod: Raw, node: str) -> None:
        """Write for which node room is being made for a pod; empty: for none."""
        self._nominator.nominate(pod, node)
        if nominated_node(pod) != node:
            await self._write_status(pod, {"nominatedNodeName": node or None})

    async def _ask_extenders(
        self, pod: Raw, found: dict[str, preemption.PreemptionCandidate]
    ) -> dict[str, preemption.PreemptionCandidate]:
        known = {node.name: node.pods for node in self._cache}
        for extender in self._extenders:
            if not found or not extender.settings.preempt_verb or not extender.is_interested(pod):
                continue
            victims = {name: [v["metadata"]["uid"] for v in c.victims] for name, c in found.items()}
            left = await extender.preempt(pod, victims)
            found = {
                name: preemption.PreemptionCandidate(
                    name, tuple(known[name][uid] for uid in uids if uid in known[name])
                )
                for name, uids in left.items()
                if name in known
            }
        return found

    async def _evict(self, victim: Mapping[str, Any], pod: Raw, node: str) -> None:
        metadata = victim["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        message = f"Preempted by pod {pod['metadata']['uid']} on node {node}"
        self._recorder.event(ref_of(_RAW_PODS, dict(victim)), "Preempted", message)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{self._name}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": timestamp(self._clock.now()),
        }
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
        where = (metadata["name"], metadata["namespace"])
        try:
            await self._client.patch_merge(PODS, where[0], patch, where[1], subresource="status", strategic=True)
            await self._client.delete(PODS, *where, uid=metadata["uid"])
        except (NotFoundError, ConflictError):
            return
        except (ApiError, ApiUnavailableError) as error:
            log.warning("Failed to delete a preemption victim", pod=metadata["name"], error=str(error))

    async def _write_status(self, pod: Raw, status: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            await self._client.patch_merge(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")
        except (NotFoundError, ConflictError):
            return
        except (ApiError, ApiUnavailableError) as error:
            log.warning("Failed to update a pod's condition", pod=metadata["name"], error=str(error))


def _phase(pod: Raw) -> str:
    return (pod.get("status") or {}).get("phase") or ""
