"""Answers kubelet's three questions: which ids to prefer, what a container gets, and whether it may start.

It carries out signed grants and decides nothing, with one exception: it refuses what would overcommit a GPU whatever
the scheduler believes. It is the last arbiter.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import structlog

from purser.adapters.pods import ref_of_grant
from purser.agent.allocation.admission import ContainerTurn, held_ids, owner_of, ungranted_holder
from purser.agent.allocation.advice import advice
from purser.agent.allocation.answers import NO_DEVICES, AllocationFacts, answer, cache_dir
from purser.agent.allocation.book import Book, BookedContainer
from purser.agent.allocation.holding import gpus_of_pod, pods_still_listed, unbooked_ids
from purser.agent.allocation.lingering import LingeringPods
from purser.agent.allocation.pods import UNADOPTED_PROBLEM, UNGRANTED_PROBLEM, NodePods, container_facts
from purser.agent.allocation.resolver import NoGrantFits, ResolvedCall, Resolver
from purser.agent.allocation.unavailable import find_unavailable_gpu
from purser.agent.host.hostfiles import make_shared_dir, remove_dir
from purser.agent.instances import InstanceAllocator, InstanceError
from purser.agent.kubelet.calls import AllocateCall, ContainerAllocation, PreferredAllocationCall
from purser.agent.kubelet.pod_resources import KubeletBooks
from purser.agent.kubelet.refusals import AllocationRefused, RefusalReason
from purser.agent.settings import AgentSettings
from purser.core.device.answers import least_wanted_ids
from purser.core.device.ids import uuid_of
from purser.core.grant.disputes import RefusedPod
from purser.core.ledger import LedgerError
from purser.core.mig.on_demand import overlap
from purser.core.model import ContainerGrant, Enforcement, Grant
from purser.core.names import GPU_RESOURCE
from purser.core.wording import pods_text
from purser.kube.errors import KubeError
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import PODS
from purser.recent import Recent

log = structlog.get_logger("purser.agent")

_MAX_RELEASED_PODS = 512
"""More than a node runs: kubelet admits 110 by default."""

_MAX_WITHHELD = 4096
"""Containers: each holds ids, of which a node has few."""


class Arbiter:
    """kubelet's questions, one at a time: as kubelet admits pods."""

    def __init__(
        self,
        settings: AgentSettings,
        kubelet: KubeletBooks,
        pods: NodePods,
        book: Book,
        resolver: Resolver,
        node_facts: Callable[[], AllocationFacts],
        instances: InstanceAllocator,
        lingering: LingeringPods,
        on_changed: Callable[[Pod, str], None] = lambda pod, message: None,
    ) -> None:
        self._settings = settings
        self._kubelet = kubelet
        self._pods = pods
        self._book = book
        self._resolver = resolver
        self._node_facts = node_facts
        self._instances = instances
        self._lingering = lingering
        self._on_changed = on_changed
        """Called for a pod whose enforcement differs from its grant, with the difference."""
        self._turn = asyncio.Lock()
        self._released: Recent[str, Grant] = Recent(_MAX_RELEASED_PODS)
        """By pod key. kubelet may hear later than this agent of a forced deletion, and the pod runs until then."""
        self._withheld: Recent[frozenset[str], AllocationRefused] = Recent(_MAX_WITHHELD)
        """Why containers with these ids may not start. Of those before the agent's last start kubelet's list tells."""

    async def prefer(self, ask: PreferredAllocationCall) -> tuple[str, ...]:
        """The ids on the devices of the pod under admission. Records nothing.

        Raises `AllocationRefused` and `KubeletError`.
        """
        async with self._turn:
            try:
                found = await self._resolver.find(ask)
            except NoGrantFits as refusal:
                raise self._unavailable(ask, refusal) from refusal
            except AllocationRefused as refusal:
                if refusal.may_wait:
                    held = held_ids(await self._kubelet.list())
                    return least_wanted_ids(ask.size, ask.available, ask.must_include, held)
                raise
            return ask.answer(found.turn.part, held_ids(found.listing))

    async def allocate(self, demand: AllocateCall) -> ContainerAllocation:
        """What the container under admission gets with these ids. Raises `AllocationRefused`, `KubeletError`.

        A pod that nobody granted anything is admitted without devices, and `check_start` keeps it from starting: what
        kubelet lists for it is reported, as of any pod without a grant, until it is gone.
        """
        async with self._turn:
            try:
                found = await self._resolver.find(demand)
            except AllocationRefused as refusal:
                if not refusal.may_wait:
                    raise
                self._withheld.put(frozenset(demand.ids), refusal)
                log.warning("A pod without a grant was admitted without devices", message=refusal.message)
                return NO_DEVICES
            self._withheld.forget(frozenset(demand.ids))
            try:
                return await self._allocate(demand, found)
            except AllocationRefused:
                self._resolver.remember_refused(found.turn.grant.pod_uid)
                raise

    async def check_start(self, ids: tuple[str, ...]) -> None:
        """Compare kubelet's books with the grant once more. Raises `AllocationRefused`, `KubeletError`."""
        withheld = self._withheld.get(frozenset(ids))
        if withheld is not None:  # whatever was granted since: it was given no device
            raise withheld
        owner = owner_of(ids, await self._kubelet.list())
        if owner is None:  # an init container, which kubelet does not list
            await self._start(*self._find_booked(ids))
            return
        pod, container = owner
        grant = await self._grant(pod.key)
        part = None if grant is None else grant.of(container)
        if grant is None or part is None:
            problem = self._pods.view().problems.get(pod.key, UNGRANTED_PROBLEM)
            has_invalid_grant = grant is not None or problem not in (UNGRANTED_PROBLEM, UNADOPTED_PROBLEM)
            raise AllocationRefused(
                RefusalReason.NO_GRANT,
                f"kubelet allocated {', '.join(ids)} to {pod.key} container {container}, which has no valid grant. "
                + advice(self._pods.get(pod.key), has_invalid_grant=has_invalid_grant),
                [pod.key],
            )
        if not AllocateCall(ids).fits(part):
            raise AllocationRefused(
                RefusalReason.MISMATCH,
                f"kubelet allocated {', '.join(ids)} to {pod.key} container {container}, but its grant names "
                f"{', '.join(part.uuids)}: delete and recreate the pod",
                [pod.key],
            )
        if self._book.reassign(grant, container, ids, pod.resources.get(container, GPU_RESOURCE)):
            await self._book.save()
        await self._start(grant, part)

    async def _start(self, grant: Grant, part: ContainerGrant) -> None:
        """Wait for pods that were there before. Then see to the instances of a restarted container: a reset of the GPU,
        a reboot or an administrator may have removed them. Raises `AllocationRefused`."""
        found = await self._lingering.wait(part.uuids)
        if found is not None:
            violation, other = found
            who = f"{pods_text(grant.namespace, [other.key])} (uid {other.pod_uid})"
            raise AllocationRefused(
                RefusalReason.IN_USE,
                f"processes of {who} still use GPU {violation.uuid}, although the "
                f"pod no longer exists: with container {part.container}, {violation.problem}. kubelet starts the "
                f"container once these processes have exited",
                [grant.key],
                in_the_way=[other.key],
            )
        try:
            await self._instances.give(grant, part, again=True)
        except InstanceError as error:
            message = f"{grant.key} container {part.container}: {error}. Delete and recreate the pod"
            raise AllocationRefused(RefusalReason.INSTANCE, message, [grant.key]) from error

    async def release(self, pod_uid: str) -> None:
        """The pod has ended: its devices are free, its accounting files go."""
        self._resolver.forget(pod_uid)
        booked = self._book.release(pod_uid)
        if booked is None:
            return
        self._released.put(booked.grant.key, booked.grant)
        self._instances.released()
        await self._book.save()
        for container in booked.containers:
            part = booked.grant.of(container)
            if part is not None:
                folder = cache_dir(booked.grant, part, str(self._settings.hami_core_dir))
                await asyncio.to_thread(remove_dir, self._settings, Path(folder))
        log.info("Released a pod's devices", pod=booked.grant.key, uid=pod_uid)

    async def release_ended(self, pod_uids: Iterable[str]) -> int:
        """Release those of some pods in the book that the API server says are over; how many were."""
        grants = {uid: self._book.pods[uid].grant for uid in pod_uids}
        keys = {uid: grant.key for uid, grant in grants.items()}
        try:
            found = await self._pods.fetch(set(keys.values()))
        except KubeError as error:
            log.warning("Cannot check for finished pods", error=str(error))
            return 0
        ended = [uid for uid, key in keys.items() if _has_ended(found[key], uid)]
        for uid in ended:
            with self._pods.pods.failures.guard(PODS, ref_of_grant(grants[uid])):
                await self.release(uid)
        return len(ended)

    def _adopt(self, found: ResolvedCall, grants: Mapping[str, Grant]) -> None:
        """What kubelet gave out is taken, book or no book. A pod that cannot be booked stands in the way of those alone
        that want its GPUs."""
        for listed in found.listing:
            try:
                self._book.adopt_listing((listed,), grants)
            except Exception as error:
                held = {uuid_of(each) for ids in listed.containers.values() for each in ids}
                other = grants[listed.key]
                if (held | other.uuids) & found.turn.grant.uuids:
                    raise
                self._pods.pods.failures.failed(PODS, ref_of_grant(other), error)

    async def _allocate(self, demand: AllocateCall, found: ResolvedCall) -> ContainerAllocation:
        grant, part = found.turn.grant, found.turn.part
        facts, node = container_facts(found.pod, part.container), self._node_facts()
        self._check_health(found, node)
        self._check_replicas(found, node)
        self._check_instances(found, node)
        ended = self._ended_holders(found)
        self._check_ungranted(found, {key for key, grant in ended.items() if grant is None})
        self._check_unknown(found, ended)
        enforcement = node.enforcement_of(part, facts.hold)
        if grant.enforcement_required and enforcement.is_advisory:
            raise _build_refusal(
                RefusalReason.UNENFORCED,
                found.turn,
                f"the pod requires enforcement, but its share is no longer enforced (enforcement is "
                f"{enforcement}; when granted, it was {part.enforcement}). Delete and recreate the pod",
            )
        if enforcement.has_library:
            await self._make_folders(found)
        try:
            grants = {key: grant for key, grant in ended.items() if grant is not None}
            await self._book_container(found, BookedContainer(demand.ids, enforcement, demand.resource), grants)
        except LedgerError as error:
            raise self._build_overcommit_refusal(found, error) from error
        await self._book.save()
        if any(share.mig is not None for share in part.shares):
            await self._create_instances(found)
            node = self._node_facts()
        if _has_other_enforcement(enforcement, part.enforcement):
            self._on_changed(
                found.pod,
                f"enforcement for container {part.container} is {enforcement}, not {part.enforcement} as its "
                f"grant says: enforcement on node {grant.node} changed after the pod was bound",
            )
        log.info("Allocated devices", pod=found.key, container=part.container, ids=demand.ids, enforcement=enforcement)
        return answer(grant, self._instances.part_with_instances(part), facts, node)

    async def _create_instances(self, found: ResolvedCall) -> None:
        part = found.turn.part
        try:
            await self._instances.give(found.turn.grant, part)
        except InstanceError as error:
            wanted = ((each.uuid, each.mig) for each in part.shares if each.mig is not None)
            named = [f"{where.profile} at memory slice {where.start} of GPU {uuid}" for uuid, where in wanted]
            what = "GPU instance" if len(named) == 1 else "GPU instances"
            problem = f"{what} {', '.join(named)} cannot be created: {error}. Delete and recreate the pod"
            raise _build_refusal(RefusalReason.INSTANCE, found.turn, problem, part.uuids) from error

    async def _book_container(self, found: ResolvedCall, given: BookedContainer, ended: Mapping[str, Grant]) -> None:
        """Enter it in the book; ``ended`` are grants of pods that hold devices though they are said to have ended.

        Pods that ended are looked for before a refusal: scheduler and kubelet may know sooner than the informer. Where
        kubelet lists their devices still, it does not know yet, and they run.
        """
        grant, container = found.turn.grant, found.turn.part.container
        self._adopt(found, {**found.view.grants, **ended})
        holding = {each.pod_uid for each in ended.values()} | pods_still_listed(self._book.pods, found.listing)
        try:
            self._book.allocate(grant, container, given)
        except LedgerError:
            rivals = [uid for uid, pod in self._book.pods.items() if pod.grant.uuids & grant.uuids]
            if not await self.release_ended(uid for uid in rivals if uid not in holding):
                raise
            self._book.allocate(grant, container, given)

    def _build_overcommit_refusal(self, found: ResolvedCall, error: LedgerError) -> AllocationRefused:
        """Why the book has no room: with the GPUs that other pods hold, all of the grant's where none does."""
        grant = found.turn.grant
        others = (pod.grant for uid, pod in self._book.pods.items() if uid != grant.pod_uid)
        holding = [each for each in others if each.uuids & grant.uuids]
        contested = grant.uuids & frozenset[str]().union(*(each.uuids for each in holding))
        rivals = "another pod was" if len(holding) == 1 else "other pods were"
        cause = f": {rivals} admitted first" if holding else ""
        return _build_refusal(
            RefusalReason.OVERCOMMIT,
            found.turn,
            f"{error}{cause}. Delete and recreate the pod",
            tuple(sorted(contested or grant.uuids)),
            tuple(sorted(each.key for each in holding)),
        )

    def _check_health(self, found: ResolvedCall, node: AllocationFacts) -> None:
        for uuid in found.turn.part.uuids:
            device = node.devices.get(uuid)
            if device is not None and not device.healthy:
                problem = f"device {uuid} is unhealthy: {device.unhealthy_reason}"
                raise _build_refusal(RefusalReason.UNHEALTHY, found.turn, problem, (uuid,))

    def _check_replicas(self, found: ResolvedCall, node: AllocationFacts) -> None:
        """The scheduler grants no two either; the configuration may have changed since."""
        part = found.turn.part
        devices = [node.devices[uuid] for uuid in part.uuids if uuid in node.devices]
        if len(part.shares) > 1 and any(device.one_each for device in devices):
            raise _build_refusal(
                RefusalReason.TOO_MANY_REPLICAS,
                found.turn,
                f"maximum request size for shared resources is 1; found {len(part.shares)}: the node's configuration "
                "sets failRequestsGreaterThanOne. Request only one",
            )

    def _check_instances(self, found: ResolvedCall, node: AllocationFacts) -> None:
        """A GPU that is cut on demand is had by instances alone, beside those of its administrator, and another one not
        by instances."""
        for share in found.turn.part.shares:
            device = node.devices.get(share.uuid)
            if device is None:
                continue
            if bool(device.mig_kind) != (share.mig is not None):
                problem_text = (
                    f"GPU {share.uuid} is partitioned on demand, but the grant does not name a GPU instance"
                    if share.mig is None
                    else (
                        f"the grant names a GPU instance on GPU {share.uuid}, which is no longer partitioned on demand"
                    )
                )
            elif share.mig is not None and (problem := overlap(device, (share.mig,))):
                problem_text = f"GPU {share.uuid} has no room next to GPU instances that have no grant: {problem}"
            else:
                continue
            raise _build_refusal(
                RefusalReason.INSTANCE, found.turn, f"{problem_text}. Delete and recreate the pod", (share.uuid,)
            )

    def _ended_holders(self, found: ResolvedCall) -> dict[str, Grant | None]:
        """The pods of which the API server says that they have ended or are gone, and kubelet that they hold devices,
        with their grants; None where it is not known. They may have been replaced under their name.

        kubelet takes devices back before it asks a plugin for others, and a status has more writers than kubelet.
        """
        held: dict[str, set[str]] = {}
        for each in found.listing:  # a namesake may be listed beside it
            held.setdefault(each.key, set()).update(id_ for ids in each.containers.values() for id_ in ids)
        ended: dict[str, Grant | None] = {}
        others = _others_devices(found)
        for key, ids in held.items():
            if not ids or (key in found.view.live and key not in others):
                continue
            pod, released = None if key in others else self._pods.get(key), self._released.get(key)
            if pod is not None and is_terminal(pod):
                ended[key] = self._pods.trusted_grant(pod)
            elif pod is None and released is not None and released.uuids & set(map(uuid_of, ids)):
                ended[key] = released
        return ended

    def _check_ungranted(self, found: ResolvedCall, ended: Collection[str]) -> None:
        booked = {pod.grant.key for pod in self._book.pods.values()}
        strangers = found.view.strangers.union(ended) - booked
        holders = {pod.key: gpus_of_pod(pod, self._pods.get(pod.key)) for pod in found.listing if pod.key in strangers}
        held = ungranted_holder(found.turn.part.uuids, holders)
        if held is not None:
            key, uuid = held
            raise _build_refusal(
                RefusalReason.STRANGER,
                found.turn,
                f"{pods_text(found.turn.grant.namespace, [key])} holds device {uuid} without a grant from Purser: "
                "delete that pod, or wait until it terminates",
                (uuid,),
                (key,),
            )

    def _check_unknown(self, found: ResolvedCall, ended: Mapping[str, Grant | None]) -> None:
        """kubelet's list counts also for pods that neither the API server nor the book has: their objects vanished, and
        the agent's state did, too, or they had the names of pods that are there now."""
        grants, others = found.view.grants, _others_devices(found)
        unknown = {
            key: frozenset(map(uuid_of, ids))
            for key, ids in unbooked_ids(self._book.pods, found.listing).items()
            if key not in ended and (key not in found.view.live or key in others)
        }
        held = ungranted_holder(found.turn.part.uuids, unknown)
        if held is not None:
            key, uuid = held
            explanation = (
                "another pod now has that name" if key in grants else "that pod no longer exists on the API server"
            )
            raise _build_refusal(
                RefusalReason.STRANGER,
                found.turn,
                f"kubelet lists device {uuid} for {pods_text(found.turn.grant.namespace, [key])}, but {explanation}: "
                "wait until kubelet terminates the old pod",
                (uuid,),
                (key,),
            )

    async def _make_folders(self, found: ResolvedCall) -> None:
        folder = cache_dir(found.turn.grant, found.turn.part, str(self._settings.hami_core_dir))
        try:
            await asyncio.to_thread(make_shared_dir, self._settings, Path(folder))
            await asyncio.to_thread(make_shared_dir, self._settings, self._settings.hami_lock_dir)
        except OSError as error:
            raise _build_refusal(
                RefusalReason.HOST, found.turn, f"cannot create a folder on the host: {error}"
            ) from error

    def _find_booked(self, ids: tuple[str, ...]) -> tuple[Grant, ContainerGrant]:
        """What a container was granted that the book says has these. Raises `AllocationRefused`."""
        held = self._book.holder(ids)
        if held is None:
            raise AllocationRefused(
                RefusalReason.MISMATCH,
                f"neither kubelet nor the agent has a record of a container that holds {', '.join(ids)}",
            )
        pod, container = held
        part = pod.grant.of(container)
        if part is None or not AllocateCall(ids).fits(part):
            raise AllocationRefused(
                RefusalReason.MISMATCH,
                f"container {container} was allocated {', '.join(ids)}, which does not match its grant",
                [pod.grant.key],
            )
        return pod.grant, part

    async def _grant(self, key: str) -> Grant | None:
        """A listed pod's grant: from the informer, else from the API server, else (it is away) from the book."""
        grant = self._pods.view().grants.get(key)
        if grant is not None:
            return grant
        try:
            return self._pods.view(await self._pods.fetch([key])).grants.get(key)
        except KubeError as error:
            log.warning("Cannot confirm a pod with the API server; using the checkpoint", pod=key, error=str(error))
        booked = (pod.grant for pod in self._book.pods.values())
        return next((grant for grant in booked if grant.key == key), None)

    def _unavailable(self, ask: PreferredAllocationCall, refusal: NoGrantFits) -> AllocationRefused:
        """A refusal that says why, where only one container waits and that is known."""
        if len(refusal.turns) > 1:
            return refusal
        (turn,) = refusal.turns
        found = find_unavailable_gpu(ask, turn, refusal.listing, self._node_facts().devices)
        if found is None:
            return refusal
        return _build_refusal(found.reason, turn, found.message, (found.uuid,), found.in_the_way)


