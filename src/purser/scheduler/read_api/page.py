"""The state documents of this replica, of all namespaces and of one: made in small steps, and kept until they are old.

kube-scheduler's questions go first: between two steps the loop answers them, and after a snapshot it has at least three
times as long for others as that took. So a document is not a picture of one moment: it took some milliseconds, at a
thousand nodes some hundred, and pods came and went meanwhile.

A namespace's document has the pods of that namespace alone, and nothing in it names another namespace or its pods.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from purser.core.fleet import NodeState
from purser.core.model import Grant
from purser.core.state import (
    STATE_VERSION,
    StateGrant,
    StateNode,
    StateQuota,
    StateReason,
    StateReplica,
    StateWaiting,
    state_grant,
    state_node,
)
from purser.kube import Clock
from purser.kube.nodes import readiness
from purser.recent import Recent
from purser.scheduler.cache import ClusterCache
from purser.scheduler.explaining import with_last_message
from purser.scheduler.pending import PendingPod, PendingPods
from purser.scheduler.read_api.documents import EncodedState, SharedValue, digest_of, run_in_steps
from purser.scheduler.read_api.lists import (
    ListKind,
    ListPart,
    Place,
    encode_list,
    in_order,
    without_first_comma,
)

MAX_SCOPES = 4096
"""Namespaces' documents of which it is remembered since when they have been as they are."""
MAX_DOCUMENTS = 64
"""Namespaces' documents that are kept, until something changes."""
_FITS = "Purser did not reject the pod when kube-scheduler last asked"
_NODES_AT_ONCE = 16
_PODS_AT_ONCE = 256
"""Between two turns of the event loop: one to three milliseconds' work."""


class Scope(NamedTuple):
    """Of which namespace a document is."""

    namespace: str
    has_all_nodes: bool
    """Else it has those GPUs alone that the namespace's pods hold."""


@dataclass
class _Snapshot:
    """What documents are put together of. Each element begins with the comma that separates it from the one before."""

    replica: StateReplica
    nodes: list[bytes] = field(default_factory=list)
    nodes_without_pods: list[bytes] = field(default_factory=list)
    """The same, without the names of pods."""
    grants: dict[str, list[bytes]] = field(default_factory=dict)
    """By namespace."""
    waiting: dict[str, list[bytes]] = field(default_factory=dict)
    quotas: dict[str, list[bytes]] = field(default_factory=dict)
    held: dict[str, list[Grant]] = field(default_factory=dict)
    """The grants of each namespace, as they were read."""
    digest: bytes = b""
    nodes_digest: bytes = b""
    """Of `nodes_without_pods`."""
    sequence: int = 0
    documents: Recent[Scope | None, EncodedState] = field(default_factory=lambda: Recent(MAX_DOCUMENTS))
    """Those that were asked for; None: the whole."""
    ordered: dict[tuple[ListKind, str], asyncio.Task[Sequence[bytes]]] = field(default_factory=dict)
    """Of each namespace whose pods were listed, those in their order."""

    def by_namespace(self, kind: ListKind) -> Mapping[str, Sequence[bytes]]:
        """Pods of a kind."""
        return self.grants if kind is ListKind.GRANTS else self.waiting


