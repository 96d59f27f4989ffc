"""Pod annotations that narrow the choice of devices, for every dialect alike.

The names and meanings are HAMi's (``pkg/device/nvidia``): model lists match by substring whatever the case, uuid lists
exactly, an empty list constrains nothing. Volcano (``vgpu/utils.go``) has names of its own for some of them, with the
same meanings; what both names of one list say counts.
"""

import re
from collections.abc import Mapping

import msgspec

from purser.core.device.modes import MODES
from purser.core.dialects.errors import Problems
from purser.core.kubernetes.booleans import parse_bool
from purser.core.model import DeviceMode

USE_GPUTYPE = "nvidia.com/use-gputype"
NOUSE_GPUTYPE = "nvidia.com/nouse-gputype"
USE_GPUUUID = "nvidia.com/use-gpuuuid"
NOUSE_GPUUUID = "nvidia.com/nouse-gpuuuid"
NUMA_BIND = "nvidia.com/numa-bind"
VGPU_MODE = "nvidia.com/vgpu-mode"
MIG_PREFERENCE = "nvidia.com/mig-profile-preference"

VOLCANO_USE_GPUUUID = "volcano.sh/vgpu-use-gpuuuid"
VOLCANO_NOUSE_GPUUUID = "volcano.sh/vgpu-nouse-gpuuuid"
VOLCANO_VGPU_MODE = "volcano.sh/vgpu-mode"

_MAX_ENTRIES = 1024

_PROFILE = re.compile(r"[1-9][0-9]?g(\.[1-9][0-9]{0,3}gb)?", re.ASCII)


class Selectors(msgspec.Struct, frozen=True):
    """The fields of a `DeviceRequest` that come from the pod's annotations."""

    models_allowed: tuple[str, ...] = ()
    models_denied: tuple[str, ...] = ()
    uuids_allowed: tuple[str, ...] = ()
    uuids_denied: tuple[str, ...] = ()
    numa_bind: bool = False
    modes_allowed: tuple[DeviceMode, ...] = ()
    mig_profiles: tuple[str, ...] = ()


def read_selectors(annotations: Mapping[str, str], problems: Problems) -> Selectors:
    """The selectors in a pod's annotations; what makes no sense is noted."""
    return Selectors(
        models_allowed=names_in(annotations, USE_GPUTYPE, problems),
        models_denied=names_in(annotations, NOUSE_GPUTYPE, problems),
        uuids_allowed=_names_in_all(annotations, (USE_GPUUUID, VOLCANO_USE_GPUUUID), problems),
        uuids_denied=_names_in_all(annotations, (NOUSE_GPUUUID, VOLCANO_NOUSE_GPUUUID), problems),
        numa_bind=_read_flag(annotations, NUMA_BIND, problems),
        modes_allowed=_modes(annotations, problems),
        mig_profiles=_profiles(annotations, problems),
    )


def _names_in_all(annotations: Mapping[str, str], keys: tuple[str, ...], problems: Problems) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for key in keys for name in names_in(annotations, key, problems)))


def names_in(annotations: Mapping[str, str], key: str, problems: Problems) -> tuple[str, ...]:
    """The names in one annotation, which commas separate; too many are noted."""
    names = tuple(dict.fromkeys(name for part in annotations.get(key, "").split(",") if (name := part.strip())))
    if len(names) > _MAX_ENTRIES:
        problems.add(f"annotation {key} lists {len(names)} names, more than the maximum of {_MAX_ENTRIES}")
        return ()
    return names


def _read_flag(annotations: Mapping[str, str], key: str, problems: Problems) -> bool:
    text = annotations.get(key, "").strip()
    value = parse_bool(text)  # HAMi reads it so, too
    if value is None and text:
        problems.add(f'invalid value "{text[:64]}" for annotation {key}: must be true or false')
    return value is True


def _modes(annotations: Mapping[str, str], problems: Problems) -> tuple[DeviceMode, ...]:
    words = {word: key for key in (VOLCANO_VGPU_MODE, VGPU_MODE) for word in names_in(annotations, key, problems)}
    for word, key in words.items():
        if word not in MODES:
            problems.add(f'invalid value "{word[:64]}" for annotation {key}: must be one of {", ".join(MODES)}')
    return tuple(MODES[word] for word in words if word in MODES)


def _profiles(annotations: Mapping[str, str], problems: Problems) -> tuple[str, ...]:
    """HAMi takes a name whole, or its part before the dot."""
    words = names_in(annotations, MIG_PREFERENCE, problems)
    for word in words:
        if not _PROFILE.fullmatch(word):
            problems.add(
                f'annotation {MIG_PREFERENCE}: "{word[:64]}" is not a MIG profile: use one such as 4g.20gb or 4g'
            )
    return words
