"""A scheduler's log: whatever happened to the fleet, each decision comes out the same to the last bit."""

import io
from pathlib import Path
from random import Random
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import tiers
from tests.conformance.kubelet.prediction.hardware import NODE
from tests.conformance.kubelet.prediction.pods import requesting_pod
from tests.unit.core.decisions.scheduling_world import LoggedScheduler, as_file, logged_records, named, replayed
from tests.unit.core.decisions.test_simulation import framed
from tests.unit.core.decisions.versions import encode_later, later_reader, later_writer
from tests.unit.core.placement.test_evaluate_agrees import LEFT, NAMES, SHARES, inventories, put, requests
from tests.unit.scheduler.kubelet_world import aligning

from purser.core.decisions import DecisionLogError, Reader
from purser.core.decisions.framing import MAGIC
from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.records import (
    LOG_FORMAT,
    KubeletTaken,
    NodesJudged,
    PodPlaced,
    Record,
    SchedulingRecord,
    SchedulingStart,
)
from purser.core.fleet import FreeResources, NominatedUsage
from purser.core.ledger import Usage
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    GpuPolicy,
    NodeInventory,
    NodePolicy,
    PodRequest,
)
from purser.core.placement import Placement, PolicySettings

POLICIES = st.builds(
    PolicySettings,
    node=st.sampled_from([*NodePolicy, NodePolicy.PURSER, NodePolicy.PURSER, "fragmentation=3,spread=1"]),
    gpu=st.sampled_from([(GpuPolicy.PURSER,), (GpuPolicy.BINPACK,), (GpuPolicy.RANDOM,), (GpuPolicy.FRAGMENTATION,)]),
)


def step(scheduler: LoggedScheduler, data: st.DataObject, number: int) -> None:
    fleet, what = scheduler.fleet, data.draw(st.integers(0, 11))
    name = data.draw(st.sampled_from(NAMES))
    if what == 0:
        fleet.set_inventory(data.draw(inventories(name)))
    elif what == 1:
        fleet.remove_node(name)
    elif what == 2:
        put(fleet, data.draw(st.integers(0, 5)), data.draw(SHARES))
    elif what == 3 and (uids := fleet.ledger.uids()):
        fleet.ledger.release(data.draw(st.sampled_from(uids)))
    elif what == 4:
        fleet.set_free_resources(name, FreeResources(1000 * number, 500, 3))
    elif what == 5:
        fleet.set_disputes(name, data.draw(st.sampled_from([{}, {f"{name}-0": "held by ns/p"}])))
    elif what == 6:
        scheduler.new_file()
    elif what == 7:
        scheduler.evaluator.refresh()  # as for the gauges: it is in no log, and changes no decision
    elif what == 8:
        for again in range(data.draw(st.sampled_from([1, 20]))):
            scheduler.arrived(named(data.draw(requests()), 1000 * number + again))
    else:
        request = named(data.draw(requests()), data.draw(st.integers(0, 40)))
        held = {name: NominatedUsage({f"{name}-0": Usage(1, 500, 0, 1)})} if data.draw(st.integers(0, 4)) == 0 else {}
        names = data.draw(st.permutations(NAMES)) if data.draw(st.booleans()) else [*NAMES, "unheard-of"]
        scheduler.schedule(request, names, data.draw(LEFT), held)


@tiers.examples(300)
@given(st.data(), POLICIES, st.sampled_from([None, b"key"]))
def test_any_history_comes_out_the_same(data: st.DataObject, policy: PolicySettings, key: bytes | None) -> None:
    scheduler = LoggedScheduler(policy, LoggedNames(key))
    for name in data.draw(st.lists(st.sampled_from(NAMES), unique=True)):
        scheduler.fleet.set_inventory(data.draw(inventories(name)))
    scheduler.new_file()
    for number in range(data.draw(st.integers(1, 12))):
        scheduler.at += 1
        step(scheduler, data, number)
    assert replayed(scheduler.written()) == (scheduler.decisions, [])


def used_fleet(chance: Random, scheduler: LoggedScheduler, steps: int) -> None:
    """Days of a cluster: pods come in waves of a kind, end, nodes are replaced and added, files are rotated."""
    fleet, number, kind = scheduler.fleet, 0, KINDS[0]
    for name in FLEET[:7]:
        fleet.set_inventory(node_of(chance, name))
        fleet.set_free_resources(name, FreeResources(chance.randrange(4, 65) * 1000, 1 << 19, 100))
    scheduler.new_file()
    for _ in range(steps):
        scheduler.at += 1
        what, name = chance.randrange(20), chance.choice(FLEET)
        if what == 0:
            kind = chance.choice(KINDS)
        elif what == 1 and name in fleet.names():
            fleet.remove_node(name)
            if chance.random() < 0.5:
                scheduler.evaluator.refresh()
        elif what == 2:
            fleet.set_inventory(node_of(chance, name))
            fleet.set_free_resources(name, FreeResources(chance.randrange(4, 65) * 1000, 1 << 19, 100))
        elif what == 3:
            scheduler.new_file()
        elif what == 4:
            fleet.set_disputes(name, chance.choice([{}, {f"{name}-1": "a pod"}]))
        elif what == 5:
            scheduler.evaluator.refresh()
        elif what < 9 and (uids := fleet.ledger.uids()):
            fleet.ledger.release(chance.choice(uids))
        else:
            number += 1
            asked = chance.choice(KINDS) if chance.random() < 0.2 else kind
            request = PodRequest(f"u{number}", "ns", f"p{number}", (asked,), cpu_milli=chance.choice([1000, 4000]))
            scheduler.arrived(request)
            scheduler.schedule(request, chance.sample(FLEET, len(FLEET)) if chance.random() < 0.5 else FLEET)