class StatePage:
    """Requests that wait for a document share it."""

    def __init__(
        self, cache: ClusterCache, pending: PendingPods, replica: Callable[[], StateReplica], clock: Clock
    ) -> None:
        self._cache, self._pending, self._replica = cache, pending, replica
        self._instance = secrets.token_hex(8)
        self._sequence = 0
        self._last: _Snapshot | None = None
        self._snapshot = SharedValue(self._make, clock)
        self._sequences: Recent[Scope, tuple[bytes, int]] = Recent(MAX_SCOPES)
        """Digests of documents, and since which sequence they have been as they are."""

    async def current(self, scope: Scope | None = None) -> EncodedState:
        """The newest of a namespace or the whole, a second old at most, or some where it takes that long to make."""
        snapshot = await self._snapshot.current()
        if (known := snapshot.documents.get(scope)) is not None:
            return known
        made = self._whole(snapshot) if scope is None else await self._namespace_state(snapshot, scope)
        return snapshot.documents.put(scope, made)

    async def _make(self) -> _Snapshot:
        made = _Snapshot(self._replica())
        await run_in_steps(self._put_nodes(made), _NODES_AT_ONCE)
        await run_in_steps(self._put_grants(made), _PODS_AT_ONCE)
        await run_in_steps(self._put_waiting(made), _PODS_AT_ONCE)
        await run_in_steps(self._put_quotas(made), _PODS_AT_ONCE)
        made.nodes_digest = await digest_of(made.nodes_without_pods)
        made.digest = await digest_of(_pieces_of(made))
        if self._last is None or self._last.digest != made.digest:
            self._sequence = made.sequence = self._sequence + 1
            self._last = made
        return self._last

    def _put_nodes(self, made: _Snapshot) -> Iterator[None]:
        for name in sorted(self._cache.fleet.names()):
            if (state := self._cache.fleet.node(name)) is not None:  # else it has gone meanwhile
                node = _encode_element(self._node(state, names_pods=True))
                names_no_pods = not any(each.disputed for each in state.devices)
                made.nodes.append(node)
                made.nodes_without_pods.append(
                    node if names_no_pods else _encode_element(self._node(state, names_pods=False))
                )
            yield

    def _node(self, state: NodeState, *, names_pods: bool) -> StateNode:
        node = self._cache.node(state.name)
        if node is None:
            return state_node(state, cordoned=False, names_pods=names_pods)
        return state_node(
            state,
            cordoned=node.spec.unschedulable,
            ready=readiness(node),
            labels=node.metadata.labels,
            annotations=node.metadata.annotations,
            allocatable=node.status.allocatable,
            names_pods=names_pods,
        )

    def _put_grants(self, made: _Snapshot) -> Iterator[None]:
        fleet = self._cache.fleet
        for uid in fleet.ledger.uids():
            grant, state = fleet.ledger.grant(uid), fleet.ledger.state(uid)
            if grant is not None and state is not None:
                pod = self._cache.pod_by_uid(uid)
                times = ("", "") if pod is None else (pod.metadata.creation_timestamp, pod.status.start_time)
                element = _encode_element(state_grant(grant, state, fleet.node(grant.node), *times))
                made.grants.setdefault(grant.namespace, []).append(element)
                made.held.setdefault(grant.namespace, []).append(grant)
            yield

    def _put_waiting(self, made: _Snapshot) -> Iterator[None]:
        for uid, pod in self._pending.pods():
            entry = _entry(uid, pod, self._cache.scheduler_name, knows_why=made.replica.places_pods)
            made.waiting.setdefault(pod.namespace, []).append(_encode_element(entry))
            yield

    def _put_quotas(self, made: _Snapshot) -> Iterator[None]:
        for namespace in self._cache.limited_namespaces:
            made.quotas[namespace] = [_encode_element(each) for each in self._cache.state_quotas(namespace)]
            yield

    def _whole(self, snapshot: _Snapshot) -> EncodedState:
        return self._document(snapshot.sequence, snapshot.digest, _pieces_of(snapshot))

    async def listed(self, kind: ListKind, scope: Scope | None, part: ListPart) -> EncodedState:
        """Some of what the newest state has, for readers of one namespace's part or the whole."""
        snapshot = await self._snapshot.current()
        found: list[bytes] = []
        async for namespace, elements in self._groups(kind, snapshot, scope, part.after):
            found.extend(part.rest_of(namespace, elements, len(found)))
            if len(found) > part.limit:
                break
        replica = snapshot.replica if scope is None else StateReplica("", snapshot.replica.places_pods, "")
        return await encode_list(found, part.limit, replica.notes)

    async def _groups(
        self, kind: ListKind, snapshot: _Snapshot, scope: Scope | None, after: Place | None
    ) -> AsyncIterator[tuple[str, Sequence[bytes]]]:
        """The elements of a kind, by namespace, from that of ``after`` on; nodes are in none."""
        if kind is ListKind.NODES:
            if scope is None or scope.has_all_nodes:
                yield "", snapshot.nodes if scope is None else snapshot.nodes_without_pods
            else:
                held: list[bytes] = []
                await run_in_steps(self._put_held(held, snapshot.held.get(scope.namespace, ())), _NODES_AT_ONCE)
                yield "", held
            return
        by_namespace = snapshot.by_namespace(kind)
        for namespace in sorted(by_namespace) if scope is None else (scope.namespace,):
            if namespace in by_namespace and (after is None or namespace >= after.namespace):
                if (kind, namespace) not in snapshot.ordered:
                    ordering = asyncio.ensure_future(in_order(by_namespace[namespace]))
                    snapshot.ordered[kind, namespace] = ordering
                yield namespace, await asyncio.shield(snapshot.ordered[kind, namespace])  # others wait for it, too

    async def _namespace_state(self, snapshot: _Snapshot, scope: Scope) -> EncodedState:
        replica = StateReplica("", snapshot.replica.places_pods, "")
        grants = snapshot.grants.get(scope.namespace, ())
        waiting = snapshot.waiting.get(scope.namespace, ())
        quotas = snapshot.quotas.get(scope.namespace, ())
        nodes = snapshot.nodes_without_pods
        if not scope.has_all_nodes:
            nodes = []
            await run_in_steps(self._put_held(nodes, snapshot.held.get(scope.namespace, ())), _NODES_AT_ONCE)
        nodes_digest = snapshot.nodes_digest if scope.has_all_nodes else await digest_of(nodes)
        digest = await digest_of([nodes_digest, *_encode_pieces(replica, (), grants, waiting, quotas)])
        known = self._sequences.get(scope)
        sequence = known[1] if known is not None and known[0] == digest else snapshot.sequence
        self._sequences.put(scope, (digest, sequence))
        return self._document(sequence, digest, _encode_pieces(replica, nodes, grants, waiting, quotas))

    def _put_held(self, nodes: list[bytes], held: Sequence[Grant]) -> Iterator[None]:
        by_node: dict[str, set[str]] = {}
        for grant in held:
            by_node.setdefault(grant.node, set()).update(grant.uuids)
        for name, uuids in sorted(by_node.items()):
            if (state := self._cache.fleet.node(name)) is not None:
                node = self._node(state, names_pods=False)
                gpus = tuple(each for each in node.gpus if each.uuid in uuids)
                parents = {each.parent for each in gpus}
                cut = tuple(each for each in node.cut_gpus if each.uuid in parents)
                nodes.append(_encode_element(msgspec.structs.replace(node, gpus=gpus, cut_gpus=cut)))
            yield

    def _document(self, sequence: int, digest: bytes, pieces: Iterable[bytes]) -> EncodedState:
        head = b'{"instance":"%s","sequence":%d,' % (self._instance.encode(), sequence)
        return EncodedState(f'"{self._instance}-{digest.hex()}"', (head, *pieces))


