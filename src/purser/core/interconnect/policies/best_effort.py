"""best-effort: the set that go-gpuallocator's policy of that name defines, without its search.

Its rule: of all partitions of the available GPUs into sets of the size asked for (the last one short where the size
does not divide) that have the required GPUs in one full set, the one with the highest score, the first one where
several are equal; and of that partition's sets with the required GPUs the one with the highest score, again the first.
For one GPU: the first available one, or the required one. Dividing everything up keeps good sets for later requests.

The original enumerates the partitions, 22 million for sets of 3 of 16 GPUs. Here each subset is valued once.

Where results differ from the original's, on purpose:

- It keeps the best partition in a slice that later partitions overwrite once they have seven sets or more (size 2 from
  13 GPUs on), and then returns a set of some other partition. Here it is the best one's.
- It panics when two GPUs report different links to each other. Here `topology.pair_score` decides what to believe.
- Without required GPUs it may return the short set with its padding, which crashes the device plugin that asked, when
  that set has the highest score: 3 well connected GPUs beside 4 poorly connected ones, asked for 4. Here it is the
  best full set.
- It does not see NVLinks through NVSwitches. Here they count, so that scores are higher there.

Up to 16 GPUs the rule is followed exactly: up to 16 on the node, or up to 16 available on a larger one. Beyond (an
NVL72 rack seen as one node) dividing everything up is given up for one good set, see `greedy`.
"""

from purser.core.interconnect import memo
from purser.core.interconnect.ask import NO_SET, Ask, GpuSet
from purser.core.interconnect.greedy import greedy
from purser.core.interconnect.partitions import PartitionScores, best_set
from purser.core.interconnect.topology import Scores, Topology

MAX_EXACT_GPUS = 16
"""GPUs among which the rule is followed exactly."""


def best_effort(topology: Topology, ask: Ask) -> GpuSet:
    """The best set of the best partition, in the order of the available ones."""
    if not ask.possible:
        return NO_SET
    if ask.size == len(ask.available):
        return GpuSet(ask.available)
    if ask.size == 1:
        return GpuSet(ask.required or ask.available[:1])
    if len(topology.scores) <= MAX_EXACT_GPUS:
        return GpuSet(_best_exact_set(topology.scores, ask.available, ask))
    if len(ask.available) <= MAX_EXACT_GPUS:
        return GpuSet(_exact_among(topology.scores, ask))
    return greedy(topology, ask)


def _best_exact_set(scores: Scores, available: tuple[int, ...], ask: Ask) -> tuple[int, ...]:
    chosen = best_set(
        _values(scores, ask.size), [1 << place for place in available], sum(1 << place for place in ask.required)
    )
    return tuple(place for place in available if chosen >> place & 1)


def _exact_among(scores: Scores, ask: Ask) -> tuple[int, ...]:
    """The same when the topology of the available ones alone is small enough."""
    some = sorted(ask.available)
    inner = {place: rank for rank, place in enumerate(some)}
    within = tuple(tuple(scores[one][other] for other in some) for one in some)
    renamed = Ask(tuple(inner[p] for p in ask.available), ask.size, tuple(inner[p] for p in ask.required))
    return tuple(some[rank] for rank in _best_exact_set(within, renamed.available, renamed))


def _values(scores: Scores, size: int) -> PartitionScores:
    if len(scores) <= memo.MAX_MEMO_DEVICES:
        return memo.memo_of(scores, size)
    # Only here, for large nodes: importing numpy takes 16 MiB and 0.1 s.
    from purser.core.interconnect import table

    return table.table_of(scores, size)
