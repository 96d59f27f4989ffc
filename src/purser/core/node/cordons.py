"""GPUs that people keep new pods off: lists of uuids in annotations of the node. Pods that hold a share keep it."""

from collections.abc import Iterable, Mapping

from purser.core.names import CORDON_ANNOTATIONS, CORDONED_GPUS_ANNOTATION

MAX_CORDONED = 1024
"""Of one annotation: more are not read. A node has far fewer devices."""


def cordoned_gpus(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The uuids that a node's annotations name, HAMi's included: separated by commas, blanks trimmed."""
    return tuple(dict.fromkeys(uuid for name in CORDON_ANNOTATIONS for uuid in _listed(annotations.get(name, ""))))


def cordoned(annotations: Mapping[str, str], uuids: Iterable[str]) -> dict[str, str | None]:
    """The annotations to write for these to be cordoned as well; none where they are."""
    there = cordoned_gpus(annotations)
    new = [uuid for uuid in dict.fromkeys(uuids) if uuid not in there]
    if not new:
        return {}
    return {CORDONED_GPUS_ANNOTATION: ",".join((*_listed(annotations.get(CORDONED_GPUS_ANNOTATION, "")), *new))}


def uncordon_annotations(annotations: Mapping[str, str], uuids: Iterable[str]) -> dict[str, str | None]:
    """The annotations to write for these to take pods again, None for one to remove; none where they do."""
    gone = frozenset(uuids)
    changes: dict[str, str | None] = {}
    for name in CORDON_ANNOTATIONS:
        listed = _listed(annotations.get(name, ""))
        if gone.intersection(listed):
            changes[name] = ",".join(uuid for uuid in listed if uuid not in gone) or None
    return changes


def _listed(text: str) -> list[str]:
    return [uuid for part in text.split(",", MAX_CORDONED)[:MAX_CORDONED] if (uuid := part.strip())]
