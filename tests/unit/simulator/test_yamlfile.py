"""Nodes and pods in YAML: read, or refused with file, line and column."""

from pathlib import Path

import pytest
from tests.unit.simulator.builders import as_listed

from purser.core.placement.shape import PodShape
from purser.simulator import departures
from purser.simulator.orders import timed_order
from purser.simulator.parallel import Task, run_all
from purser.simulator.problems import InputError
from purser.simulator.results import Run
from purser.simulator.yamlfile import NO_BOUNDS_NOTE, read_workload

GOOD = """
nodes:
  - {name: a, count: 2, gpus: 8, model: A100, cpu: 96, memory: 768Gi}
  - {name: plain}
pods:
  - {name: train, count: 2, gpus: 2, cpu: 500m, memory: 1Gi, arrives: 10, every: 5, lasts: 60}
  - {name: share, gpus: 1, gpu_milli: 250, models: [A100, T4], arrives: 1, lasts: 2}
"""


def test_lists_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(GOOD)
    found = read_workload(path)
    assert [node.name for node in found.nodes] == ["a-0", "a-1", "plain"]
    assert (found.gpus, found.nodes[0].cpu_free_milli, found.nodes[0].memory_free_mib) == (16, 96_000, 768 * 1024)
    assert [(pod.name, pod.arrives_s, pod.lasts_s) for pod in found.pods] == [
        ("train-0", 10, 60),
        ("train-1", 15, 60),
        ("share", 1, 2),
    ]
    assert found.pods[0].shape == PodShape(500, 1024, 2, 1000)
    assert found.pods[2].shape == PodShape(0, 0, 1, 250, models=("=A100", "=T4"))


@pytest.mark.parametrize(
    ("old", "new", "at_and_says"),
    [
        (GOOD, "", "|the file is empty"),
        (GOOD, "- a", "- a|expected a mapping with nodes, pods"),
        ("nodes:", "nodes: []\nother:", "other|unknown field 'other': must be one of"),
        ("name: plain", "count: 1", "{count|the entry has no name"),
        ("{name: plain}", "{name: a-1}", "a-1|'a-1' appears twice"),
        ("gpus: 8, model: A100", "gpus: 8", "{name: a,|the entry has 8 GPUs but no model: set model as well"),
        ("cpu: 96,", "cpu: many,", "many|cpu: 'many' is not a quantity"),
        ("gpus: 2,", "gpus: two,", "two|invalid value 'two' for gpus: must be an integer"),
        ("gpu_milli: 250", "gpu_milli: 0", "0|invalid value '0' for gpu_milli: must be an integer from 1 to 1000"),
        ("models: [A100, T4]", "models: A100", "A100|models must be a list of strings"),
        ("arrives: 1, lasts: 2", "arrives: 1", "{name: share|the entry has only one of arrives and lasts"),
        (
            "count: 2, gpus: 2",
            "count: 99999999, gpus: 2",
            "99999999|invalid value '99999999' for count: must be an integer",
        ),
        ("lasts: 60", "lasts: [60]", "[60]|lasts must be a single string"),
        ("name: share", "name: share, name: b", "name: b|name appears twice"),
        ("{name: share", "{name: share]", "]|invalid YAML"),
    ],
)
def test_an_error_has_its_place(tmp_path: Path, old: str, new: str, at_and_says: str) -> None:
    path = tmp_path / "w.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1))
    at, _, says = at_and_says.partition("|")
    with pytest.raises(InputError) as caught:
        read_workload(path)
    [problem] = [each for each in caught.value.problems if each.message.startswith(says)]
    line = (path.read_text().splitlines() or [""])[problem.line - 1]
    assert problem.file == str(path)
    assert line[problem.column - 1 :].startswith(at)


@pytest.mark.parametrize(
    "text", ["[" * 5000, "nodes: &a [*a]\npods: *a\n", "\x00", "nodes: !!python/object:os.system x"]
)
def test_nothing_crashes_the_reader(tmp_path: Path, text: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    with pytest.raises(InputError):
        read_workload(path)


def test_the_example_that_ships_can_be_simulated() -> None:
    example = read_workload(Path(__file__).parents[3] / "examples" / "traces" / "small-team.yaml")
    found = departures.run(example, timed_order(example, 1), "purser")
    assert found.placed.all()
    assert found.pending_gpu_hours > 0


FAMILY = """
nodes: [{name: a, gpus: 2, family: Hygon DCU}]
pods: [{name: p, gpus: 1, gpu_milli: 250, family: Hygon DCU}]
"""


def test_devices_of_other_vendors_are_listed_as_their_own(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(FAMILY)
    found = read_workload(path)
    assert [(gpu.model, gpu.resource) for gpu in found.nodes[0].gpus] == [("Hygon DCU", "hygon.com/dcunum")] * 2
    assert found.pods[0].shape == PodShape(0, 0, 1, 250, resource="hygon.com/dcunum")


def test_devices_of_other_vendors_have_no_bound_and_the_notes_say_so(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(FAMILY)
    found = read_workload(path)
    assert found.notes == (NO_BOUNDS_NOTE,)
    [run] = run_all(found, [Task("fragmentation", as_listed(found), bound=True)], 1, lambda *_: None)
    assert isinstance(run, Run) and run.bounds is None


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ("Hygon DCU, mig: A30}]", "mig applies to NVIDIA's GPUs"),
        ("Acme}]", "invalid value 'Acme' for family: must be one of"),
    ],
)
def test_of_other_vendors_there_are_families_and_no_mig(new: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(FAMILY.replace("Hygon DCU}]", new, 1))
    with pytest.raises(InputError) as refused:
        read_workload(path)
    assert refused.value.problems[0].message.startswith(says)
