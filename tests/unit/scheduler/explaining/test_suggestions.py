"""Changes by which a pod would fit: each offered one does, it is the smallest, and where none is offered none does.

Changes are applied here to the objects, as a user would, and the changed cluster is read and judged anew.
"""

import json
import os
import random
from collections import Counter

import pytest
from tests import tiers
from tests.unit.scheduler.explained import cluster
from tests.unit.scheduler.explaining import brute_force
from tests.unit.scheduler.explaining.applied import applied, find
from tests.unit.scheduler.explaining.drawn import drawn

from purser.core.kubernetes.quantities import MIB, quantity_ceil, quantity_milli
from purser.scheduler.explaining import ChangeKind, Explainer, SuggestedChange

PODS = int(os.environ.get("PURSER_WHY_PODS", (6, 300, 1000)[tiers.TIER]))
"""That wait."""

BRUTE_FORCE_EVERY = 1 if tiers.TIER is tiers.Tier.SOAK else 3
"""Pods of which on one all changes are tried."""

PARTS = 10 if tiers.IS_LONG else 1


def explained(objects, name="p"):
    return Explainer(cluster(*objects)).explain("default", name)


def amount_of(change):
    match change.resource:
        case "cpu":
            return quantity_milli(change.amount)
        case "memory":
            return quantity_ceil(change.amount) // MIB
    return quantity_ceil(change.amount)


def check_applied(objects, found):
    """Each suggestion, done to the objects, makes the pod fit where it says."""
    for each in found.suggestions:
        after = brute_force.fits(applied(objects, each.kind, each.change))
        assert after, each
        assert len(after) == each.fits and set(each.examples) <= set(after), (each, after)


def check_complete(objects, found):
    """Brute force finds no change of another kind, and none that is smaller."""
    by_kind = {}
    for each in found.suggestions:
        by_kind.setdefault(each.kind, []).append(each.change)
    tried = brute_force.PodTried(objects)
    amounts = {(each.container, each.resource): amount_of(each) for each in by_kind.get(ChangeKind.AMOUNT, ())}
    for key, value in brute_force.largest_amounts(tried):
        assert amounts.get(key, 0) >= value or _is_whole_cpus(key, amounts), f"{key}: {value} fits, offered {amounts}"
    assert {each.annotation for each in by_kind.get(ChangeKind.ANNOTATION, ())} == brute_force.fitting_annotations(
        tried
    )
    selectors = brute_force.fitting_selectors(tried)
    offered = [each.node_selector for each in by_kind.get(ChangeKind.NODE_SELECTOR, ())]
    assert sorted(offered, key=str) == sorted(selectors, key=str)
    near = {ChangeKind.AFFINITY, ChangeKind.POD_AFFINITY, ChangeKind.POD_ANTI_AFFINITY, ChangeKind.SPREAD}
    assert near & by_kind.keys() == brute_force.fitting_affinities(tried)
    assert _size(by_kind, ChangeKind.TOLERATIONS, "tolerations") == brute_force.fewest_taints(tried)
    check_quota(objects, by_kind)
    check_uncordoned_gpus(objects, by_kind)
    for kind in (ChangeKind.UNCORDON_NODE, ChangeKind.AGENT, ChangeKind.KUBELET):
        nodes = brute_force.fitting_nodes(objects, kind)
        assert [each.node for each in by_kind.get(kind, ())] == nodes[:1], (kind, nodes)
    check_ends(objects, by_kind)


def _is_whole_cpus(key, amounts):
    """Where a kubelet aligns CPUs whole ones are offered, though a part less may fit."""
    return key[1] == "cpu" and key in amounts and amounts[key] % 1000 == 0


def check_quota(objects, by_kind):
    """Of each quota what it has to allow, and no more."""
    offered = by_kind.get(ChangeKind.QUOTA, [])
    assert bool(offered) == brute_force.helps_quota(objects)
    raised = offered[0].quotas if offered else {}
    for name, hard in raised.items():
        for word, amount in hard.items():
            less = {**raised, name: {**hard, word: str(int(amount) - 1)}}
            assert not brute_force.fits(brute_force.with_quotas(objects, less)), f"{name}: less of {word} fits, too"


def check_uncordoned_gpus(objects, by_kind):
    """One GPU where one suffices; of more, none can stay cordoned."""
    fewest, offered = brute_force.fewest_uncordoned(objects), by_kind.get(ChangeKind.UNCORDON_GPU, [])
    if fewest is None or fewest == 1 or not offered:
        assert [len(each.gpus) for each in offered] == ([] if fewest is None else [fewest])
        return
    for stays in offered[0].gpus:
        less = SuggestedChange(node=offered[0].node, gpus=tuple(set(offered[0].gpus) - {stays}))
        assert not brute_force.fits(applied(objects, ChangeKind.UNCORDON_GPU, less)), f"{stays} can stay"


def check_ends(objects, by_kind):
    """One pod where one suffices; of more, a set of which no pod can stay. Not looked for: what pods mean for affinity
    and spreading."""
    spec = find(objects, "Pod", "p")["spec"]
    if {"podAffinity", "podAntiAffinity"} & spec.get("affinity", {}).keys() or "topologySpreadConstraints" in spec:
        return
    if find(objects, "Pod", "p")["metadata"]["labels"]:
        return
    fewest, offered = brute_force.fewest_ends(objects), by_kind.get(ChangeKind.END, [])
    if not offered:
        assert fewest is None
        return
    pods = offered[0].pods
    assert fewest is None or (len(pods) == 1 if fewest == 1 else len(pods) >= fewest), (fewest, pods)
    for stays in pods:
        gone = set(pods) - {stays}
        left = [each for each in objects if f"default/{each['metadata']['name']}" not in gone]
        assert len(pods) == 1 or not brute_force.fits(left), f"{stays} can stay"


def _size(by_kind, kind, field):
    return len(getattr(by_kind[kind][0], field)) if kind in by_kind else None


def check(objects, by_brute_force):
    """The kinds of change that were offered; None for a pod that fits, or never will."""
    found = explained(objects)
    if found.fits or found.objection:
        assert not found.suggestions
        return None
    check_applied(objects, found)
    if by_brute_force:
        check_complete(objects, found)
    return [each.kind for each in found.suggestions]


@pytest.mark.parametrize("part", range(PARTS))
def test_each_suggestion_makes_the_pod_fit_and_brute_force_finds_no_other_and_no_smaller(part):
    waiting = seed = 0
    offered = Counter()
    while waiting < PODS // PARTS:
        objects = drawn(random.Random(f"{part} {seed}"))
        seed += 1
        try:
            found = check(objects, by_brute_force=seed % BRUTE_FORCE_EVERY == 0)
        except BaseException as error:
            error.add_note(f"seed '{part} {seed - 1}': " + json.dumps(objects)[:20000])
            raise
        waiting += found is not None
        offered.update(found or ())
    assert offered
    if tiers.IS_LONG:
        print(dict(offered))