def _pieces_of(snapshot: _Snapshot) -> Iterator[bytes]:
    grants, waiting, quotas = _all(snapshot.grants), _all(snapshot.waiting), _all(snapshot.quotas)
    return _encode_pieces(snapshot.replica, snapshot.nodes, grants, waiting, quotas)


def _encode_pieces(
    replica: StateReplica,
    nodes: Iterable[bytes],
    grants: Iterable[bytes],
    waiting: Iterable[bytes],
    quotas: Iterable[bytes],
) -> Iterator[bytes]:
    """A document but for its head, in the order of the fields of `ClusterState`."""
    yield b'"replica":%s,"nodes":[' % msgspec.json.encode(replica)
    yield from without_first_comma(nodes)
    yield b'],"grants":['
    yield from without_first_comma(grants)
    yield b'],"waiting":['
    yield from without_first_comma(waiting)
    yield b'],"notes":%s,"quotas":[' % msgspec.json.encode(replica.notes)
    yield from without_first_comma(quotas)
    yield b'],"api_version":"%s"}' % STATE_VERSION.encode()


def _encode_element(element: StateNode | StateGrant | StateWaiting | StateQuota) -> bytes:
    return b"," + msgspec.json.encode(element)


def _all(by_namespace: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
    for namespace in sorted(by_namespace):
        yield from by_namespace[namespace]


def _entry(uid: str, pod: PendingPod, scheduler: str, *, knows_why: bool) -> StateWaiting:
    """A pod of which there is no message was not refused by Purser; ``knows_why``: as far as a replica knows that
    places pods."""
    if not knows_why:
        pod = msgspec.structs.replace(pod, nodes_by_reason=(), message="", suggestion="")
    reasons = tuple(StateReason("Purser", reason, nodes, 0, "") for reason, nodes in pod.nodes_by_reason)
    return StateWaiting(
        namespace=pod.namespace,
        pod=pod.name,
        uid=uid,
        since=pod.since,
        scheduler=scheduler,
        priority=pod.priority,
        gpus=pod.gpus,
        reason=str(pod.reason) if knows_why else "",
        message=_message(pod, scheduler) if knows_why else "",
        reasons=reasons,
        suggestion=pod.suggestion,
        asks=pod.asks,
    )


def _message(pod: PendingPod, scheduler: str) -> str:
    fact = _FITS if pod.fits else ""
    return pod.message or pod.gated or with_last_message(fact, scheduler, pod.last_message)
