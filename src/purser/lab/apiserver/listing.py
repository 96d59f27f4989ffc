"""GET of a collection: consistent snapshots, pages, resource versions."""

import base64
from collections.abc import Mapping

import msgspec

from purser.core.decoding import JsonReader

from . import jsonio, routes
from .cluster import Cluster
from .errors import Obj, StatusError, bad_request, expired
from .routes import Target
from .store import Collection, Key, Selection, StoredObject
from .views import ResourceView

_TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter."
)


class _Token(msgspec.Struct, forbid_unknown_fields=True):
    """What a continue token carries: the snapshot's revision and the last key that was sent."""

    v: str
    rv: int
    namespace: str
    name: str


def list_objects(cluster: Cluster, target: Target, view: ResourceView, query: Mapping[str, str]) -> bytes:
    """The encoded list. Every page of one list shows the state of its first page's resource version."""
    collection = cluster.collection(target.resource)
    selection = routes.selection(target, query)
    if token := query.get("continue"):
        revision, after = _read_token(token)
        records = _page_source(collection, revision, selection, after)
    else:
        revision, records = _first(cluster, collection, selection, query)
    return _page(view, revision, records, routes.number(query, "limit") or 0, counts=selection.matches is None)


def _first(
    cluster: Cluster, collection: Collection, selection: Selection, query: Mapping[str, str]
) -> tuple[int, list[StoredObject]]:
    wanted, current = routes.revision(query), cluster.store.revision
    match = query.get("resourceVersionMatch", "")
    if match and wanted is None:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if wanted and wanted > current:
        raise too_large(wanted, current)
    if match == "Exact":
        if not wanted:
            raise bad_request('resourceVersionMatch "Exact" is forbidden for resourceVersion 0')
        return wanted, collection.records_at(wanted, selection)
    return current, collection.records(selection)


def too_large(wanted: int, current: int) -> StatusError:
    """504: the client has seen a newer state than this server has."""
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def _page(view: ResourceView, revision: int, records: list[StoredObject], limit: int, *, counts: bool) -> bytes:
    """One page; the real server counts what remains only where no selector would have to be asked."""
    metadata: Obj = {"resourceVersion": str(revision)}
    if limit and len(records) > limit:
        metadata["continue"] = _write_token(revision, records[limit - 1].key)
        if counts:
            metadata["remainingItemCount"] = len(records) - limit
        records = records[:limit]
    return view.many(records, metadata)


def _page_source(collection: Collection, revision: int, selection: Selection, after: Key) -> list[StoredObject]:
    try:
        records = collection.records_at(revision, selection)
    except StatusError as error:
        raise expired(_TOO_OLD_TOKEN) from error
    return [record for record in records if record.key > after]


_token_reader = JsonReader(_Token, "the continue token", max_bytes=4096)


def _write_token(revision: int, last: Key) -> str:
    token = _Token(v="meta.k8s.io/v1", rv=revision, namespace=last[0], name=last[1])
    return base64.urlsafe_b64encode(jsonio.encode(token)).decode().rstrip("=")


def _read_token(text: str) -> tuple[int, Key]:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = _token_reader.read(raw)
    except ValueError as error:
        raise bad_request("continue key is not valid: this server did not create it") from error
    return token.rv, (token.namespace, token.name)
