"""`purser why --from` a decision log: what it prints, and how it ends."""

import json

import pytest
from tests.unit.cli.typed import here
from tests.unit.core.decisions.scheduling_world import LoggedScheduler
from tests.unit.scheduler.explaining.logged.test_last_decision import asking, scheduler

from purser.core.model import Device, NodeInventory
from purser.core.placement import PolicySettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files: ``p`` waits in the first, and is placed in the second."""
    made = scheduler(nodes=("a",))
    made.schedule(asking("full", 40000, 2), ["a"])
    made.schedule(asking("p", 9000), ["a"])
    made.at += 60
    made.fleet.ledger.release("uid-full")
    made.new_file()
    made.schedule(asking("p", 9000), ["a"])
    folder = tmp_path_factory.mktemp("logs")
    for place, each in enumerate(made.written()):
        (folder / f"decisions-{place}.log").write_bytes(each)
    return folder


def test_a_pod_that_waited_has_reasons_and_changes(folder):
    code, out, err = here("why", "p", "-n", "ns", "--from", folder / "decisions-0.log")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "ns/p waited at 1970-01-01T00:16:40Z: it did not fit on the only node"
    assert lines[3].split()[:4] == ["1", "2", "CardInsufficientMemory", "Purser"]
    assert lines[5].startswith(
        "Each of these changes alone would have made the pod fit, and was the smallest of its kind."
    )
    assert lines[6:] == [
        "- container c requests 960 MiB of GPU memory instead of 9000: the pod then fits on a",
        "- pod ns/full is deleted: the pod then fits on a",
    ]
    code, out, _ = here("why", "p", "-n", "ns", "--from", folder, "--at", "1970-01-01T00:17:00Z", "-o", "json")
    found = json.loads(out)
    assert (code, found["state"], found["at"]) == (0, "Waiting", "1970-01-01T00:16:40Z")
    assert found["suggestions"][0]["change"] == {"container": "c", "resource": "gpuMemoryMiB", "amount": "960"}
    assert "at: '1970-01-01T00:17:40Z'" in here("why", "uid-p", "--from", folder, "-o", "yaml")[1]
    wide = here("why", "p", "-n", "ns", "--from", folder / "decisions-0.log", "-o", "wide")[1]
    assert "FOR EXAMPLE" in wide


def test_a_pod_that_was_placed_has_its_choice(folder):
    code, out, err = here("why", "p", "-n", "ns", "--from", folder)
    assert (code, err) == (0, "")
    head, got, own, *_ = out.splitlines()
    assert head == "ns/p was placed on node a at 1970-01-01T00:17:40Z"
    assert got == "The pod got GPU 0: 9000 MiB, 10% of compute."
    assert own.startswith(
        "In the cluster as it was then, the pod would have fitted on 1 node. Policy binpack ranked the pod's node "
        "number"
    )


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("p",), 1, "a pod with this name exists in namespace ns: select it with -n"),
        (("p", "-n", "ns", "--at", "1970-01-01T00:00:01Z"), 1, "set a later --at"),
        (
            ("p", "-n", "ns", "--at", "noon"),
            2,
            "invalid value 'noon' for --at: must be a time such as 2026-03-01T10:00:00Z",
        ),
        (("p", "-n", "ns", "--context", "c"), 2, "--from cannot be used with --kubeconfig or --context"),
    ],
)
def test_what_is_not_there_or_wrong_is_said_in_one_line(folder, words, code, says):
    found, out, err = here("why", *words, "--from", folder)
    assert (found, out, len(err.splitlines())) == (code, "", 1)
    assert says in err


def test_files_that_are_no_logs_are_wrong_usage(folder, tmp_path):
    assert "the folder does not contain decision logs" in here("why", "p", "--from", tmp_path)[2]
    (tmp_path / "cluster.json").write_text('{"items": []}')
    code, _, err = here("why", "p", "--from", tmp_path / "cluster.json", "--at", "2026-03-01T10:00:00Z")
    assert (code, "--at requires a decision log" in err) == (2, True)
    broken = bytearray((folder / "decisions-0.log").read_bytes())
    broken[30] ^= 1
    (tmp_path / "broken.log").write_bytes(broken)
    code, _, err = here("why", "p", "-n", "ns", "--from", tmp_path)
    assert (code, "the record is damaged" in err, len(err.splitlines())) == (2, True, 1)


def test_no_text_of_a_log_commands_the_terminal(tmp_path):
    made = LoggedScheduler(PolicySettings())
    made.fleet.set_inventory(NodeInventory("a\x1b[31m", (Device("g", 0, "\x1b[31mA100", 9, slots=2),)))
    made.new_file()
    made.schedule(asking("p\x1b[31m", 10), ["a\x1b[31m"])
    (tmp_path / "d.log").write_bytes(made.written()[0])
    for output in ("table", "wide", "yaml", "json"):
        code, out, err = here("why", "uid-p\x1b[31m", "--from", tmp_path / "d.log", "-o", output)
        assert (code, "\x1b" in out + err) == (0, False)
