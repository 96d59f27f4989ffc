"""`purser simulate`: what it prints, what it refuses, and how it ends."""

import csv
import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from purser.cli import app
from purser.cli.output import FAILED, MISUSED

from .test_get_failures import KUBECONFIG

pytestmark = pytest.mark.processes

PERCENTS = {"70", "80", "90", "95", "100", "110", "120", "130"}

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,4,T4\nb,64000,262144,4,G2\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n" + "".join(
    f"p{n},1000,1024,1,{500 if n % 2 else 1000},,{10 * n},{10 * n + 500}\n" for n in range(12)
)


def simulate(*words: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, words)])


@pytest.fixture
def lists(tmp_path: Path) -> list[object]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return ["--nodes", tmp_path / "nodes.csv", "--pods", tmp_path / "pods.csv"]


@pytest.mark.gate
def test_the_demonstration_works_at_once_and_quietly() -> None:
    purser = Path(sys.executable).with_name("purser")
    done = subprocess.run([purser, "simulate", "--demo", "--jobs", "1"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    assert head.startswith("POLICY")
    assert {"random", "best-fit", "fragmentation"} <= {row.split()[0] for row in rows}


def test_json_has_what_scripts_need_of_each_policy(lists: list[object]) -> None:
    two_policies = ["--policy", "best-fit", "--policy", "fragmentation"]
    done = simulate(*lists, *two_policies, "--seed", 1, "--seed", 2, "--load", 150, "-o", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [each["policy"] for each in found["policies"]] == ["best-fit", "fragmentation"]
    for each in found["policies"]:
        assert set(each["allocation_percent"]) == set(each["fragmentation_percent"]) == PERCENTS
        assert each["placed"] > 0
        assert each["failed"]["1-GPU"] > 0
        assert each["pods_per_second"] > 0
        assert [run["seed"] for run in each["runs"]] == [1, 2]
    assert found["workload"]["gpus"] == 8


def test_the_demonstration_is_a_cluster_of_some_size() -> None:
    done = simulate("--demo", "--policy", "best-fit", "--load", 2, "-o", "json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["workload"]["gpus"] == 984


def test_yaml_and_csv_say_the_same_as_json(lists: list[object]) -> None:
    common = [*lists, "--policy", "best-fit"]
    as_json, as_yaml, as_csv = (simulate(*common, "-o", form).stdout for form in ("json", "yaml", "csv"))
    [policy] = json.loads(as_json)["policies"]
    [same] = yaml.safe_load(as_yaml)["policies"]
    [row] = csv.DictReader(io.StringIO(as_csv))
    assert same["allocation_percent"] == policy["allocation_percent"]
    assert float(row["allocation_percent.100"]) == policy["allocation_percent"]["100"]
    assert int(row["placed"]) == policy["placed"] == same["placed"]


def test_a_wide_table_has_more_columns(lists: list[object]) -> None:
    table, wide = (simulate(*lists, "--policy", "best-fit", "-o", form).stdout for form in ("table", "wide"))
    assert "ALLOCATED AT 110%" not in table
    assert "ALLOCATED AT 110%" in wide
    assert "FAILED BY CLASS" in wide


def test_with_departures_it_reports_how_long_pods_waited(lists: list[object]) -> None:
    found = json.loads(
        simulate(*lists, "--departures", "--policy", "best-fit", "--policy", "spread", "-o", "json").stdout
    )
    for each in found["policies"]:
        assert each["pending_gpu_hours"] > 0
        assert each["waited_pods"] > 0
        assert 0 < each["fragmentation_percent"] < each["allocation_percent"] < 100
    table = simulate(*lists, "--departures", "--policy", "best-fit").stdout
    assert "PENDING GPU-HOURS" in table


def test_an_order_is_replayed(lists: list[object], tmp_path: Path) -> None:
    order = tmp_path / "seed3.txt"
    order.write_text("p p1\np p1-tuned-0\nn 0001-a\nn 0000-b\n")
    found = json.loads(simulate(*lists, "--order", order, "--policy", "binpack", "-o", "json").stdout)
    [run] = found["policies"][0]["runs"]
    assert (run["order"], run["seed"], run["pods"], run["placed"]) == ("seed3.txt", 3, 2, 2)


def test_nodes_and_pods_may_come_from_one_yaml_file(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("nodes: [{name: a, gpus: 4, model: T4}]\npods: [{name: p, count: 9, gpus: 1, gpu_milli: 500}]\n")
    found = json.loads(simulate("--workload", path, "--policy", "best-fit", "-o", "json").stdout)
    assert found["policies"][0]["allocation_percent"]["100"] == 100


@pytest.mark.gate
def test_bounds_and_a_report_are_made_when_asked_for(lists: list[object], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = simulate(*lists, "--policy", "best-fit", "--bound", "--report", page)
    assert done.exit_code == 0
    assert "With seed 42, no policy can allocate more than 100.00% at 100% arrived" in done.stdout
    assert page.read_text().startswith("<!doctype html>")


def test_pods_that_do_not_come_are_reported(lists: list[object]) -> None:
    done = simulate(*lists, "--policy", "best-fit", "--load", 50)
    assert done.exit_code == 0
    assert "pods in the list, chosen at random, are left out" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "exactly one of --demo, --nodes with --pods, --workload, --cluster"),
        (["--demo", "--cluster"], "exactly one of --demo"),
        (["--nodes", "n.csv"], "--nodes and --pods must be used together"),
        (["--workload", "w.yaml"], "w.yaml: cannot read the file"),
        (["--demo", "--order", "o.txt"], "o.txt: cannot read the file"),
        (["--demo", "--policy", "nothing"], "unknown policy 'nothing' for nodes"),
        (["--demo", "--departures", "--bound"], "--departures cannot be used with --order or --bound"),
        (["--demo", "--order", "o.txt", "--load", "90"], "--load cannot be used with --order"),
        (["--demo", "--kubeconfig", "k"], "--kubeconfig requires --cluster"),
        (["--cluster", "--kubeconfig", "nowhere"], "cannot read kubeconfig"),
    ],
)
def test_an_error_is_one_line_before_anything_runs(words: list[str], says: str) -> None:
    done = simulate(*words)
    assert (done.exit_code, done.stdout) == (MISUSED, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("purser: ")
    assert says in line


def test_bad_rows_are_reported_with_file_line_and_column(lists: list[object], tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(PODS + "bad,1000,1024,1,2000,,0,1\nworse,,1024,1,1000,,0,1\n")
    done = simulate(*lists)
    assert (done.exit_code, done.stdout) == (MISUSED, "")
    first, second = done.stderr.splitlines()
    assert f"{tmp_path / 'pods.csv'}:14:17: gpu_milli is '2000'" in first
    assert f"{tmp_path / 'pods.csv'}:15:7: cpu_milli is ''" in second


def test_times_are_needed_for_departures(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("nodes: [{name: a, gpus: 4, model: T4}]\npods: [{name: p, gpus: 1}]\n")
    done = simulate("--workload", path, "--departures")
    assert done.exit_code == MISUSED
    assert "--departures requires a list with each pod's arrival time" in done.stderr


@pytest.mark.parametrize(
    ("option", "module"), [("--bound", "scipy"), ("--report=r.html", "matplotlib")], ids=["bound", "report"]
)
def test_a_missing_package_is_named_with_how_to_install_it(
    option: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else there(name))
    done = simulate("--demo", option)
    assert done.exit_code == MISUSED
    assert f"needs {module}: run pip install {module}" in done.stderr


def test_a_cluster_that_does_not_answer_is_a_failure_and_not_misuse(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    done = simulate("--cluster", "--kubeconfig", path)
    assert done.exit_code == FAILED
    assert "cannot be reached" in done.stderr


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_simulated(
    lists: list[object], tmp_path: Path
) -> None:
    done = simulate(*lists, "--policy", "best-fit", "--report", tmp_path / "nowhere" / "r.html")
    assert done.exit_code == MISUSED
    assert "cannot write --report" in done.stderr
    assert done.stdout == ""


def test_who_is_interrupted_says_nothing_and_ends_as_shells_expect(
    lists: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("purser.simulator.parallel.run_all", interrupted)
    done = simulate(*lists, "--policy", "best-fit")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "")


def test_lists_on_few_gpus_are_reported_at_every_percent(tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    path.write_text("nodes: [{name: n, gpus: 8, model: T4}]\npods: [{name: p, gpus: 3, count: 4}]\n")
    done = simulate("--workload", path, "--policy", "best-fit", "--load", "150", "-o", "json")
    (run,) = json.loads(done.stdout)["policies"]
    assert list(run["allocation_percent"]) == ["70", "80", "90", "95", "100", "110", "120", "130"]
    assert [run["allocation_percent"][percent] for percent in ("70", "80", "130")] == [37.5, 75.0, 75.0]


def test_a_file_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("nodes: " + "[" * 50_000)
    done = simulate("--workload", path)
    assert done.exit_code == MISUSED
    assert "nested more than 16 levels deep" in done.stderr
