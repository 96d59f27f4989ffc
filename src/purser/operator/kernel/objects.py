"""Owned objects: what is missing, changed or drifted is applied; what is no longer wanted is removed."""

from collections.abc import Collection, Iterable, Iterator

from purser.operator.kernel.drift import why_apply
from purser.operator.model import Adopt, Apply, Delete, ObjectKey, Raw, Rendered, Snapshot
from purser.operator.names import KIND
from purser.operator.owned import MONITORS, OWNED

_ORDER = {resource.kind: place for place, resource in enumerate((*OWNED, *MONITORS))}


def object_actions(
    snapshot: Snapshot, rendered: Iterable[Rendered], keep: Collection[ObjectKey] = ()
) -> tuple[tuple[Apply | Adopt, ...], tuple[Delete, ...]]:
    """What to apply and what to remove, in order. ``keep``: not rendered, but still needed as it is. What is there and
    is somebody else's (`Snapshot.foreign`) is neither applied nor removed."""
    manifests = [each.object for each in rendered]
    wanted = {key: obj for obj in manifests if (key := ObjectKey.of(obj)) not in snapshot.foreign}
    kept = [key for key in snapshot.objects if key not in wanted and key in keep]
    unwanted = [
        key for key in snapshot.objects if key not in wanted and key not in keep and key not in snapshot.foreign
    ]
    adoptions = _adoptions(snapshot, kept, manifests[0]["metadata"]["ownerReferences"][0]) if manifests else ()
    return (*_applies(snapshot, wanted), *adoptions), tuple(removals(snapshot, unwanted, "no longer wanted"))


def _adoptions(snapshot: Snapshot, keys: Iterable[ObjectKey], owner: Raw) -> Iterator[Adopt]:
    """What is kept as it is must not go with the policy that it came from."""
    for key in sorted(keys):
        metadata = snapshot.objects[key]["metadata"]
        policies = [each.get("uid") for each in metadata.get("ownerReferences") or () if each.get("kind") == KIND]
        if policies != [owner["uid"]] and not metadata.get("deletionTimestamp"):
            yield Adopt(key, str(metadata.get("uid", "")), owner)


def removals(snapshot: Snapshot, keys: Iterable[ObjectKey], why: str) -> Iterator[Delete]:
    """Remove live objects, except those that go already."""
    for key in sorted(keys):
        metadata = snapshot.objects[key]["metadata"]
        if not metadata.get("deletionTimestamp"):
            yield Delete(key, str(metadata.get("uid", "")), why)


def _applies(snapshot: Snapshot, wanted: dict[ObjectKey, Raw]) -> Iterator[Apply]:
    for key in sorted(wanted, key=_place):
        why = why_apply(snapshot.objects.get(key), wanted[key], snapshot.settled.get(key))
        if why:
            yield Apply(wanted[key], why)


def _place(key: ObjectKey) -> tuple[int, ObjectKey]:
    return _ORDER[key.kind], key
