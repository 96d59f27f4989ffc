"""Units of words for memory: how many MiB one of the word is.

gpushare's device plugin counts GiB, or MiB with ``--memory-unit=MiB``; Volcano's count blocks of ``gpu-memory-factor``
MiB. Which it is, an administrator says of a cluster. The webhook writes it on each pod that uses such a word, where it
is not the default: what the pod asks for is then known wherever it is read, whatever is set later.
"""

from collections.abc import Iterable, Mapping

from purser.core.decoding import brief
from purser.core.names import MEMORY_UNITS_ANNOTATION
from purser.core.pod.manifest import ContainerSpec, PodManifest

DEFAULT_UNITS_MIB: Mapping[str, int] = {
    "aliyun.com/gpu-mem": 1024,
    "volcano.sh/gpu-memory": 1,
    "volcano.sh/vgpu-memory": 1,
}
"""By resource, where nothing is said."""

MAX_UNIT_MIB = 1024
"""Of a unit: GiB is the largest that anybody counts in."""

_MAX_UNITS_CHARACTERS = 256


def read_unit(text: str) -> tuple[str, int]:
    """``RESOURCE=MIB``, such as ``aliyun.com/gpu-mem=1``. Raises ValueError."""
    resource, _, unit = text.partition("=")
    if resource not in DEFAULT_UNITS_MIB or not (unit.isascii() and unit.isdigit() and len(unit) < 5):
        raise ValueError(
            f"{brief(text)!r} is not a memory unit: must be RESOURCE=MIB, where RESOURCE is "
            f"{' or '.join(DEFAULT_UNITS_MIB)}"
        )
    if not 1 <= int(unit) <= MAX_UNIT_MIB:
        raise ValueError(f"{brief(text)!r}: the number of MiB must be from 1 to {MAX_UNIT_MIB}")
    return resource, int(unit)


def units_text(containers: Iterable[ContainerSpec], units: Mapping[str, int]) -> str:
    """What the annotation of a pod with these containers must say; empty: nothing. ``units``: the cluster's, by
    resource."""
    named = {name for each in containers for name in (*each.limits, *each.requests)}
    found = {name: units.get(name, unit) for name, unit in DEFAULT_UNITS_MIB.items() if name in named}
    return ",".join(f"{name}={unit}" for name, unit in found.items() if unit != DEFAULT_UNITS_MIB[name])


def unit_mib(pod: PodManifest, resource: str) -> int:
    """MiB of one of ``resource`` in this pod; the default where its annotation makes no sense (`units_problem`)."""
    try:
        return _units(pod).get(resource, DEFAULT_UNITS_MIB[resource])
    except ValueError:
        return DEFAULT_UNITS_MIB[resource]


def units_problem(pod: PodManifest) -> str:
    """What is wrong with the annotation, which the webhook writes; empty: nothing."""
    try:
        _units(pod)
    except ValueError as error:
        return f"annotation {MEMORY_UNITS_ANNOTATION}: {error}"
    return ""


def _units(pod: PodManifest) -> dict[str, int]:
    text = pod.annotations.get(MEMORY_UNITS_ANNOTATION, "")
    if len(text) > _MAX_UNITS_CHARACTERS:
        raise ValueError("it is too long: remove the annotation, which the webhook writes itself")
    return dict(read_unit(each) for each in text.split(",")) if text else {}
