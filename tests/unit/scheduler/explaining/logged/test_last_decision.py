"""Which decision of a log is explained, what of it is said, and what is said where a log has none."""

import io

import pytest
from msgspec.structs import replace
from tests.unit.core.decisions.scheduling_world import LoggedScheduler, as_file
from tests.unit.scheduler.explaining.logged.records import file_of

from purser.core.decisions import DecisionLogError
from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.notes import DecisionInputs
from purser.core.decisions.records import NodesJudged, SimulationStart
from purser.core.fleet.kept import NominatedUsage
from purser.core.grant.quota import UNLIMITED, QuotaLimits
from purser.core.ledger import Usage
from purser.core.model import ContainerKind, ContainerRequest, Device, DeviceRequest, NodeInventory, PodRequest
from purser.core.placement import PolicySettings
from purser.core.placement.mix import Mix
from purser.scheduler.explaining import ChangeKind, LogFile, UnknownPodError, explain_from_log


def asking(name, memory, count=1, uid="", namespace="ns"):
    container = ContainerRequest("c", ContainerKind.APP, DeviceRequest(count, memory, None, 10))
    return PodRequest(uid or f"uid-{name}", namespace, name, (container,))


def scheduler(names=None, nodes=("a", "b"), memory=40960):
    made = LoggedScheduler(PolicySettings("binpack"), names)
    for name in nodes:
        devices = tuple(Device(f"{name}-{n}", n, "NVIDIA A100", memory, slots=10) for n in range(2))
        made.fleet.set_inventory(NodeInventory(name, devices))
    made.new_file()
    return made


def explained(made, pod, namespace="ns", until=None):
    files = [file_of(each, f"{place}.log") for place, each in reversed(list(enumerate(made.written())))]
    return explain_from_log(files, namespace, pod, until)


def test_a_placed_pod_has_its_choice_against_the_runner_up():
    made = scheduler()
    made.schedule(asking("first", 30000), ["a", "b"])
    made.at += 60
    made.schedule(asking("p", 9000), ["a", "b"])
    found = explained(made, "p")
    assert (found.state, found.node, found.at) == ("Placed", "a", "1970-01-01T00:17:40Z")
    choice = found.choice
    assert (choice.policy, choice.fits, choice.rank) == ("binpack", 2, 1)
    assert (choice.own.node, choice.runner_up.node) == ("a", "b") and choice.own.score > choice.runner_up.score
    assert choice.gpus == ("GPU 0: 9000 MiB, 10% of compute",)


def test_the_last_decision_until_a_time_is_explained_as_the_cluster_was_then():
    made = scheduler(nodes=("a",))
    for number in range(2):
        made.schedule(asking(f"full-{number}", 40000), ["a"])
    made.schedule(asking("p", 9000), ["a"])
    made.at += 60
    made.fleet.ledger.release("uid-full-1")
    made.schedule(asking("p", 9000), ["a"])
    made.at += 60
    made.fleet.ledger.release("uid-full-0")  # nothing of it is known at the decision
    made.schedule(asking("other", 9000), ["a"])
    assert explained(made, "p").choice.gpus == ("GPU 1: 9000 MiB, 10% of compute",)
    before = explained(made, "p", until=1030.0)
    assert (before.state, before.at, before.fits) == ("Waiting", "1970-01-01T00:16:40Z", ())
    assert [(each.reason, each.nodes, each.gpus) for each in before.reasons] == [("CardInsufficientMemory", 1, 2)]
    assert before.by_node == {"a": "2/2 CardInsufficientMemory"}
    assert [each.text for each in before.suggestions] == [
        "container c requests 960 MiB of GPU memory instead of 9000",
        "pod ns/full-0 is deleted",
    ]
    assert explained(made, "p", until=1060.0).state == "Placed"


def test_a_pod_is_named_by_its_uid_or_as_the_log_has_it_where_names_are_hashed():
    names = LoggedNames(b"key")
    made = scheduler(names)
    made.schedule(asking("p", 90000), ["a", "b"])
    found = explained(made, "uid-p", "any")
    assert (found.namespace, found.pod) == (names.namespace("ns"), names.pod("p"))
    assert found == explained(made, names.pod("p"), names.namespace("ns"))
    with pytest.raises(UnknownPodError, match=r"names in the file are hashed: specify the pod's UID"):
        explained(made, "p")


def test_of_pods_of_one_name_the_last_is_explained_by_its_own_decisions():
    made = scheduler(nodes=("a",))
    made.schedule(asking("p-0", 9000, uid="old"), ["a"])
    made.fleet.ledger.release("old")
    made.place("a", asking("p-0", 99000, uid="new"))
    found = explained(made, "p-0")
    assert (found.state, found.fits) == ("Waiting", ())
    assert found.reasons[0].reason == "CardInsufficientMemory"
    assert explained(made, "old").state == "Placed"


def test_a_pod_that_was_placed_early_is_placed_once_it_is_bound():
    made = scheduler()
    request = asking("p", 9000)
    made.schedule(request, ["a", "b"])
    made.at += 60
    own, notes = made.fleet.ledger.grant("uid-p"), made.notes[0]
    again = made.evaluator.evaluate(request, ["a"], own=own)
    notes += made.recording.judged(made.at, DecisionInputs(request, UNLIMITED, {}), again, "filter")
    assert (explained(made, "p").state, explained(made, "p").fits) == ("Waiting", ("a",))
    notes += [*made.recording.bound(made.at, "uid-other"), *made.recording.bound(made.at, "uid-p")]
    found = explained(made, "p")
    assert (found.state, found.node, found.at, found.choice.fits) == ("Placed", "a", "1970-01-01T00:16:40Z", 2)


