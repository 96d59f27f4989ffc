"""Resource names that look like one of Purser's words and are none: typing errors, and names that charts rename to."""

import difflib
from collections.abc import Mapping
from functools import lru_cache

from purser.core.dialects import RESOURCES
from purser.core.dialects.hami import GPUCORES, GPUMEM, GPUMEM_PERCENTAGE
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec

_RENAMED_RESOURCES: Mapping[str, str] = {
    "nvidia.com/vgpu": GPU_RESOURCE,
    "nvidia.com/vgpumem": GPUMEM,
    "nvidia.com/vgpu-memory": GPUMEM,
    "nvidia.com/vgpumem-percentage": GPUMEM_PERCENTAGE,
    "nvidia.com/vgpucores": GPUCORES,
    "nvidia.com/vgpu-cores": GPUCORES,
}
"""What HAMi's chart lets administrators choose (``resourceName``, ``resourceMem``, ...), as many of them do."""

_MIN_SIMILARITY = 0.8
"""Of `difflib.SequenceMatcher.ratio`: one letter more, less or other in a word of five."""
_MAX_CHARACTERS = 64
"""Of a name that is looked at: the longest word is half of that, and likeness costs the square."""
_MAX_NAMES = 64
"""Of a container. Real ones have less than ten."""


@lru_cache(maxsize=4096)
def likely_word(name: str) -> str:
    """The word that somebody who wrote this resource will have meant; empty: it is one, or looks like none.

    Either the domain is right and the rest alike, or the other way round.
    """
    if name in RESOURCES or "/" not in name or len(name) > _MAX_CHARACTERS:
        return ""
    if renamed := _RENAMED_RESOURCES.get(name):
        return renamed
    domain, _, rest = name.lower().partition("/")
    names_of_domain = {word.partition("/")[2]: word for word in sorted(RESOURCES) if word.partition("/")[0] == domain}
    if close := difflib.get_close_matches(rest, names_of_domain, 1, _MIN_SIMILARITY):
        return names_of_domain[close[0]]
    of_rest = {word.partition("/")[0]: word for word in sorted(RESOURCES) if word.partition("/")[2] == rest}
    if close := difflib.get_close_matches(domain, of_rest, 1, _MIN_SIMILARITY):
        return of_rest[close[0]]
    return ""


def uses_other_gpu_name(container: ContainerSpec) -> bool:
    """Whether the container says in another word than ``nvidia.com/gpu`` how many GPUs it asks for, and not in that."""
    names = [*dict.fromkeys((*container.limits, *container.requests))]
    return GPU_RESOURCE not in names and any(likely_word(name) == GPU_RESOURCE for name in names[:_MAX_NAMES])
