"""The compiled kernels answer what numpy's do, to the last bit. Not compiled in the fast tier (`tests.conftest`)."""

import importlib.util
import os
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.core.placement.policies.fleets import MIX, all_rows, fleet_of, fleets, named, run, shapes

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement import kernels
from purser.core.placement.kernels import plain
from purser.core.placement.mix import Mix, tables
from purser.core.placement.policies.fragmentation import STEPS
from purser.core.placement.shape import PodShape, view
from purser.core.placement.table import ShapeTable

HAS_NUMBA = importlib.util.find_spec("numba") is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="needs the extra fast (numba)")


def fast() -> ModuleType:
    return kernels.choose("numba", HAS_NUMBA)


@needs_numba
@examples(60)
@given(facts=fleets(), pods=st.lists(shapes(), max_size=8), asked=shapes(), mix=st.sampled_from([MIX, Mix()]))
def test_both_see_and_score_alike(facts: list[FleetNodeFacts], pods: list[PodShape], asked: PodShape, mix: Mix) -> None:
    fleet = fleet_of(facts)
    run(ShapeTable(fleet, named(("spread", "spread"))), pods)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "used", plain)
        seen = view(fleet, asked, all_rows(fleet))
        patch.setattr(kernels, "used", fast())
        also = view(fleet, asked, all_rows(fleet))
    for field in ("left", "after", "takes", "fits"):
        assert_equal(getattr(seen, field), getattr(also, field))
    typical = tables(mix, fleet.models)
    fragments = [kernel.fragments(seen.left, seen.cpu_free_milli, seen.model, typical) for kernel in (plain, fast())]
    assert_equal(*fragments)
    cpu = seen.cpu_free_milli - asked.cpu_milli
    told = (seen.left, seen.after, seen.takes, seen.fits, cpu, seen.model, fragments[0], asked.gpu_count)
    (scores, gpus), (also_scores, also_gpus) = (
        kernel.fragment_scores(*told, typical, STEPS) for kernel in (plain, fast())
    )
    assert_equal(scores, also_scores)
    assert_equal(gpus, also_gpus)


def test_many_nodes_are_looked_at_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(
        [FleetNodeFacts(f"node-{n}", (GpuFacts("T4", 1000, 10, memory_taken_mib=n),), 1000 * n) for n in range(20)]
    )
    seen, typical = view(fleet, PodShape(), all_rows(fleet)), tables(MIX, fleet.models)
    at_once = plain.fragments(seen.left, seen.cpu_free_milli, seen.model, typical)
    monkeypatch.setattr(plain, "_BLOCK", 7)
    assert_equal(at_once, plain.fragments(seen.left, seen.cpu_free_milli, seen.model, typical))


def assert_equal(one: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", other: object) -> None:
    assert isinstance(other, np.ndarray)
    assert one.dtype == other.dtype
    assert one.tobytes() == other.tobytes()


@needs_numba
@given(st.lists(st.tuples(st.sampled_from([-np.inf, -1.0, 0.0, 50.0]), st.integers(0, 9)), min_size=1, max_size=20))
def test_both_find_the_same_best_row(rows: list[tuple[float, int]]) -> None:
    scores, order = np.array([score for score, _ in rows]), np.array([place for _, place in rows], np.int64)
    found = plain.best(scores, order)
    assert fast().best(scores, order) == found
    best = max(rows, key=lambda row: (row[0], -row[1]))
    assert found == (-1 if best[0] == -np.inf else rows.index(best))


def test_one_says_which_kernels_to_use() -> None:
    assert kernels.choose("numpy", has_numba=True) is plain
    assert kernels.choose("", has_numba=False) is plain
    with pytest.raises(ValueError, match=r"'cuda' for kernels: must be numpy or numba"):
        kernels.choose("cuda", has_numba=True)


@needs_numba
def test_compiled_ones_are_taken_where_they_are_to_be_had() -> None:
    assert kernels.choose("", has_numba=True) is kernels.choose("numba", has_numba=True) is not plain


@pytest.mark.skipif(not os.environ.get(kernels.VARIABLE), reason="the environment names no kernels")
def test_tests_decide_with_the_kernels_that_the_environment_names() -> None:
    assert kernels.name() == os.environ[kernels.VARIABLE]


def test_asking_for_what_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="pip install numba"):
        kernels.choose("numba", has_numba=False)
