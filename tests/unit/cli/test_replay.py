"""`purser replay`: what it prints, what it refuses, and how it ends."""

import json
from pathlib import Path

import pytest
from tests.unit.cli.typed import here
from tests.unit.core.decisions.scheduling_world import LoggedScheduler, as_file

from purser.cli.output import FAILED, MISUSED
from purser.core.decisions.records import SimulationStart
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
from purser.core.placement import PolicySettings
from purser.core.placement.mix import Mix

LISTS = """
nodes:
  - {name: node, count: 3, gpus: 4, model: A100, cpu: 32}
pods:
  - {name: share, count: 20, gpus: 1, gpu_milli: 300, cpu: 1, memory: 1Gi, arrives: 0, every: 10, lasts: 95}
  - {name: whole, count: 9, gpus: 2, cpu: 2, memory: 1Gi, arrives: 5, every: 20, lasts: 60}
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    (folder / "lists.yaml").write_text(LISTS)
    path = folder / "decisions.log"
    words = ("--workload", folder / "lists.yaml", "--departures", "--policy", "binpack", "--mix", "learned")
    assert here("simulate", *words, "--decision-log", path)[0] == 0
    return path


def test_what_a_simulation_wrote_comes_out_the_same(log: Path) -> None:
    code, out, err = here("replay", log)
    assert (code, err) == (0, "")
    assert out.startswith("All ") and out.endswith(" decisions are the same\n")


def test_another_policy_says_what_would_have_changed_and_why(log: Path) -> None:
    code, out, _ = here("replay", log, "--policy", "spread", "--show", "2")
    head, first, second, last = out.splitlines()
    assert code == FAILED
    assert head.split() == ["DECISION", "POD", "LOGGED", "NOW", "WHY"]
    assert "300 MiB of a GPU, 1000m CPU" in first + second
    assert "spread scores node" in first + second
    assert "decisions differ with spread; use --show" in last
    found = json.loads(here("replay", log, "--policy", "spread", "-o", "json", "--show", "1000")[1])
    assert found["different"] == len(found["differences"]) > 2
    assert found["differences"][0]["now"].keys() == {"node", "gpus", "score"}
    assert len(here("replay", log, "--policy", "spread", "-o", "wide")[1].split("\n")[0].split("   ")) > 5


def test_a_log_that_ends_early_is_misuse_after_what_could_be_read(log: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.log"
    cut.write_bytes(log.read_bytes()[:-3])
    code, out, err = here("replay", cut, log)
    assert code == MISUSED
    assert "decisions are the same" in out
    assert f"purser: {cut}: record " in err and "the file ends in the middle of the record" in err
    unreadable = tmp_path / "unreadable.log"
    unreadable.mkdir()
    (unreadable / "a.log").mkdir()
    code, out, err = here("replay", tmp_path / "none.log", unreadable)
    assert (code, out, err.count("cannot read")) == (MISUSED, "", 2)


def test_a_folder_is_its_logs_in_order(scheduler_log: Path, log: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("no log")
    code, _, err = here("replay", tmp_path)
    assert (code, err) == (MISUSED, f"purser: LOG {tmp_path}: the folder does not contain decision logs (*.log)\n")
    (tmp_path / "decisions-2.log").write_bytes(log.read_bytes())
    (tmp_path / "decisions-1.log").write_bytes(scheduler_log.read_bytes())
    words = ("--policy", "spread", "--show", "1000", "-o", "json")
    assert here("replay", tmp_path, *words) == here("replay", scheduler_log, log, *words)
    (tmp_path / "decisions-3.log").write_bytes(log.read_bytes()[:-3])
    code, _, err = here("replay", tmp_path)
    assert (code, f"purser: {tmp_path}/decisions-3.log: record " in err) == (MISUSED, True)


def test_a_log_of_a_policy_that_there_is_none_of_costs_itself_alone(log: Path, tmp_path: Path) -> None:
    decisions = here("replay", log)[1]
    start = SimulationStart(1, "x", "nonsense", 1, False, Mix())
    (tmp_path / "bad.log").write_bytes(as_file([start]))
    code, out, err = here("replay", log, tmp_path / "bad.log")
    assert (code, out) == (MISUSED, decisions)
    assert f"purser: {tmp_path / 'bad.log'}: record 1 at byte " in err and "'nonsense'" in err
    assert here("replay", tmp_path / "bad.log", log)[:2] == (MISUSED, decisions)


def test_where_nothing_can_be_read_nothing_is_said_to_be_the_same(tmp_path: Path) -> None:
    (tmp_path / "hello").write_text("hello")
    code, out, err = here("replay", tmp_path / "hello")
    assert (code, out) == (MISUSED, "")
    assert "this is not a decision log" in err
    assert json.loads(here("replay", tmp_path / "hello", "-o", "json")[1])["decisions"] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("replay", "{log}", "--policy", "nothing"), "unknown policy 'nothing' for nodes"),
        (("simulate", "--demo", "--decision-log", "{log}"), "--decision-log logs only one run, not 9"),
        (("simulate", "--demo", "--decision-log", "/nowhere/x"), "cannot write --decision-log /nowhere/x"),
    ],
)
def test_an_error_is_one_line_before_anything_runs(log: Path, words: tuple[str, ...], says: str) -> None:
    code, _, err = here(*(word.format(log=log) for word in words))
    assert (code, len(err.splitlines())) == (MISUSED, 1)
    assert says in err


@pytest.fixture(scope="module")
def scheduler_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scheduler") / "decisions.log"
    scheduler = LoggedScheduler(PolicySettings(NodePolicy.BINPACK, (GpuPolicy.BINPACK,)))
    for name in ("a", "b", "c"):
        devices = tuple(Device(f"{name}-{n}", n, "NVIDIA A100", 40960, slots=10) for n in range(2))
        scheduler.fleet.set_inventory(NodeInventory(name, devices))
    scheduler.new_file()
    for number in range(6):
        asked = ContainerRequest("c", ContainerKind.APP, DeviceRequest(1, 9000, None, 10))
        scheduler.schedule(PodRequest(f"u{number}", "ns", f"p{number}", (asked,)), ["a", "b", "c"])
    path.write_bytes(scheduler.written()[0])
    return path


def test_a_schedulers_file_is_recognised_beside_a_simulations(scheduler_log: Path, log: Path) -> None:
    code, out, err = here("replay", scheduler_log)
    assert (code, out, err) == (0, "All 12 decisions are the same\n", "")
    code, out, _ = here("replay", scheduler_log, log)
    assert (code, out.startswith("All ")) == (0, True)


def test_another_policy_is_asked_of_a_schedulers_pods(scheduler_log: Path) -> None:
    code, out, _ = here("replay", scheduler_log, "--policy", "spread", "-o", "wide")
    assert code == FAILED
    assert "ns/p1" in out
    assert "spread scores node b" in out
    found = json.loads(here("replay", scheduler_log, "--policy", "spread", "-o", "json")[1])
    judged = found["differences"][0]
    assert (judged["pod"], judged["logged"]["node"], judged["now"]["node"]) == ("ns/p1", "a", "b")
    placed = next(each for each in found["differences"] if each["now"]["gpus"])
    assert placed["logged"]["node"] == placed["now"]["node"]
    assert placed["logged"]["gpus"] != placed["now"]["gpus"]
