"""HAMi's file of nodes (``nodeconfig``), read for one node as if NVIDIA's device plugin's file said the same.

Source: the ConfigMap ``hami-device-plugin`` of HAMi v2.10, key ``config.json``: a list of nodes by exact name, whose
keys may be written in any case. HAMi ends on a mistake; here it costs the field in which it stands.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec.inspect import type_info

from purser.core.decoding import UnreadableError, brief
from purser.core.go_json import normalise_keys
from purser.core.salvaging import cap_sentences, mistake_sentence, salvage
from purser.core.sharing.file import MAX_NOTES, MAX_PROBLEMS, Flags, PluginFile, ReadFile, SetAside, SharingError
from purser.core.sharing.words import MigStrategy

NODES = "nodeconfig"
"""The key by which the file is known."""

_FILE = f"HAMi's {NODES}"


_Index = Annotated[int, msgspec.Meta(ge=0)]


class _Filter(msgspec.Struct, frozen=True):
    uuid: tuple[str, ...] | None = None
    index: tuple[_Index, ...] | None = None


class _Node(msgspec.Struct, frozen=True):
    name: str = ""
    operatingmode: Literal["", "hami-core", "mig", "mps"] = ""
    migstrategy: Literal["", "none", "single", "mixed"] = ""
    devicesplitcount: int | None = None
    devicememoryscaling: float | None = None
    devicecorescaling: float | None = None
    preconfigureddevicememory: int | None = None
    libcudaloglevel: int | None = None
    filterdevices: _Filter | None = None


_NODE = type_info(_Node)
MAX_NAMED = 16
"""GPUs that a sentence names."""

_WITHOUT_EFFECT_HERE = {"enablegetpreferredallocation", "preconfigureddevicetype"}
"""Keys that HAMi knows, and of which nothing that a pod gets depends."""


def is_hami_file(value: Any) -> bool:
    """Whether parsed YAML or JSON is such a file."""
    return isinstance(value, dict) and NODES in value


def hami_file(value: Any, node: str) -> ReadFile:
    """What the file says of a node, with what of it has no effect.

    A node that is not in it has HAMi's defaults; entries of other nodes are not looked at. Raises `SharingError` where
    the file is not a list of nodes.
    """
    entries = value[NODES]
    if not isinstance(entries, list | None):
        raise SharingError(f"{_FILE} is not a list: must be a list with an object for each node")
    problems = list(_unnamed_entries(entries or ()))
    entry = next((each for each in entries or () if isinstance(each, dict) and _name(each) == node), None)
    if entry is None:
        return ReadFile(PluginFile(), (), cap_sentences(problems, MAX_PROBLEMS, _FILE))
    where, unknown = f"{_FILE}, node {node}", list[str]()
    tidy = _with_readable_filter(normalise_keys(entry, _NODE, unknown), where, problems)
    try:
        found = salvage(tidy, _Node, where, problems)
    except UnreadableError as error:  # pragma: no cover (an object is always read, be it without any field)
        raise SharingError(str(error)) from error
    odd = (key for key in unknown if key.lower() not in _WITHOUT_EFFECT_HERE)
    notes = (*_notes(found, where), *(f"{where}: {key} is unknown and ignored" for key in odd))
    on_demand = MigStrategy.ON_DEMAND if found.operatingmode == "mig" else None
    file = PluginFile(flags=Flags(mig_strategy=on_demand or found.migstrategy or None))
    messages = cap_sentences(notes, MAX_NOTES, where), cap_sentences(problems, MAX_PROBLEMS, _FILE)
    return ReadFile(file, *messages, _excluded_gpus(found, where))


def _unnamed_entries(entries: Iterable[Any]) -> Iterator[str]:
    """Entries that may be meant for any node, a sentence each."""
    for place, each in enumerate(entries):
        at = f"{NODES}[{place}]"
        if not isinstance(each, dict):
            yield mistake_sentence(_FILE, at, each, "an object with a name")
        elif not isinstance(name := _name(each), str):
            yield mistake_sentence(_FILE, f"{at}.name", name, "the name of a node", "The entry is ignored")


def _name(entry: dict[Any, Any]) -> Any:
    return next((each for key, each in entry.items() if isinstance(key, str) and key.lower() == "name"), None)


def _with_readable_filter(tidy: dict[str, Any], where: str, problems: list[str]) -> dict[str, Any]:
    """Without what of ``filterdevices`` can name no GPU: the others that it names are not to be handed out."""
    filters = tidy.get("filterdevices")
    if not isinstance(filters, dict):
        return tidy
    kept = dict(filters)
    for key, kind, write in (("uuid", str, "a GPU's UUID"), ("index", int, "a GPU's index, an integer of 0 or more")):
        if isinstance(refs := filters.get(key), list):
            good = [ref for ref in refs if _is_valid_ref(ref, kind)]
            bad = ((place, ref) for place, ref in enumerate(refs) if not _is_valid_ref(ref, kind))
            problems += (mistake_sentence(where, f"filterdevices.{key}[{place}]", ref, write) for place, ref in bad)
            kept[key] = good
    return {**tidy, "filterdevices": kept}


def _is_valid_ref(ref: Any, kind: type) -> bool:
    return isinstance(ref, kind) and not isinstance(ref, bool) and (not isinstance(ref, int) or ref >= 0)


def _excluded_gpus(node: _Node, where: str) -> SetAside:
    filters = node.filterdevices or _Filter()
    return SetAside(frozenset(filters.uuid or ()), frozenset(filters.index or ()), f"{where}: filterdevices")


def _notes(node: _Node, where: str) -> Iterator[str]:
    no_overcommit = "Purser never overcommits a GPU"
    without_effect = (
        ("operatingmode mps", node.operatingmode == "mps", "the chart value agent.enforcement starts MPS daemons"),
        (
            "devicesplitcount",
            bool(node.devicesplitcount),
            "the chart value agent.slots sets how many containers can share a GPU",
        ),
        ("devicememoryscaling", node.devicememoryscaling not in (None, 0, 1), no_overcommit),
        ("devicecorescaling", node.devicecorescaling not in (None, 0, 1), no_overcommit),
        (
            "preconfigureddevicememory",
            bool(node.preconfigureddevicememory),
            "Purser uses the memory that NVML reports for a GPU",
        ),
        ("libcudaloglevel", node.libcudaloglevel is not None, "set the variable LIBCUDA_LOG_LEVEL in a container"),
    )
    yield from (f"{where}: {key} has no effect: {instead}" for key, is_given, instead in without_effect if is_given)
    filtered = node.filterdevices or _Filter()
    named = [*(f"index {each}" for each in filtered.index or ()), *(filtered.uuid or ())]
    if named:
        yield f"{where}: filterdevices hides GPUs from pods: {', '.join(brief(each, 60) for each in named[:MAX_NAMED])}"