def _build_refusal(
    reason: RefusalReason,
    turn: ContainerTurn,
    message: str,
    uuids: tuple[str, ...] = (),
    in_the_way: tuple[str, ...] = (),
) -> AllocationRefused:
    """With the GPUs of which the scheduler was wrong, and the pods that hold them."""
    grant = turn.grant
    dispute = RefusedPod(grant.namespace, grant.pod, grant.pod_uid, reason.value, uuids, in_the_way)
    text = f"{turn.key} container {turn.part.container}: {message}"
    return AllocationRefused(reason, text, [turn.key], dispute if uuids else None, in_the_way=in_the_way)


def _has_other_enforcement(given: Enforcement, granted: Enforcement) -> bool:
    """Whether a container is held otherwise than its grant says; older schedulers say ``none`` of time-slicing."""
    return given is not granted and (granted, given) != (Enforcement.NONE, Enforcement.TIME_SLICING)


def _others_devices(found: ResolvedCall) -> set[str]:
    """The pods that kubelet lists with devices that their grants do not name: those of pods that had the names before,
    whose end kubelet has not seen."""
    return {
        pod.key
        for pod in found.listing
        if (grant := found.view.grants.get(pod.key)) is not None
        for container, ids in pod.containers.items()
        if ids and ((part := grant.of(container)) is None or not AllocateCall(ids).fits(part))
    }


def _has_ended(pod: Pod | None, uid: str) -> bool:
    """Whether the pod with this uid has ended, if this is what its name leads to now."""
    return pod is None or pod.metadata.uid != uid or is_terminal(pod)
