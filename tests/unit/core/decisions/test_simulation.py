"""A simulation's log: every decision comes out the same to the last bit, and what was changed is found."""

import io
import math
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import tiers
from tests.unit.simulator.builders import node, share, small_demo, timed, whole
from tests.unit.simulator.test_engines import NODES, PODS

from purser.core.decisions import DecisionDifference, DecisionLogError, Reader, Replayer, encode
from purser.core.decisions.framing import MAGIC
from purser.core.decisions.records import LOG_FORMAT, Record, ShapePlaced, ShapeReleased, ShapeSeen, SimulationStart
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement.mix import Mix
from purser.core.placement.policies import NODE_POLICIES
from purser.core.placement.shape import PodShape
from purser.simulator import arrivals, departures
from purser.simulator.decision_log import SimulationLog
from purser.simulator.orders import draw_order, timed_order
from purser.simulator.workload import Order, SimWorkload


def logged(workload: SimWorkload, order: Order, policy: str, learns: bool = False) -> bytes:
    file = io.BytesIO()
    engine = arrivals if order.arrives_s is None else departures
    engine.run(workload, order, policy, learns, log=SimulationLog(file))
    return file.getvalue()


def replayed(log: bytes, policy: str | None = None) -> tuple[int, list[DecisionDifference]]:
    reader, replayer = Reader(io.BytesIO(log).read), Replayer(policy)
    found = [replayer.take(reader, record) for record in reader]
    return replayer.decisions, [each for each in found if each is not None]


def rewritten(log: bytes, change: Callable[[int, Record], Record]) -> bytes:
    """A log of which others have written the records, checksums and all."""
    records = enumerate(Reader(io.BytesIO(log).read))
    return MAGIC + b"".join(encode(change(at, record)) for at, record in records)


WHOLE = small_demo()
DEMO = msgspec.structs.replace(WHOLE, nodes=WHOLE.nodes[::3], pods=WHOLE.pods[::3])


@tiers.examples(200)
@given(NODES, PODS, st.sampled_from(sorted(NODE_POLICIES)), st.booleans())
def test_any_fleet_any_arrivals_any_policy(nodes, pods, policy: str, learns: bool) -> None:
    made = timed(nodes, [(float(at), float(lasts), shape) for at, lasts, shape in pods])
    log = logged(made, timed_order(made, 1), policy, learns)
    placed = sum(isinstance(each, ShapePlaced) for each in Reader(io.BytesIO(log).read))
    assert replayed(log) == (placed, [])
    assert placed > 0


CUT = [
    FleetNodeFacts(f"n{n}", (GpuFacts("A100", 40960, 7, mig_kind="A100-40GB", mig_mask=0, mig_held=0),) * 2)
    for n in range(3)
]


def test_gpu_instances_on_demand_come_out_the_same() -> None:
    asked = [PodShape(1000, 1024, n, resource=f"nvidia.com/mig-{n}g.{5 * n}gb") for n in (1, 2)]
    made = timed(CUT, [(float(n), 9.0 + n % 5, asked[n % 2]) for n in range(60)])
    log = logged(made, timed_order(made, 1), "purser")
    assert any(isinstance(each, ShapeReleased) and any(each.mig_bits) for each in Reader(io.BytesIO(log).read))
    assert replayed(log)[1] == []


