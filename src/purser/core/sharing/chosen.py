"""Which of several files a node goes by: what its label names, else a default. As NVIDIA's config-manager chooses."""

from collections.abc import Collection, Iterable
from enum import StrEnum

from purser.core.decoding import brief
from purser.core.sharing.file import SharingError

CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""Of a node: the name of its file."""

NAMED_CONFIG = "default"
MAX_NAMES_SHOWN = 16


class ConfigFallback(StrEnum):
    """What a node without the label goes by, where no default is set."""

    NAMED = "named"
    """The file ``default``."""
    SINGLE = "single"
    """The one file, where there is one."""
    EMPTY = "empty"
    """None: as if it said nothing."""


def chosen_config(
    label: str, names: Iterable[str], *, default: str = "", fallbacks: Collection[ConfigFallback] = ()
) -> str:
    """The name of the file; empty: none, all is as by default.

    ``names`` are those of the files that there are. Raises `SharingError` where the label or the default names another,
    or nothing is left to go by.
    """
    there = sorted(name for name in names if not name.startswith(".."))  # a ConfigMap's volume has such links
    if name := label or default:
        if name not in there:
            by = f"label {CONFIG_LABEL}" if label else "the default"
            raise SharingError(f"{by} names the file {brief(name, 60)}, which does not exist: {_names_text(there)}")
        return name
    for fallback in fallbacks:
        if fallback is ConfigFallback.NAMED and NAMED_CONFIG in there:
            return NAMED_CONFIG
        if fallback is ConfigFallback.SINGLE and len(there) == 1:
            return there[0]
        if fallback is ConfigFallback.EMPTY:
            return ""
    raise SharingError(f"the node has no label {CONFIG_LABEL}, and no default is set: {_names_text(there)}")


def _names_text(names: Collection[str]) -> str:
    listed = ", ".join(brief(name, 60) for name in list(names)[:MAX_NAMES_SHOWN])
    return f"the files are {listed}" if listed else "there are no files"
