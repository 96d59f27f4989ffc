"""The verbs of the Kubernetes API, typed by the resource they are asked about.

Reads give slim frozen Structs, or whole objects with ``resource.raw()``. Writes take dicts: server-side apply, patches,
or a whole object that was read raw. A Struct is never written back: it would drop what it does not know.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from purser import __version__
from purser.core.decoding import JsonReader, UnreadableError
from purser.kube.clock import Clock, SystemClock
from purser.kube.codec import Codec, OnUnreadable, Page, codec_of
from purser.kube.config import ClusterConfig
from purser.kube.errors import DecodeError, GoneError
from purser.kube.failures import ObjectFailures
from purser.kube.objects import ObjectReference
from purser.kube.resources import PODS, Raw, Resource
from purser.kube.transport import Call, Transport, unavailable
from purser.kube.watching import WatchEvent, split_lines

T = TypeVar("T")

PAGE_SIZE = 500
"""Objects per page of a list: keeps both sides' peak memory down."""

_version_reader: JsonReader[dict[str, str]] = JsonReader(dict[str, str], "the answer", max_bytes=1024 * 1024)

_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """All objects of a resource at one version of the cluster."""

    items: list[T]
    resource_version: str
    left_out: tuple[ObjectReference, ...] = ()
    """Objects that exist and could not be read; each was reported to `Client.failures`."""


class WatchStream(Generic[T]):
    """Changes as they happen; ends when the server ends it, or falls silent for too long.

    Raises `GoneError` when the version to start from is too old, another `ApiError` that the server sends, and
    `ApiUnavailableError` when the connection breaks.
    """

    def __init__(
        self, call: Call, server: str, content: aiohttp.StreamReader, codec: Codec[T], on_unreadable: OnUnreadable
    ):
        self._call = call
        self._server = server
        self._content = content
        self._codec = codec
        self._on_unreadable = on_unreadable
        self._rest = bytearray()
        self._lines: list[bytes] = []  # in reverse, so that the next one is popped from the end

    def __aiter__(self) -> "WatchStream[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        while True:
            while self._lines:
                event = self._codec.event(self._lines.pop(), self._on_unreadable)
                if event is not None:
                    return event
            chunk = await self._read_chunk()
            if not chunk:
                raise StopAsyncIteration
            self._lines = split_lines(self._rest, chunk)[::-1]

    async def _read_chunk(self) -> bytes:
        try:
            return await self._content.readany()
        except aiohttp.SocketTimeoutError:
            return b""
        except (aiohttp.ClientError, OSError) as error:
            raise unavailable(self._call, self._server, error) from error
        except RuntimeError as error:
            # aiohttp's only word for a connection that was closed on this side, between two reads: the client was left.
            if "Connection closed" not in str(error):
                raise
            raise unavailable(self._call, self._server, error) from error


