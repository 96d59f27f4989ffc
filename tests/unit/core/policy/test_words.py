"""Policies by the words for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text

from purser.core.model import GpuPolicy, NodePolicy
from purser.core.policy.words import (
    ARRAY_WORDS,
    MAX_LENGTH,
    MAX_WEIGHED,
    canonical_node_policy,
    gpu_policies,
    node_policies,
)


@pytest.mark.parametrize("name", NodePolicy)
def test_every_policy_for_nodes_is_read_by_its_name(name: NodePolicy) -> None:
    assert node_policies(name.value) == ((name, 1.0),)
    assert canonical_node_policy(name.value) == name.value


@pytest.mark.parametrize(
    ("text", "parts", "canonical"),
    [
        ("fragmentation=3,spread=1", [("fragmentation", 3), ("spread", 1)], "fragmentation=3,spread=1"),
        (" fragmentation = 3 , spread ", [("fragmentation", 3), ("spread", 1)], "fragmentation=3,spread=1"),
        ("spread=0.5,purser=0.001", [("spread", 0.5), ("purser", 0.001)], "spread=0.5,purser=0.001"),
        ("binpack=999.999,spread=1000", [("binpack", 999.999), ("spread", 1000)], "binpack=999.999,spread=1000"),
        ("binpack=007,spread=2.50", [("binpack", 7), ("spread", 2.5)], "binpack=7,spread=2.5"),
        ("spread=7", [("spread", 7)], "spread"),
        ("spread,binpack,packing,purser", None, "spread=1,binpack=1,packing=1,purser=1"),
    ],
)
def test_policies_for_nodes_are_weighed(text: str, parts: list[tuple[str, float]] | None, canonical: str) -> None:
    if parts is not None:
        assert node_policies(text) == tuple(parts)
    assert canonical_node_policy(text) == canonical


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "policy '' for nodes: must be one of best-fit, binpack, clustering, dot-product"),
        ("binpak", "policy 'binpak' for nodes"),
        ("Spread", "policy 'Spread' for nodes"),
        ("spread,", "policy '' for nodes"),
        ("mutex", "policy 'mutex' for nodes"),
        ("=3", "policy '' for nodes"),
        ("x" * 200, f"unknown policy '{'x' * 64}' for"),
        ("a\nb", r"unknown policy 'a\\nb'"),
        ("spread=", "weight '' for policy 'spread': must be a number greater than 0 and at most 1000"),
        ("spread=much", "'much'"),
        ("spread=0", "invalid weight '0'"),
        ("spread=0.000", "'0.000'"),
        ("spread=-1", "invalid weight '-1'"),
        ("spread=+1", r"invalid weight '\+1'"),
        ("spread=1000.001", "'1000.001'"),
        ("spread=0.0001", "at most three decimals"),
        ("spread=1e3", "'1e3'"),
        ("spread=1_0", "'1_0'"),
        ("spread=٣", "invalid weight '٣'"),
        ("spread=nan", "'nan'"),
        ("spread=inf", "'inf'"),
        ("spread=1=2", "invalid weight '1=2'"),
        ("spread=" + "9" * 240, f"invalid weight '{'9' * 64}'"),
        ("spread=1,binpack,spread=2", "policy 'spread' appears more than once: list it once"),
        (",".join(list(NodePolicy)[:5]), "5 node policies are listed, more than the maximum of 4"),
        ("spread" + " " * 251, "the policies have 257 characters, more than the maximum of 256"),
    ],
    ids=lambda value: value[:40],
)
def test_policies_for_nodes_without_sense_are_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        node_policies(text)
    with pytest.raises(ValueError, match=says):
        canonical_node_policy(text)


WEIGHTS = st.integers(1, 1_000_000).map(lambda thousandths: thousandths / 1000)


@given(
    st.lists(st.tuples(st.sampled_from(NodePolicy), WEIGHTS), min_size=2, max_size=4, unique_by=lambda part: part[0])
)
def test_what_is_written_is_read_back(parts: list[tuple[NodePolicy, float]]) -> None:
    text = canonical_node_policy(",".join(f"{name}={weight:.3f}" for name, weight in parts))
    assert node_policies(text) == tuple(parts)
    assert canonical_node_policy(text) == text
    assert len(text) <= MAX_LENGTH
    assert len(parts) <= MAX_WEIGHED


@given(st.text(alphabet="spreadbinck-=,.0123 \n", max_size=40) | any_text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for reader in (canonical_node_policy, gpu_policies):
        try:
            assert reader(text)
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize("word", GpuPolicy)
def test_every_policy_for_gpus_is_read_by_its_name(word: GpuPolicy) -> None:
    assert gpu_policies(word.value) == (word,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topology", ["topology-aware"]),
        ("binpack, topology", ["binpack", "topology-aware"]),
        ("topology,topology-aware", ["topology-aware"]),
        ("numa,spread,numa", ["numa", "spread"]),
        ("mutex,numa,topology-aware,spread", ["mutex", "numa", "topology-aware", "spread"]),
        ("purser,purser", ["purser"]),
        *((f"mutex,{word}", ["mutex", word.value]) for word in sorted(ARRAY_WORDS)),
        *((f"{word},mutex", [word.value, "mutex"]) for word in sorted(ARRAY_WORDS)),
    ],
)
def test_policies_for_gpus_chain(text: str, words: list[str]) -> None:
    assert gpu_policies(text) == tuple(words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "policy '' for GPUs: must be one of best-fit, binpack, fragmentation, mutex, numa"),
        ("binpack,", "policy '' for GPUs"),
        ("packing", "policy 'packing' for GPUs"),
        ("purser=2", "policy 'purser=2'"),
        ("purser,numa", "policy 'purser' for GPUs cannot be combined with 'numa': use it alone, or only with mutex"),
        ("mutex,spread,best-fit", "policy 'best-fit' for GPUs cannot be combined with 'spread'"),
        ("random,fragmentation", "policy 'random' for GPUs cannot be combined with 'fragmentation'"),
        ("topology,purser", "policy 'purser' for GPUs cannot be combined with 'topology-aware'"),
        ("numa," * 60, "the policies have 300 characters"),
    ],
    ids=lambda value: value[:40],
)
def test_policies_for_gpus_without_sense_are_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        gpu_policies(text)
