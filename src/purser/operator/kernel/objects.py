"""Owned objects: what is missing, changed or drifted is applied; what is no longer wanted is removed."""

from collections.abc import Collection, Iterable, Iterator

from purser.operator.kernel.drift import why_apply
from purser.operator.model import Apply, Delete, ObjectKey, Raw, Rendered, Snapshot

KIND_ORDER = (
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "RuntimeClass",
    "Service",
    "DaemonSet",
    "ServiceMonitor",
    "PrometheusRule",
)


def object_actions(
    snapshot: Snapshot, rendered: Iterable[Rendered], keep: Collection[ObjectKey] = ()
) -> tuple[tuple[Apply, ...], tuple[Delete, ...]]:
    """What to apply and what to remove, in order. ``keep``: not rendered, but still needed as it is."""
    wanted = {ObjectKey.of(each.object): each.object for each in rendered}
    unwanted = [key for key in snapshot.objects if key not in wanted and key not in keep]
    return tuple(_applies(snapshot, wanted)), tuple(removals(snapshot, unwanted, "no longer wanted"))


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
    return KIND_ORDER.index(key.kind) if key.kind in KIND_ORDER else len(KIND_ORDER), key