class Client:
    """An API server; an async context manager, safe to share within one event loop."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        field_manager: str = "purser",
        user_agent: str = f"purser/{__version__}",
        timeout: float = 30.0,
        clock: Clock | None = None,
    ):
        """``timeout`` is each call's deadline in seconds, retries included; a list's counts per page."""
        self.config = config
        self.failures = ObjectFailures()
        """What went wrong with single objects; shared by all who use this client."""
        self._manager = {"fieldManager": field_manager}
        self._transport = Transport(config, user_agent=user_agent, timeout=timeout, clock=clock or SystemClock())

    async def __aenter__(self) -> "Client":
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """One object. Raises `NotFoundError`."""
        return await self._object(resource, Call("GET", resource.path(namespace, name)))

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> ObjectList[T]:
        """All objects, in a consistent read (never older than anything seen before), fetched in pages."""
        path = resource.path(namespace)
        params = _selectors(label_selector, field_selector)
        try:
            return await self._pages(resource, path, params)
        except GoneError:
            # The pages' snapshot was compacted while they were fetched. In one piece nothing can go in between.
            page = await self._list_page(resource, path, params)
            return ObjectList(page.items, page.resource_version, page.left_out)

    async def pages(
        self, resource: Resource[T], namespace: str, *, field_selector: str, size: int, most: int
    ) -> AsyncIterator[Sequence[T]]:
        """Objects in pages of ``size``, and ``most`` pages: for objects that others can make as many and as large as
        they like. Objects that cannot be read are left out, and reported to `Client.failures`."""
        params = _selectors(None, field_selector) | {"limit": str(size)}
        path = resource.path(namespace)
        for _ in range(most):
            page = await self._list_page(resource, path, params)
            yield page.items
            if not page.continue_token:
                return
            params["continue"] = page.continue_token

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: int | None = None,
        inactivity_seconds: float = 70.0,
    ) -> AsyncIterator[WatchStream[T]]:
        """Changes after a version, bookmarks included; connected once the context is entered.

        ``timeout_seconds`` asks the server to end it then. After ``inactivity_seconds`` without a byte it ends, too:
        bookmarks come about every minute, so that silence means a dead connection.
        """
        params = _selectors(label_selector, field_selector)
        params |= {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": resource_version}
        if timeout_seconds is not None:
            params["timeoutSeconds"] = str(timeout_seconds)
        call = Call("GET", resource.path(namespace), params)
        async with self._transport.stream(call, inactivity_seconds) as content:
            yield WatchStream(
                call, self.config.server, content, codec_of(resource), partial(self.failures.unreadable, resource)
            )

    async def create(
        self, resource: Resource[T], body: Mapping[str, Any], namespace: str | None = None, *, dry_run: bool = False
    ) -> T:
        """The object as it was created; its namespace may stand in the body. Raises `AlreadyExistsError`.

        ``dry_run``: the object as it would be created; nothing is stored.
        """
        where = namespace or _meta(body).get("namespace")
        params = {"dryRun": "All"} if dry_run else {}
        return await self._object(resource, self._write("POST", resource.path(where), resource, body, params=params))

    async def apply(
        self, resource: Resource[T], body: Mapping[str, Any], *, force: bool = False, subresource: str | None = None
    ) -> T:
        """Server-side apply of the fields in the body, which names the object.

        Raises `ConflictError` when another manager owns one of them with another value, unless forced.
        """
        path = resource.path(_meta(body).get("namespace"), _meta(body)["name"], subresource)
        call = self._write("PATCH", path, resource, body, _APPLY_PATCH, {"force": "true" if force else "false"})
        return await self._object(resource, call)

    async def patch_merge(
        self,
        resource: Resource[T],
        name: str,
        patch: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        strategic: bool = False,
    ) -> T:
        """Set the fields in the patch; null removes one.

        ``strategic``: lists with keys, such as a node's conditions, are merged entry by entry, and an entry with
        ``$patch: delete`` is removed. With ``metadata.resourceVersion`` in the patch it raises `ConflictError` when the
        object changed since.
        """
        path = resource.path(namespace, name, subresource)
        return await self._object(resource, self._patch(path, patch, _STRATEGIC_PATCH if strategic else _MERGE_PATCH))

    async def patch_json(
        self,
        resource: Resource[T],
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> T:
        """Carry out RFC 6902 operations. Raises `InvalidError` when a ``test`` among them fails."""
        path = resource.path(namespace, name, subresource)
        return await self._object(resource, self._patch(path, operations, _JSON_PATCH))

    async def replace(self, resource: Resource[Raw], body: Raw, *, subresource: str | None = None) -> Raw:
        """Write back a whole object that was read raw. Raises `ConflictError` when it changed since."""
        path = resource.path(_meta(body).get("namespace"), _meta(body)["name"], subresource)
        return await self._object(resource, self._write("PUT", path, resource, body))

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """Ask an object to go. Raises `NotFoundError`, and `ConflictError` when it is not the one expected.

        ``propagation`` is ``Background``, ``Foreground`` or ``Orphan``.
        """
        preconditions = _present({"uid": uid, "resourceVersion": resource_version})
        options = {"gracePeriodSeconds": grace_period_seconds, "propagationPolicy": propagation}
        body = {"apiVersion": "v1", "kind": "DeleteOptions"} | _present(options)
        if preconditions:
            body["preconditions"] = preconditions
        await self._transport.request(Call("DELETE", resource.path(namespace, name), {}, msgspec.json.encode(body)))

    async def create_subresource(
        self,
        resource: Resource[Any],
        name: str,
        subresource: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        dry_run: bool = False,
    ) -> Raw:
        """Post to a subresource, such as a pod's ``eviction``; what comes back is often a Status."""
        params = self._manager | ({"dryRun": "All"} if dry_run else {})
        call = Call("POST", resource.path(namespace, name, subresource), params, msgspec.json.encode(body))
        return await self._object(resource.raw(), call)

    async def bind(self, namespace: str, pod: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Put a pod on a node and annotations on the pod, in one atomic write.

        Raises `ConflictError` when the pod is bound, is going, or is another one by now. Kubernetes 1.20 does not look
        at the uid (tried): what the annotations grant must name the pod's uid itself.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace, "uid": uid, "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.create_subresource(PODS, pod, "binding", body, namespace)

    async def version(self) -> dict[str, str]:
        """What the server says of itself: ``gitVersion`` and the like."""
        body = await self._transport.request(Call("GET", "/version"))
        try:
            return _version_reader.read(body)
        except UnreadableError as error:
            raise DecodeError(f"/version of {self.config.server}: {error}") from error

    async def _object(self, resource: Resource[T], call: Call) -> T:
        return codec_of(resource).object(await self._transport.request(call))

    async def _pages(self, resource: Resource[T], path: str, params: dict[str, str]) -> ObjectList[T]:
        page = await self._list_page(resource, path, params | {"limit": str(PAGE_SIZE)})
        items, version, left_out = page.items, page.resource_version, page.left_out
        while page.continue_token:
            page = await self._list_page(
                resource, path, params | {"limit": str(PAGE_SIZE), "continue": page.continue_token}
            )
            items.extend(page.items)
            left_out += page.left_out
        return ObjectList(items, version, left_out)

    async def _list_page(self, resource: Resource[T], path: str, params: dict[str, str]) -> Page[T]:
        body = await self._transport.request(Call("GET", path, params))
        return codec_of(resource).page(body, partial(self.failures.unreadable, resource))

    def _write(
        self,
        method: str,
        path: str,
        resource: Resource[Any],
        body: Mapping[str, Any],
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Call:
        if not isinstance(body, Mapping):
            raise TypeError(f"a {type(body).__name__} is read-only: pass the changed fields as a dict")
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return Call(method, path, self._manager | dict(params or {}), msgspec.json.encode(whole), content_type)

    def _patch(self, path: str, patch: object, content_type: str) -> Call:
        return Call("PATCH", path, self._manager, msgspec.json.encode(patch), content_type)


def _selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    return _present({"labelSelector": label_selector, "fieldSelector": field_selector})


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _meta(body: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    if not isinstance(metadata, Mapping):
        raise TypeError("a body to write must be a dict with metadata")
    return metadata
