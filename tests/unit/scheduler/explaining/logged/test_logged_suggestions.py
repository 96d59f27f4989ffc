"""`purser why --from LOG`: it says what the dump of the same cluster says, each suggestion is proven on a changed log,
and brute force over the log's changes finds no other and no smaller one."""

import json
import os
import random

import pytest
from tests import tiers
from tests.unit.scheduler.explained import cluster
from tests.unit.scheduler.explaining.drawn import drawn
from tests.unit.scheduler.explaining.logged import records as logs
from tests.unit.scheduler.explaining.logged.records import explained, fits, recorded, request_of

from purser.core.decisions.records import InventoryTaken, KubeletTaken, NodesJudged
from purser.core.explaining.reasons import FilterReason
from purser.core.grant.quota import UNLIMITED
from purser.core.kubelet.config import TopologyPolicy
from purser.core.placement import Reason
from purser.scheduler.explaining import ChangeKind, Explainer

WAITING = int(os.environ.get("PURSER_WHY_PODS", (6, 100, 1000)[tiers.TIER]))
"""Pods that wait."""

_FEW = 64


def check_same_as_of_objects(objects, found):
    """All of Purser's reasons; kube-scheduler's are one here."""
    of_objects = Explainer(cluster(*objects)).explain("default", "p")
    assert found.fits == of_objects.fits

    def told(explanation):  # a log does not have nodes without GPUs
        purser = (e for e in explanation.reasons if e.by == "Purser" and e.reason != Reason.UNREGISTERED)
        return sorted((e.reason, e.nodes, e.gpus, e.examples) for e in purser)

    assert told(found) == told(of_objects)
    others = {name for name, text in of_objects.by_node.items() if text.split(":")[0] in set(FilterReason)}
    not_asked = {name for name, text in found.by_node.items() if text.startswith(FilterReason.NOT_ASKED)}
    assert not_asked <= others


def check_applied(records, found):
    for each in found.suggestions:
        after = fits(logs.applied(records, each.kind, each.change))
        assert len(after) == each.fits and set(each.examples) <= set(after) and after, (each, after)


def check_complete(records, found):
    by_kind = {}
    for each in found.suggestions:
        by_kind.setdefault(each.kind, []).append(each.change)
    check_amounts(records, by_kind.get(ChangeKind.AMOUNT, []))
    check_fields(records, {each.field for each in by_kind.get(ChangeKind.ANNOTATION, [])})
    check_quota(records, by_kind.get(ChangeKind.QUOTA, []))
    nodes = [e.inventory.node for e in records if isinstance(e, InventoryTaken)]
    offered = [each.node for each in by_kind.get(ChangeKind.KUBELET, [])]
    aligned = [name for name in sorted(nodes) if is_aligned(records, name) and fits(logs.unaligned(records, name))]
    assert offered == aligned[:1]
    check_fewest(by_kind.get(ChangeKind.UNCORDON_GPU, []), "gpus", logs.fewest_uncordoned(records))
    check_fewest(by_kind.get(ChangeKind.END, []), "pods", logs.fewest_ends(records))
    check_nobody_can_stay(records, by_kind.get(ChangeKind.END, []))


def check_amounts(records, offered):
    largest = {(each.container, each.resource): logs._whole(each) for each in offered}
    for part in request_of(records).containers:
        for what, field in logs.DEVICE_FIELDS.items():
            most = getattr(part.devices, field) or 0
            if what == "gpuMemoryMiB" and part.devices.memory_percent == 100:
                most = 40961
            if (part.devices.is_plain and what in ("gpuMemoryPercent", "gpuCoresPercent")) or most < 2:
                continue
            best = largest.get((part.name, what), 0)
            tried = [value for value in lower(most) if value > best]
            fitting = [value for value in tried if fits(logs.with_amount(records, part.name, what, value))]
            assert not fitting or part.devices.resource != "nvidia.com/gpu", (part.name, what, best, fitting[0])


def lower(most):
    if most <= _FEW:
        return range(most - 1, 0, -1)
    return sorted({1, *range(most // 8, most, most // 8), *(1 << at for at in range(0, most.bit_length() - 1, 2))})


def check_fields(records, offered):
    parts = request_of(records).containers
    fields = ("models_allowed", "models_denied", "uuids_allowed", "uuids_denied", "numa_bind", "modes_allowed")
    fields = (*fields, "held_by", "mig_profiles")
    set_there = {field for field in fields if any(getattr(part.devices, field) for part in parts)}
    if request_of(records).gpu_policy:
        set_there.add("gpu_policy")
    assert offered == {field for field in set_there if fits(logs.wider(records, field))}


def check_quota(records, offered):
    last = records[-1]
    assert isinstance(last, NodesJudged)
    if last.quota == UNLIMITED:
        assert not offered
        return
    much = 1 << 30
    assert bool(offered) == bool(fits(logs.with_left(records, {"gpuMemoryMiB": much, "gpuCoresPercent": much})))
    for change in offered:
        for what, amount in change.quota_left.items():
            assert not fits(logs.with_left(records, {**change.quota_left, what: amount - 1})), (what, amount)


def is_aligned(records, name):
    number = next(e.node for e in records if isinstance(e, InventoryTaken) and e.inventory.node == name)
    reports = [e.kubelet for e in records if isinstance(e, KubeletTaken) and e.node == number]
    return any(each is not None and each.config.topology_policy is not TopologyPolicy.NONE for each in reports)


def check_fewest(offered, field, fewest):
    """One where one suffices."""
    found = [len(getattr(each, field)) for each in offered]
    assert found or fewest is None, fewest
    assert fewest is None or (found[0] == 1 if fewest == 1 else found[0] >= fewest), (found, fewest)


def check_nobody_can_stay(records, offered):
    for change in offered:
        uids = {uid for uid, key in logs.keys(records).items() if key in change.pods}
        for stays in uids if len(uids) > 1 else ():
            assert not fits(logs.without(records, uids - {stays})), stays


@pytest.mark.parametrize("part", range(4 if tiers.IS_LONG else 1))
def test_the_log_says_what_the_objects_say_and_each_suggestion_is_proven_and_the_smallest(part):
    waiting = seed = 0
    while waiting < WAITING // (4 if tiers.IS_LONG else 1):
        objects = drawn(random.Random(f"log {part} {seed}"))
        seed += 1
        records, judged = recorded(objects)
        if not records:
            continue
        try:
            found = explained(records)
            check_same_as_of_objects(objects, found)
            if not judged.fits:
                waiting += 1
                check_applied(records, found)
                check_complete(records, found)
        except BaseException as error:
            error.add_note(f"seed 'log {part} {seed - 1}': {json.dumps(objects)[:20000]}")
            raise
