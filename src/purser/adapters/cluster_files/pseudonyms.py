"""Names for names: the same for the same, in the order of the originals, since ties are broken by name."""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from purser.core.wording import natural_sort_key


class NameKind(StrEnum):
    """What a name is of; its pseudonyms begin with the word."""

    NODE = "node"
    NAMESPACE = "namespace"
    POD = "pod"
    OWNER = "owner"
    CONTAINER = "container"
    VOLUME = "volume"
    CLAIM = "claim"
    POD_VOLUME = "pod-volume"
    RESOURCE_CLAIM = "resource-claim"
    CLAIM_TEMPLATE = "claim-template"
    POD_CLAIM = "pod-claim"
    DEVICE_CLASS = "device-class"
    QUOTA = "quota"
    UID = "uid"
    GPU = "GPU"
    LABEL = "label"
    VALUE = "value"
    SCHEDULER = "scheduler"
    GATE = "gate"
    PATH = "path"
    ADDRESS = "address"


_NATURALLY_SORTED = frozenset({NameKind.NODE, NameKind.GPU})
"""Whose order is that of people (`n2` before `n10`): of others texts are compared."""

_WORD = r"[\w.-]+"
"""As most ids are: what is between the punctuation of lists and records is looked up."""
_TOKEN = r"(?<![A-Za-z0-9_])(?:{})(?![A-Za-z0-9_])"
"""Ids with other characters are looked for."""


class Pseudonyms:
    """Made once, of all names that there are."""

    def __init__(self, names: Mapping[NameKind, Iterable[str]]) -> None:
        self._of = {kind: _build_pseudonyms(kind, found) for kind, found in names.items()}
        nodes = self._of.get(NameKind.NODE, {})
        gpus = self._of.get(NameKind.GPU, {})
        for uuid in gpus:
            gpus[uuid] = _device(uuid, gpus[uuid], nodes)
        tokens = {**self._of.get(NameKind.UID, {}), **gpus}
        multiword = sorted((each for each in tokens if not re.fullmatch(_WORD, each)), key=lambda each: -len(each))
        self._tokens = tokens
        self._pattern = re.compile(
            "|".join([*([_TOKEN.format("|".join(map(re.escape, multiword)))] if multiword else []), _WORD])
        )

    def of(self, kind: NameKind, name: str) -> str:
        """A name's; of none there is none. Of a name that was not among those at first: one that says nothing."""
        if not name:
            return ""
        return self._of.get(kind, {}).get(name, f"{kind.value}-unknown")

    def has(self, kind: NameKind, name: str) -> bool:
        """Whether it is one of the names."""
        return name in self._of.get(kind, {})

    def in_text(self, text: str) -> str:
        """A text with the uids of pods and of devices in it replaced."""
        return self._pattern.sub(lambda found: self._tokens.get(found[0], found[0]), text)

    def in_json(self, value: Any) -> Any:
        """The same of all texts in a value."""
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, dict):
            return {self.in_text(key): self.in_json(each) for key, each in value.items()}
        return [self.in_json(each) for each in value] if isinstance(value, (list, tuple)) else value

    def originals(self) -> dict[str, str]:
        """By pseudonym. For tests: who hands a file out keeps this to himself."""
        return {given: name for found in self._of.values() for name, given in found.items()}


def _build_pseudonyms(kind: NameKind, names: Iterable[str]) -> dict[str, str]:
    key: Callable[[str], Any] = natural_sort_key if kind in _NATURALLY_SORTED else str
    found = sorted({name for name in names if name}, key=key)
    width = len(str(len(found)))
    return {name: f"{kind.value}-{number:0{width}}" for number, name in enumerate(found, 1)}


def _device(uuid: str, given: str, nodes: Mapping[str, str]) -> str:
    """Of a device: plugins that give theirs no ids of their own are read as if these began with the node's name."""
    hyphens = (place for place in range(len(uuid) - 1, 0, -1) if uuid[place] == "-")
    node = next((uuid[:place] for place in hyphens if uuid[:place] in nodes), "")
    if node:
        return nodes[node] + uuid.removeprefix(node)
    prefix = next((each for each in ("GPU-", "MIG-") if uuid.startswith(each)), "")
    return f"{prefix}{int(given.rpartition('-')[2]):08}-0000-0000-0000-000000000000" if prefix else given