def test_one_changed_decision_among_all_is_found_and_no_other_is_called_different() -> None:
    log = logged(DEMO, draw_order(DEMO, 1, 110), "purser")
    placed = [at for at, each in enumerate(Reader(io.BytesIO(log).read)) if isinstance(each, ShapePlaced)]
    for which in (0, len(placed) // 2):

        def change(at: int, record: Record, which: int = which) -> Record:
            if at != placed[which] or not isinstance(record, ShapePlaced):
                return record
            return msgspec.structs.replace(record, score=math.nextafter(record.score, 1e9))

        decisions, differences = replayed(rewritten(log, change))
        assert [each.decision for each in differences] == [which + 1]
        assert decisions == len(placed)
        (found,) = differences
        assert found.logged.node == found.now.node != ""
        assert "scores" in found.why


def test_another_node_in_the_log_is_found_with_what_speaks_for_the_right_one() -> None:
    made = timed([node("a", 2), node("b", 2)], [(0.0, 9.0, share(500)), (1.0, 9.0, whole(2)), (2.0, 9.0, share(400))])
    log = logged(made, timed_order(made, 1), "best-fit")

    def change(_: int, record: Record) -> Record:
        wrong = isinstance(record, ShapePlaced) and record.row >= 0 and record.gpus == (0, 1)
        return msgspec.structs.replace(record, row=1 - record.row) if wrong else record

    found = replayed(rewritten(log, change))[1][0]
    assert (found.decision, found.logged.node, found.now.node) == (2, "b", "a")
    assert "does not fit on the logged node, but node" in found.why


def test_another_policy_is_asked_of_the_states_that_the_logged_one_led_to() -> None:
    made = timed([node("a"), node("b")], [(0.0, 9.0, share(500)), (1.0, 9.0, share(300)), (2.0, 9.0, share(300))])
    log = logged(made, timed_order(made, 1), "binpack")
    decisions, differences = replayed(log, "spread")
    assert decisions == 3
    # binpack fills b, and only then uses a; asked of the same states, spread differs where one of them is empty
    assert [(each.decision, each.logged.node, each.now.node) for each in differences] == [(2, "b", "a")]
    assert differences[0].why.startswith("spread scores node a ")
    assert replayed(log, "binpack")[1] == []
    with pytest.raises(ValueError, match="policy 'nothing' for nodes"):
        replayed(log, "nothing")


def broken(log: bytes) -> str:
    with pytest.raises(DecisionLogError) as error:
        replayed(log)
    return str(error.value)


INSTANCE = PodShape(gpu_count=1, resource="nvidia.com/mig-1g.5gb")
SMALL = timed([CUT[0], node("b", 2)], [(0.0, 5.0, share(500)), (1.0, 9.0, whole(2)), (2.0, 9.0, INSTANCE)])
LOG = logged(SMALL, timed_order(SMALL, 1), "purser", learns=True)


def test_each_changed_byte_is_found_and_each_cut_is_said_to_be_one() -> None:
    ends = [reader.offset for reader in [Reader(io.BytesIO(LOG).read)] for _ in reader]
    for at in range(len(MAGIC), len(LOG), 1 if tiers.IS_LONG else 7):
        changed = bytearray(LOG)
        changed[at] ^= 0x10
        assert broken(bytes(changed)).startswith("record ")
    for at in [*range(len(MAGIC), len(LOG), 1 if tiers.IS_LONG else 7), *ends]:
        if at in ends:
            assert replayed(LOG[:at])[1] == []
        else:
            assert "the file ends in the middle of the record" in broken(LOG[:at])
    assert broken(b"") == broken(b"PK\3\4") == "this is not a decision log: the file signature does not match"


def framed(contents: Iterable[bytes]) -> bytes:
    heads = ((struct.pack("<II", len(each), zlib.crc32(each)), each) for each in contents)
    return MAGIC + b"".join(part for pair in heads for part in pair)


@tiers.examples(2000)
@given(st.data())
def test_whatever_the_records_say_it_is_one_sentence(data) -> None:
    """With right checksums: contents that others wrote."""
    contents = [msgspec.msgpack.encode(each) for each in Reader(io.BytesIO(LOG).read)]
    at = data.draw(st.integers(0, len(contents) - 1))
    content = bytearray(contents[at])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    contents[at] = bytes(content)
    try:
        replayed(framed(contents))
    except DecisionLogError as error:
        assert "\n" not in str(error)
    except ValueError as error:
        assert "policy" in str(error)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (ShapePlaced(9), "record 7 at byte"),
        (ShapePlaced(-1), "shape -1"),
        (ShapePlaced(0, 700, (0,)), "row 700"),
        (ShapePlaced(0, 1, (7,)), "has no GPU 7"),
        (ShapeReleased(0, 0, (0,), (1 << 14,)), "GPU 0 would release more than is allocated on it"),
        (SimulationStart(1, "", "purser", 0, False, Mix()), "not a simulation's record"),
    ],
)
def test_what_makes_no_sense_is_named(record: Record, says: str) -> None:
    start = list(Reader(io.BytesIO(LOG).read))[:3]
    log = MAGIC + b"".join(map(encode, [*start, ShapeSeen(share(1)), ShapeSeen(share(2)), ShapeSeen(share(3)), record]))
    assert says in broken(log)


def test_other_versions_of_the_format() -> None:
    """Fields that a later version added are skipped, those that an earlier one lacked have their defaults."""
    plain = [msgspec.msgpack.decode(msgspec.msgpack.encode(each)) for each in Reader(io.BytesIO(LOG).read)]
    later = framed(msgspec.msgpack.encode([*each, "new", {"more": 1}]) for each in plain)
    assert replayed(later) == replayed(LOG)
    nowhere = [tuple(each[:2]) if each[0] == 5 and each[2] < 0 else each for each in plain]
    assert replayed(framed(map(msgspec.msgpack.encode, nowhere))) == replayed(LOG)
    plain[0][1] = LOG_FORMAT + 1
    assert f"the log has format {LOG_FORMAT + 1}, but this version of Purser reads formats 1 to {LOG_FORMAT}" in broken(
        framed(map(msgspec.msgpack.encode, plain))
    )


def test_a_file_that_an_earlier_version_wrote_is_read() -> None:
    """Of format 1, byte for byte as that version left it, of the pods of ``LOG``. One decision is another by now: two
    GPU instances for a pod that asks for two GPUs."""
    earlier = (Path(__file__).parent / "data" / "format-1.log").read_bytes()
    first = next(iter(Reader(io.BytesIO(earlier).read)))
    assert isinstance(first, SimulationStart)
    assert first.format == 1
    decisions, (changed,) = replayed(earlier)
    assert (decisions, changed.decision, changed.logged.gpus, changed.now.gpus) == (3, 2, (0, 0), ())
    assert replayed(LOG)[1] == []


def long_log(path: Path, decisions: int, seed: int) -> None:
    """Pods of ten sizes come and go on a fleet of three models that they fill: so many decisions at the least, for some
    pods still wait behind others at the end."""
    chance = Random(seed)
    nodes = [node(f"n{n:03}", 2 + 2 * (n % 4), model=("A", "B", "C")[n % 3]) for n in range(60)]
    sizes = [*map(share, (100, 250, 300, 500, 700)), *map(whole, (1, 1, 2, 4, 8))]
    pods = [(at, chance.uniform(50, 400), chance.choice(sizes)) for at in map(float, range(decisions * 5 // 4))]
    made = timed(nodes, pods)
    with path.open("wb", buffering=1 << 20) as file:
        departures.run(made, timed_order(made, seed), "purser", True, log=SimulationLog(file))


@pytest.mark.gate
def test_a_long_log_comes_out_the_same(tmp_path: Path) -> None:
    decisions = 1_000_000 if tiers.TIER is tiers.Tier.SOAK else 5_000
    long_log(tmp_path / "log", decisions, 1)
    replayer, different = Replayer(), 0
    with (tmp_path / "log").open("rb") as file:
        reader = Reader(file.read)
        for record in reader:
            different += replayer.take(reader, record) is not None
    assert different == 0
    assert replayer.decisions >= decisions
