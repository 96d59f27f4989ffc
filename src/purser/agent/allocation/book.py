"""The node's part of the book: which container of which pod was given which of kubelet's ids, and the agent's ledger.

The ledger holds only grants that kubelet was given devices for: two grants that together overcommit a GPU are the
scheduler's mistake, and the first that asks gets its due, the second is refused.

On disk it is one small JSON file, replaced atomically after every change. It is an aid, not the truth: what kubelet
lists and what the API server stores win over it. What only it knows are init containers, which kubelet does not list,
and pods that were released and may have processes still.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
import structlog

from purser.agent.host.files import read_head, replace_file
from purser.agent.kubelet.pod_resources import ListedPod
from purser.agent.settings import AgentSettings
from purser.core.consistency import InvariantViolation, ledger_violations
from purser.core.decoding import JsonReader, UnreadableError
from purser.core.ledger import NO_USAGE, Ledger, Usage, Violation, find_overcommit, pod_usage
from purser.core.model import Device, Enforcement, Grant, GrantState, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.recent import Recent

log = structlog.get_logger("purser.agent")

VERSION = 1

MAX_CHECKPOINT_BYTES = 16 * 1024 * 1024
"""Thousands of pods, each with a grant of the largest kind."""

_MAX_LINGERING = 512
"""More pods than a node runs: kubelet admits 110 by default."""


class AgentCheckpointError(Exception):
    """The checkpoint cannot be read; the message says why."""


class BookedContainer(msgspec.Struct, frozen=True):
    """What one container was given."""

    ids: tuple[str, ...]
    """kubelet's ids."""
    enforcement: Enforcement
    """What holds it to its share: as it was when it was given them."""
    resource: str = GPU_RESOURCE
    """Of the ids."""


class BookedPod(msgspec.Struct, frozen=True):
    """A pod that was given devices."""

    grant: Grant
    containers: dict[str, BookedContainer]


class AgentCheckpoint(msgspec.Struct, frozen=True):
    """The file."""

    node: str
    pods: tuple[BookedPod, ...] = ()
    lingering: tuple[Grant, ...] = ()
    """Of pods that were released."""
    version: int = VERSION


_checkpoint_reader = JsonReader(AgentCheckpoint, "the checkpoint", max_bytes=MAX_CHECKPOINT_BYTES)


def read_checkpoint(path: Path, node: str) -> AgentCheckpoint:
    """What the checkpoint says; an empty one when there is none.

    Raises `AgentCheckpointError` when it is unreadable, of another version, or another node's than ``node``, where that
    is not empty.
    """
    try:
        checkpoint = _checkpoint_reader.read(read_head(path, MAX_CHECKPOINT_BYTES + 1))
    except FileNotFoundError:
        return AgentCheckpoint(node)
    except OSError as error:
        raise AgentCheckpointError(f"{path}: {error.strerror or error}") from error
    except UnreadableError as error:
        raise AgentCheckpointError(f"{path}: {error}") from error
    if checkpoint.version != VERSION:
        raise AgentCheckpointError(f"{path}: version {checkpoint.version}, but this agent reads version {VERSION}")
    if node and checkpoint.node != node:
        raise AgentCheckpointError(f"{path} belongs to node {checkpoint.node}, but this agent serves node {node}")
    return checkpoint


def write_checkpoint(path: Path, checkpoint: AgentCheckpoint) -> None:
    """Replace the file so that a crash at any point leaves the old or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, msgspec.json.encode(checkpoint))


class BookInvariant(StrEnum):
    """What holds of the book beyond `purser.core.consistency.Invariant`; stable strings, labels of a metric."""

    BOOK_GRANTS = "book-grants"
    """The pods in the book are those whose grants its ledger has."""
    IDS_GIVEN_ONCE = "ids-given-once"
    """No id of kubelet is held by two pods."""
    KUBELET_IDS = "kubelet-ids"
    """A container that is in the book and in kubelet's list has the same ids in both."""


