"""Texts as labels: by the rule of NVIDIA's feature discovery, and within those of Kubernetes."""

import re
from collections.abc import Mapping

from purser.core.device.pci import as_label

Labels = dict[str, str]

TIMESTAMP_LABEL = "nvidia.com/gfd.timestamp"

MAX_LABEL = 63
"""Characters of a label's value, and of its key without the prefix."""

_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PUNCTUATION = "-_."


class LabelTrouble(Exception):
    """A group of labels cannot be determined; the message says why."""


def label_value(text: str, ending: str = "") -> str:
    """A label's value of any text, with an ending that is a value already.

    Feature discovery publishes values that Kubernetes refuses, such as of the machine ``To Be Filled By O.E.M.``: here
    they lose what is too long, and what may not stand at either end.
    """
    kept = as_label(text).strip(_PUNCTUATION)[: MAX_LABEL - len(ending)].rstrip(_PUNCTUATION)
    return f"{kept}{ending}" if kept else ending.lstrip(_PUNCTUATION)


def is_label(key: str, value: str) -> bool:
    """Whether Kubernetes takes the label, given that it takes the key's prefix."""
    return _WORD.fullmatch(key.rpartition("/")[2]) is not None and (not value or _WORD.fullmatch(value) is not None)


def changes(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str | None]:
    """What makes labels that are there those that are wanted; None for one that is to go.

    Another time of making is no change by itself: nothing is written for it alone.
    """
    gone = dict.fromkeys(there.keys() - wanted.keys())
    found = {key: value for key, value in wanted.items() if there.get(key) != value} | gone
    return {} if found.keys() == {TIMESTAMP_LABEL} and TIMESTAMP_LABEL in wanted.keys() & there.keys() else found
