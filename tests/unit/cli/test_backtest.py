"""`purser backtest` on files of kubectl, and its errors. tests/cluster/test_backtest.py asks a real Prometheus."""

import json

import pytest
from tests.unit.backtest.test_logs import A, B, Cluster, as_file
from tests.unit.backtest.told import BEGIN_S, event, life, listed, node_object, pod_object, truth
from tests.unit.cli.test_report import prometheus
from tests.unit.cli.typed import beside, here
from tests.unit.simulator.builders import node, share, small_demo, whole

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    path = tmp_path_factory.mktemp("past") / "past.json"
    path.write_bytes(listed(truth(small_demo(), "purser", 9000.0).items))
    return path


def test_policies_stand_in_a_table_below_what_was(past):
    code, out, err = here("backtest", "--dump", past, "--policy", "spread", "--policy", "binpack")
    assert code == 0
    head, was, *policies, stated = out.splitlines()
    assert head.split("   ")[0] == "POLICY" and head.endswith("NODES NEEDED")
    assert was.startswith("(as it was)   44.17")
    assert [line.split()[0] for line in policies] == ["spread", "binpack"]
    assert policies[0].endswith("more than 31")
    assert stated == (
        "Error of the reconstruction: replayed with purser, ALLOCATED % is off by 0.00 points "
        "(0.00 on average at any moment), P50 by 0.0 s, P95 by 0.0 s, WAITED MEAN by 0.0%."
    )
    assert "purser: 151 pods on 31 nodes with 164 GPUs, 2.50 hours" in err
    assert "pods without an event that records their end, replayed as still running (130, for example ns/pod-1)" in err