class Book:
    """Pods with devices on this node, checked by a `Ledger`, kept on disk.

    Changes are synchronous and happen in memory; `save` brings them to disk.
    """

    def __init__(self, path: Path, node: str, pods: Iterable[BookedPod] = (), lingering: Iterable[Grant] = ()) -> None:
        self._path = path
        self._node = node
        self._pods: dict[str, BookedPod] = {}
        self._lingering: Recent[str, Grant] = Recent(_MAX_LINGERING)
        self._ledger = Ledger()
        self._writing = asyncio.Lock()
        for pod in pods:
            self._adopt(pod)
        for grant in lingering:
            self._lingering.put(grant.pod_uid, grant)

    def set_inventory(self, inventory: NodeInventory) -> None:
        """What grants are checked against from now on."""
        self._ledger.set_inventory(inventory)

    def allocate(self, grant: Grant, container: str, given: BookedContainer) -> None:
        """Enter what a container was given. Raises `LedgerError`, and then nothing has changed."""
        booked = self._pods.get(grant.pod_uid)
        if booked is not None and booked.grant != grant:
            self.release(grant.pod_uid)
            booked = None
        if booked is None:
            self._ledger.reserve(grant)
        elif self._ledger.state(grant.pod_uid, container) is GrantState.ALLOCATED:
            self._replace_reservation(booked)
        containers = {} if booked is None else booked.containers
        self._pods[grant.pod_uid] = BookedPod(grant, {**containers, container: given})
        self._advance(grant.pod_uid, container, GrantState.ALLOCATED)

    def _replace_reservation(self, booked: BookedPod) -> None:
        """kubelet asks for a container once more: what it was given before may have been for another pod, which was
        mistaken for this one and holds it now. Raises `LedgerError`."""
        self._ledger.release(booked.grant.pod_uid)
        try:
            self._ledger.reserve(booked.grant)
        finally:
            self._adopt(booked)

    def reassign(self, grant: Grant, container: str, ids: tuple[str, ...], resource: str = GPU_RESOURCE) -> bool:
        """Follow kubelet's books where they say that another container got the ids; whether anything changed.

        That happens only where grants were exchangeable, so nothing is checked.
        """
        part, booked = grant.of(container), self._pods.get(grant.pod_uid)
        containers = {} if booked is None else booked.containers
        known = containers.get(container)
        if part is None or (known is not None and sorted(known.ids) == sorted(ids)):
            return False
        self._adopt(BookedPod(grant, {**containers, container: BookedContainer(ids, part.enforcement, resource)}))
        return True

    def run(self, pod_uid: str) -> None:
        """The pod runs."""
        booked = self._pods.get(pod_uid)
        for container in booked.containers if booked is not None else ():
            self._advance(pod_uid, container, GrantState.RUNNING)

    def release(self, pod_uid: str) -> BookedPod | None:
        """Take a pod off the book; None when it was not on it. It lingers until `forget_lingering`."""
        self._ledger.release(pod_uid)
        booked = self._pods.pop(pod_uid, None)
        if booked is not None:
            self._lingering.put(pod_uid, booked.grant)
        return booked

    @property
    def lingering(self) -> tuple[Grant, ...]:
        """Of the pods that were released and may have processes still."""
        return tuple(grant for uid, grant in self._lingering.items() if uid not in self._pods)

    def forget_lingering(self, pod_uids: Iterable[str]) -> None:
        """These pods have no processes any more."""
        for uid in pod_uids:
            self._lingering.forget(uid)

    def adopt_listing(self, listing: Iterable[ListedPod], grants: Mapping[str, Grant]) -> int:
        """Take over what kubelet lists of pods with these grants (by pod key); how many containers were news.

        kubelet names pods without their uids: what a pod in the book has is not its namesake's.
        """
        return sum(
            self.reassign(grants[pod.key], container, ids, pod.resources.get(container, GPU_RESOURCE))
            for pod in listing
            if pod.key in grants
            for container, ids in pod.containers.items()
            if ids and not self._has_same_name(grants[pod.key], ids)
        )

    def _has_same_name(self, grant: Grant, ids: Iterable[str]) -> bool:
        """Whether the book has these ids for another pod of the same name."""
        wanted = frozenset(ids)
        return any(
            uid != grant.pod_uid and pod.grant.key == grant.key and not wanted.isdisjoint(each.ids)
            for uid, pod in self._pods.items()
            for each in pod.containers.values()
        )

    @property
    def pods(self) -> Mapping[str, BookedPod]:
        """The pods in the book, by uid."""
        return self._pods

    @property
    def served(self) -> dict[str, frozenset[str]]:
        """The containers that were given devices, by pod uid."""
        return {uid: frozenset(pod.containers) for uid, pod in self._pods.items()}

    @property
    def held_ids(self) -> dict[str, str]:
        """Every id that a pod was given, and the resource that it was listed under."""
        given = (each for pod in self._pods.values() for each in pod.containers.values())
        return {held: each.resource for each in given for held in each.ids}

    def holder(self, ids: Iterable[str]) -> tuple[BookedPod, str] | None:
        """The pod and container that were given exactly these ids."""
        wanted = sorted(ids)
        given = ((pod, name, sorted(c.ids)) for pod in self._pods.values() for name, c in pod.containers.items())
        return next(((pod, name) for pod, name, held in given if held == wanted), None)

    @property
    def usage(self) -> Mapping[str, Usage]:
        """What the pods in the book hold of each device."""
        return self._ledger.usage(self._node)

    def state(self, pod_uid: str, container: str) -> GrantState | None:
        """How far a container's grant is."""
        return self._ledger.state(pod_uid, container)

    @property
    def running(self) -> frozenset[str]:
        """The uids of the pods that run: their init containers have ended."""
        states = ((uid, self._ledger.state(uid, name)) for uid, pod in self._pods.items() for name in pod.containers)
        return frozenset(uid for uid, state in states if state is GrantState.RUNNING)

    def violations(self, lingering: Iterable[Grant] = ()) -> tuple[Violation, ...]:
        """What is overcommitted all the same, after a restart with books that contradict each other.

        ``lingering``: what counts beside the pods in the book. Not a GPU that the node does not list: pods hold a lost
        one until they end. An instance that a grant names is there once, be it that the agent has lost its record of
        having made it.
        """
        devices, used = self._ledger.devices(self._node), dict(self.usage)
        for grant in lingering:
            for uuid, usage in pod_usage(grant).items():
                used[uuid] = used.get(uuid, NO_USAGE) + usage
        held = ((devices[uuid], usage) for uuid, usage in sorted(used.items()) if uuid in devices)
        found = ((device.uuid, find_overcommit(_without_own_instances(device, usage), usage)) for device, usage in held)
        return tuple(Violation(self._node, uuid, problem) for uuid, problem in found if problem)

    def inconsistencies(self) -> tuple[InvariantViolation, ...]:
        """Where the ledger of the book contradicts itself."""
        return ledger_violations(self._ledger)

    def grants(self) -> Iterator[Grant]:
        """The grants that the ledger of the book counts."""
        return self._ledger.grants()

    async def save(self) -> None:
        """Bring the book to disk. A failure is logged: the book can be rebuilt without the file."""
        async with self._writing:
            checkpoint = AgentCheckpoint(self._node, tuple(self._pods.values()), self.lingering)
            try:
                await asyncio.to_thread(write_checkpoint, self._path, checkpoint)
            except OSError as error:
                log.error("Cannot write the checkpoint", path=str(self._path), error=str(error))

    def _adopt(self, pod: BookedPod) -> None:
        self._ledger.adopt(pod.grant, GrantState.BOUND)
        self._pods[pod.grant.pod_uid] = pod
        for container in pod.containers:
            self._advance(pod.grant.pod_uid, container, GrantState.ALLOCATED)

    def _advance(self, pod_uid: str, container: str, state: GrantState) -> None:
        if self._ledger.state(pod_uid, container) in (None, GrantState.RUNNING):
            return  # not a container of the grant, or as far as it can be: kubelet asks again after some restarts
        self._ledger.advance(pod_uid, state, container)


def _without_own_instances(device: Device, usage: Usage) -> Device:
    foreign = tuple(each for each in device.mig_held if each not in usage.instances)
    return device if foreign == device.mig_held else msgspec.structs.replace(device, mig_held=foreign)


def open_book(settings: AgentSettings) -> Book:
    """The node's, out of its checkpoint; empty where that is unusable, which is reported."""
    try:
        checkpoint = read_checkpoint(settings.checkpoint, settings.node_name)
    except AgentCheckpointError as error:
        log.error("The checkpoint is unusable; rebuilding it from kubelet and the API server", error=str(error))
        checkpoint = AgentCheckpoint(settings.node_name)
    return Book(settings.checkpoint, settings.node_name, checkpoint.pods, checkpoint.lingering)
