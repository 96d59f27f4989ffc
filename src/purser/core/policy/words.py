"""The words that name placement policies: in pods' annotations, in the scheduler's options, in the simulator.

Not here: what a policy does (`purser.core.placement`), and which annotation it stands in (`purser.core.dialects`).
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from purser.core.model import GpuPolicy, NodePolicy

MAX_LENGTH = 256
"""Characters; four weighed names need a third of it."""

MAX_WEIGHED = 4
"""Policies weighed against one another: each costs the scheduler a decision of its own."""

MAX_WEIGHT = 1000

STAND_INS: Mapping[GpuPolicy, GpuPolicy] = MappingProxyType(
    {
        GpuPolicy.RANDOM: GpuPolicy.BINPACK,
        GpuPolicy.BEST_FIT: GpuPolicy.BINPACK,
        GpuPolicy.FRAGMENTATION: GpuPolicy.BINPACK,
        GpuPolicy.PURSER: GpuPolicy.BINPACK,
    }
)
"""GPU policies that name the GPUs themselves, by the fleet as arrays, and which word orders a node's devices in their
place where no arrays are at hand: where a victim is looked for, or kubelet's choice. All other words order or filter,
and chain."""

ARRAY_WORDS = frozenset(STAND_INS)

_WEIGHT = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")

_TOPOLOGY = "topology"
"""Short for `GpuPolicy.TOPOLOGY_AWARE`."""

Word = TypeVar("Word", bound=StrEnum)


def node_policies(text: str) -> tuple[tuple[NodePolicy, float], ...]:
    """Policies for nodes and their weights: ``fragmentation=3,spread=1``, or one name; a weight left out is 1.

    Raises ValueError for a name that there is none of or that occurs twice, a weight that is no number above 0 and up
    to `MAX_WEIGHT` with at most three decimals, more than `MAX_WEIGHED` names, and more than `MAX_LENGTH` characters.
    """
    words = _words(text)
    if len(words) > MAX_WEIGHED:
        raise ValueError(f"{len(words)} node policies are listed, more than the maximum of {MAX_WEIGHED}")
    parts = tuple(map(_parsed_weight, words))
    names = [name for name, _ in parts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"policy {name.value!r} appears more than once: list it once")
    return parts


def canonical_node_policy(text: str) -> str:
    """The same policies in canonical form: no spaces, and an explicit weight for each of several. Raises as
    `node_policies`."""
    parts = node_policies(text)
    if len(parts) == 1:
        return parts[0][0].value
    return ",".join(f"{name}={weight:g}" for name, weight in parts)


def gpu_policies(text: str) -> tuple[GpuPolicy, ...]:
    """Policies for the GPUs of a node: a chain such as ``mutex,numa,spread``, each word once, in written order.

    ``topology`` is read as ``topology-aware``. Raises ValueError for a word that there is none of, for `ARRAY_WORDS`
    beside anything but ``mutex``, and for more than `MAX_LENGTH` characters.
    """
    words = tuple(dict.fromkeys(map(_gpu_policy, _words(text))))
    for word in words:
        others = [other.value for other in words if other not in (word, GpuPolicy.MUTEX)]
        if word in ARRAY_WORDS and others:
            raise ValueError(
                f"policy {word.value!r} for GPUs cannot be combined with {others[0]!r}: use it alone, or only with "
                "mutex"
            )
    return words


def node_policy_pattern() -> str:
    """What `node_policies` reads, but for spaces and names that occur twice: for JSON schemas."""
    one = f"{_any_of(NodePolicy)}(={_WEIGHT.pattern})?"
    return f"^{one}(,{one}){{0,{MAX_WEIGHED - 1}}}$"


def gpu_policy_pattern() -> str:
    """What `gpu_policies` reads, but for spaces: for JSON schemas."""
    chain = _any_of([*(word for word in GpuPolicy if word not in ARRAY_WORDS), _TOPOLOGY])
    alone = _any_of(word for word in GpuPolicy if word in ARRAY_WORDS)
    mutex = GpuPolicy.MUTEX.value
    return f"^({chain}(,{chain})*|({mutex},)?{alone}|{alone},{mutex})$"


def _any_of(words: Iterable[str]) -> str:
    return f"({'|'.join(words)})"


def _words(text: str) -> list[str]:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the policies have {len(text)} characters, more than the maximum of {MAX_LENGTH}")
    return [word.strip() for word in text.split(",")]


def _parsed_weight(word: str) -> tuple[NodePolicy, float]:
    name, equals, weight = (part.strip() for part in word.partition("="))
    return _named(NodePolicy, "nodes", name), _weight(name, weight) if equals else 1.0


def _weight(name: str, text: str) -> float:
    value = float(text) if _WEIGHT.fullmatch(text) else 0.0
    if not 0 < value <= MAX_WEIGHT:
        raise ValueError(
            f"invalid weight {text[:64]!r} for policy {name!r}: must be a number greater than 0 and at most "
            f"{MAX_WEIGHT}, with at most three decimals"
        )
    return value


def _gpu_policy(word: str) -> GpuPolicy:
    return GpuPolicy.TOPOLOGY_AWARE if word == _TOPOLOGY else _named(GpuPolicy, "GPUs", word)


def _named(words: type[Word], subject: str, name: str) -> Word:
    try:
        return words(name)
    except ValueError:
        known = ", ".join(sorted(words))
        raise ValueError(f"unknown policy {name[:64]!r} for {subject}: must be one of {known}") from None