def test_nodes_that_were_not_asked_about_are_a_reason_and_said_to_have_room():
    made = scheduler(nodes=("a", "b", "c"))
    made.schedule(asking("full", 40000, 2), ["a"])
    made.schedule(asking("p", 9000), ["a"])
    found = explained(made, "p")
    assert (found.nodes, [(each.reason, each.nodes, each.by) for each in found.reasons]) == (
        3,
        [("NotAsked", 2, "kube-scheduler"), ("CardInsufficientMemory", 1, "Purser")],
    )
    assert any("kube-scheduler filtered out 2 nodes with room for the pod (b, c)" in each for each in found.notes)
    narrowed = replace(made.files[0][-1], verb="prioritize")
    assert isinstance(narrowed, NodesJudged)
    again = explain_from_log([file_of(as_file([*made.files[0][:-1], narrowed]))], "ns", "p")
    assert [each.reason for each in again.reasons] == ["CardInsufficientMemory"]


def test_what_is_kept_for_nominated_pods_and_what_a_quota_leaves_count():
    made = scheduler(nodes=("a",))
    kept = {"a": NominatedUsage({f"a-{n}": Usage(1, 40000, 0, 1) for n in range(2)})}
    made.schedule(asking("p", 9000), ["a"], held=kept)
    assert [each.reason for each in explained(made, "p").reasons] == ["NodeNominated"]
    made.schedule(asking("q", 9000), ["a"], QuotaLimits(8000, 100))
    found = explained(made, "q")
    assert found.reasons[0].text.endswith("ResourceQuota (it leaves 8000 MiB of GPU memory and 100% of compute)")
    raised = next(each for each in found.suggestions if each.kind is ChangeKind.QUOTA)
    assert raised.text == "the namespace's quotas leave 9000 MiB of GPU memory instead of 8000"
    assert raised.change.quota_left == {"gpuMemoryMiB": 9000}


def test_of_several_files_the_newest_with_the_pod_is_read():
    made = scheduler()
    made.schedule(asking("p", 9000), ["a", "b"])
    made.new_file()
    made.schedule(asking("q", 9000), ["a", "b"])
    assert explained(made, "p").state == "Placed"
    with pytest.raises(UnknownPodError) as caught:
        explained(made, "r")
    assert "1.log: the file has 2 decisions from 1970-01-01T00:16:40Z" in str(caught.value)
    assert "found in 1.log and 1 more file. 1.log: the file has 2 decisions" in str(caught.value)
    assert "read another file" not in str(caught.value)


def test_a_log_without_the_pod_says_what_to_do():
    made = scheduler()
    made.schedule(asking("p", 9000, namespace="other"), ["a", "b"])
    made.schedule(asking("q", 9000), ["a", "b"])
    made.new_file()
    last = [as_file(made.files[-1])]

    def told(pod, namespace="ns", until=None, files=None):
        with pytest.raises(UnknownPodError) as caught:
            explain_from_log([file_of(each) for each in files or made.written()[:1]], namespace, pod, until)
        return str(caught.value)

    assert "a pod with this name exists in namespace other: select it with -n" in told("p")
    assert "set a later --at" in told("q", until=10.0)
    assert "the pod holds GPUs that were granted earlier: read the file before this one" in told("q", files=last)
    sampled = as_file([replace(made.files[0][0], one_in=4), *made.files[0][1:]])
    assert "the file has decisions on only one in 4 pods" in told("nobody", files=[sampled])


def test_a_file_that_ends_early_is_explained_up_to_there():
    made = scheduler()
    made.schedule(asking("p", 9000), ["a", "b"])
    made.schedule(asking("q", 9000), ["a", "b"])
    cut = made.written()[0][:-3]
    found = explain_from_log([file_of(cut)], "ns", "p")
    assert found.state == "Placed"
    assert [each for each in found.notes if "the file ends in the middle of the record" in each]
    with pytest.raises(UnknownPodError, match=r"the rest of the file could not be read: record \d+ at byte"):
        explain_from_log([file_of(cut)], "ns", "r")


def test_what_is_no_schedulers_log_is_one_error():
    simulation = as_file([SimulationStart(2, "1", "spread", 1, False, Mix())])
    for data, says in ((simulation, "simulation log, which does not name pods"), (b"", "not a decision log")):
        with pytest.raises(DecisionLogError, match=says):
            explain_from_log([file_of(data)], "ns", "p")
    made = scheduler()
    made.schedule(asking("p", 9000), ["a", "b"])
    found = explain_from_log([file_of(b"no log", "bad"), file_of(made.written()[0])], "ns", "p")
    assert any(each.startswith("bad: this is not a decision log") for each in found.notes)


def test_a_file_that_changes_while_it_is_read_is_one_error():
    made = scheduler()
    made.schedule(asking("p", 9000), ["a", "b"])
    contents = iter([made.written()[0], as_file(made.files[0][:3])])
    with pytest.raises(DecisionLogError, match="the file has just changed"):
        explain_from_log([LogFile("d.log", lambda: io.BytesIO(next(contents)))], "ns", "p")