FLEET = [f"node-{letter}" for letter in "zyxwvutsrq"]
KINDS = [
    ContainerRequest("c", ContainerKind.APP, DeviceRequest(count, memory, percent, cores))
    for count, memory, percent, cores in [
        (1, 4000, None, 10),
        (1, 9000, None, 30),
        (1, None, 100, 100),
        (2, None, 100, 100),
        (4, None, 100, 100),
        (2, None, 50, 0),
    ]
]


def node_of(chance: Random, name: str) -> NodeInventory:
    model, memory = chance.choice([("NVIDIA A100", 40960), ("NVIDIA T4", 15360), ("NVIDIA L4", 23034)])
    devices = (Device(f"{name}-{n}", n, model, memory, slots=10) for n in range(chance.choice([2, 4, 4])))
    return NodeInventory(name, tuple(devices))


@pytest.mark.parametrize("seed", range((2, 12, 1000)[tiers.TIER]))
def test_a_used_cluster_comes_out_the_same(seed: int) -> None:
    chance = Random(seed)
    words = ("purser", "purser", "random", "fragmentation", "spread", "purser=2,binpack=1")
    node, gpu = words[seed % len(words)], (GpuPolicy.PURSER, GpuPolicy.RANDOM, GpuPolicy.BINPACK)[seed % 3]
    scheduler = LoggedScheduler(PolicySettings(node, (gpu,)), LoggedNames(b"key" if seed % 2 else None))
    used_fleet(chance, scheduler, 200)
    assert scheduler.decisions > 60
    assert replayed(scheduler.written()) == (scheduler.decisions, [])


def test_fields_that_a_later_version_added_are_skipped_and_those_of_an_earlier_one_have_defaults() -> None:
    records = logged_records()
    plain = [msgspec.msgpack.decode(msgspec.msgpack.encode(each)) for each in records]
    expected = replayed([as_file(records)])
    assert expected == (sum(isinstance(each, NodesJudged | PodPlaced) for each in records), [])
    later = framed(msgspec.msgpack.encode([*each, "new", {"more": 1}]) for each in plain)
    assert replayed([later]) == expected
    pairs = zip(plain, records, strict=True)
    earlier = framed(msgspec.msgpack.encode(fields[: len(fields) - _defaults(each)]) for fields, each in pairs)
    assert len(earlier) < len(as_file(records))
    assert replayed([earlier]) == expected


def _defaults(record: Record) -> int:
    """How many fields at its end have their defaults: an earlier version did not write them."""
    found = 0
    for field in reversed(msgspec.structs.fields(record)):
        if field.default is msgspec.NODEFAULT or getattr(record, field.name) != field.default:
            break
        found += 1
    return found


@pytest.mark.parametrize("seed", range((3, 40, 1000)[tiers.TIER]))
def test_nodes_whose_kubelets_may_refuse_come_out_the_same(seed: int) -> None:
    live = aligning(f"log {seed}")
    scheduler = LoggedScheduler(PolicySettings(), fleet=live.fleet)
    scheduler.new_file()
    for number in range(40):
        request = requesting_pod(live._rng, live.next_uid(), live.wishes)
        if number % 15 == 14:
            scheduler.new_file()
        placed = scheduler.judge(request, [NODE])
        if isinstance(placed, Placement):
            live.bind(request, placed)
        live.pass_time()
    assert any(isinstance(each, KubeletTaken) for records in scheduler.files for each in records)
    assert replayed(scheduler.written()) == (scheduler.decisions, [])


DATA = Path(__file__).parent / "data"


def test_files_that_an_earlier_version_began_are_followed_by_this_version_s() -> None:
    """Of formats 1 and 2, byte for byte as the versions before left them: format 1 had simulations alone, the files of
    format 2 have a record of each kind of a scheduler's log."""
    names = ("format-1", "format-2", "format-2-kubelet", "format-2-gone")
    earlier = [(DATA / f"{name}.log").read_bytes() for name in names]
    kinds = {type(record) for file in earlier[1:] for record in Reader(io.BytesIO(file).read)}
    assert {*get_args(SchedulingRecord), SchedulingStart} == kinds
    scheduler = LoggedScheduler(PolicySettings())
    used_fleet(Random(3), scheduler, 30)
    decisions, differences = replayed(earlier)
    assert decisions == 3 + 12 + 16 + 12
    assert [each.decision for each in differences] == [2]  # by now two GPUs are not two instances of one
    assert replayed([*earlier, *scheduler.written()]) == (decisions + scheduler.decisions, differences)


def test_a_log_goes_on_in_the_next_version_s_format() -> None:
    """That version reads all of it; this one reads what it wrote, and says which number it does not know."""
    scheduler = LoggedScheduler(PolicySettings())
    used_fleet(Random(4), scheduler, 60)
    now, before = scheduler.written(), scheduler.decisions
    scheduler.notes.clear()
    with later_writer():
        scheduler.new_file()
        for number in range(20):
            asked = PodRequest(f"v{number}", "ns", f"v{number}", (KINDS[number % 3],), cpu_milli=1000)
            scheduler.schedule(asked, FLEET)
    (later,) = [MAGIC + b"".join(map(encode_later, records)) for records in scheduler.files]
    with later_reader():
        assert replayed([*now, later]) == (scheduler.decisions, [])
        assert replayed([later, *now]) == (scheduler.decisions, [])
    assert replayed(now) == (before, [])
    assert scheduler.decisions > before + 20
    with pytest.raises(
        DecisionLogError, match=f"the log has format {LOG_FORMAT + 1}, but this version of Purser reads"
    ):
        replayed([*now, later])