def test_a_document_has_everything(past):
    code, out, err = here("backtest", "--dump", past, "-o", "json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["begin"], found["hours"], found["nodes"], found["gpus"]) == ("2026-09-21T14:13:20Z", 2.5, 31, 164)
    assert found["reconstruction"]["allocation_error_points"] == found["reconstruction"]["waiting_error_percent"] == 0
    [policy] = found["policies"]
    assert policy["policy"] == "purser" and policy["nodes_needed"] <= 31
    assert policy["allocation_percent"] == found["reconstruction"]["source"]["allocation_percent"]
    assert len(policy["curve"]["hours"]) == len(policy["curve"]["allocation_percent"]) == 300
    assert len(found["removed_first"]) == 31
    assert {each["count"] for each in found["left_out"]} == {130, 8}


def test_without_nodes_needed_nothing_is_said_of_them(past):
    code, out, _ = here("backtest", "--dump", past, "--no-nodes-needed", "-o", "wide")
    assert code == 0 and "NODES NEEDED" not in out and "WAIT AT END" in out
    code, out, _ = here("backtest", "--dump", past, "--no-nodes-needed", "-o", "yaml")
    assert code == 0 and "nodes_needed" not in out


def test_a_report_shows_the_policies(past, tmp_path):
    code, _, _ = here("backtest", "--dump", past, "--no-nodes-needed", "--report", tmp_path / "report.html")
    assert code == 0 and "purser" in (tmp_path / "report.html").read_text()


def test_a_pod_that_waits_behind_a_gate_or_selector_is_counted_on_standard_error(tmp_path):
    asked = {"nvidia.com/gpu": "1"}
    pods = [pod_object(name, f"u-{name}", asked, BEGIN_S + 9, {"phase": "Pending"}) for name in ("gated", "selects")]
    pods[0]["spec"]["schedulingGates"] = [{"name": "example.org/quota"}]
    pods[1]["spec"]["nodeSelector"] = {"zone": "a"}
    items = [node_object(node("n1", 1)), *life("a", "u-a", "n1", whole(1), (0, 0, 500)), *pods]
    (tmp_path / "past").write_bytes(listed(items))
    code, _, err = here("backtest", "--dump", tmp_path / "past", "--no-nodes-needed")
    assert code == 0 and "purser: 2 pods on 1 node" in err
    assert (
        "purser: pods with scheduling gates, left out because there is no record of when the gates are removed (1, for "
        "example ns/gated)\n" in err
    )
    assert "purser: pods with a node selector, affinity or topology spread, replayed as if" in err


def test_waiting_that_never_was_is_of_no_percentage(tmp_path):
    items = [node_object(node("n1", 1)), event("x", "x", "Hello", "", BEGIN_S + 900, kind="ConfigMap")]
    items += life("a", "u-a", "n1", whole(1), (0, 0, 500)) + life("b", "u-b", "n1", share(500), (10, 10, 20))
    (tmp_path / "past").write_bytes(listed(items))
    code, out, _ = here("backtest", "--dump", tmp_path / "past")
    assert code == 0 and "WAITED MEAN by an unknown amount because no pod waited." in out


def test_a_decision_log_says_which_policy_was_in_force(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1").at(1020).decide(B, "n1").at(1100).end(A)
    (tmp_path / "log").write_bytes(as_file(cluster.world.files[0]))
    code, out, err = here("backtest", "--log", tmp_path / "log", "--policy", "spread", "-o", "json")
    found = json.loads(out)
    assert (code, err, found["source"], found["pods"]) == (0, "", "log", 2)
    assert found["reconstruction"]["policy"] == "binpack"
    assert found["reconstruction"]["allocation_error_points"] == 0
    code, out, _ = here("backtest", "--log", tmp_path / "log", "--true-policy", "best-fit")
    assert code == 0 and "replayed with best-fit" in out and "\nbest-fit " in out


def test_a_log_is_given_by_its_folder(tmp_path):
    first = Cluster("n1").at(1010).decide(A, "n1").at(1020).decide(B, "n1").at(1100).end(A)
    (tmp_path / "decisions-1.log").write_bytes(as_file(first.world.files[0]))
    (tmp_path / "notes.txt").write_text("no log")
    words = ("--no-nodes-needed", "-o", "json")
    assert here("backtest", "--log", tmp_path, *words) == here(
        "backtest", "--log", tmp_path / "decisions-1.log", *words
    )
    (tmp_path / "none").mkdir()
    code, out, err = here("backtest", "--log", tmp_path / "none")
    assert (code, out) == (
        2,
        "",
    ) and err == f"purser: --log {tmp_path}/none: the folder does not contain decision logs (*.log)\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "exactly one of --dump, --prometheus and --log"),
        (("--dump=x", "--prometheus=http://x"), "exactly one of --dump, --prometheus and --log"),
        (("--dump=x", "--log=x"), "exactly one of --dump, --prometheus and --log"),
        (("--log=none",), "none cannot be read: No such file or directory"),
        (("--dump=none",), "none cannot be read: No such file or directory"),
        (("--dump=none", "--policy=best"), "policy"),
        (("--dump=none", "--true-policy=best"), "policy"),
        (("--prometheus=x",), "invalid value 'x' for --prometheus: must be a URL"),
        (("--prometheus=http://x", "--since=soon"), "invalid value 'soon' for --since"),
        (("--dump=none", "--report=/none/x"), "cannot write --report /none/x"),
    ],
)
def test_wrong_usage(words, said):
    code, out, err = here("backtest", *words)
    assert (code, out) == (2, "") and said in err


def test_files_without_what_a_replay_needs_say_what_is_missing(tmp_path):
    (tmp_path / "past").write_bytes(listed([event("x", "", "Scheduled", "", BEGIN_S)]))
    code, out, err = here("backtest", "--dump", tmp_path / "past")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "purser: events without the UID of their pod, which were left out (1, for example ns/x)",
        "purser: past: the history has no time span to replay, because it has fewer than two different timestamps",
    ]


async def test_a_prometheus_without_kube_state_metrics(tmp_path):
    async with prometheus(lambda _: []) as (url, asked):
        code, out, err = await beside("backtest", f"--prometheus={url}", "--since=13h", '--selector=cluster="x"')
    assert (code, out) == (2, "")
    assert "Check that Prometheus scrapes kube-state-metrics" in err
    assert len({text for text, _ in asked}) > 10 and all('cluster="x"' in text for text, _ in asked)


async def test_a_prometheus_that_refuses():
    async with prometheus(lambda _: 403) as (url, _):
        code, out, err = await beside("backtest", f"--prometheus={url}")
    assert (code, out) == (1, "") and "rejected the credentials (status 403)" in err
