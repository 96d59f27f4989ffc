"""What a DaemonSet calls for: rolling updates, OnDelete, nodes that no longer fit, and the counts in its status."""

import pytest

from purser.lab.controllers.workloads.daemonplan import HASH_LABEL, NodeFit, plan

NEW, OLD = "new", "old"


def daemon_set(strategy=None):
    return {"metadata": {"name": "ds"}, "spec": {"updateStrategy": strategy or {"type": "RollingUpdate"}}}


def pod(node, revision=NEW, *, ready=True, phase="Running"):
    return {
        "metadata": {"name": f"{node}-{revision}", "labels": {HASH_LABEL: revision}},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def gone(made):
    return sorted(each["metadata"]["name"] for each in made.deletions)


def fits(*names):
    return dict.fromkeys(names, NodeFit.RUNS)


def test_every_node_that_fits_gets_one_pod():
    made = plan(daemon_set(), NEW, fits("a", "b"), [pod("a")])
    assert (made.creations, made.deletions) == (("b",), ())
    assert made.status["desiredNumberScheduled"] == 2
    assert made.status["numberUnavailable"] == 1


def test_a_node_gets_no_other_pod_while_one_is_still_going():
    made = plan(daemon_set(), NEW, fits("a"), [], going=[pod("a", OLD)])
    assert made.creations == ()
    assert (made.status["currentNumberScheduled"], made.status["updatedNumberScheduled"]) == (1, 0)


def test_on_delete_leaves_old_pods_and_counts_them_as_not_updated():
    made = plan(daemon_set({"type": "OnDelete"}), NEW, fits("a", "b"), [pod("a", OLD), pod("b")])
    assert (made.creations, made.deletions) == ((), ())
    assert (made.status["updatedNumberScheduled"], made.status["numberReady"]) == (1, 2)


@pytest.mark.parametrize(("bound", "count"), [(1, 1), (3, 3), ("50%", 2), ("1%", 1), (0, 1)])
def test_a_rolling_update_takes_as_many_at_once_as_it_may(bound, count):
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": bound}}
    made = plan(daemon_set(strategy), NEW, fits(*"abcd"), [pod(node, OLD) for node in "abcd"])
    assert len(made.deletions) == count


def test_a_rolling_update_waits_for_pods_that_are_not_ready_yet():
    pods = [pod("a", ready=False), pod("b", OLD)]
    assert plan(daemon_set(), NEW, fits("a", "b"), pods).deletions == ()


def test_an_old_pod_that_is_not_ready_goes_at_once():
    pods = [pod("a", OLD, ready=False), pod("b", OLD)]
    assert gone(plan(daemon_set(), NEW, fits("a", "b"), pods)) == ["a-old"]


def test_a_node_that_fits_no_longer_loses_its_pod_unless_it_may_stay():
    made = plan(daemon_set(), NEW, {"b": NodeFit.STAYS}, [pod("a"), pod("b")])
    assert gone(made) == ["a-new"]
    assert made.creations == ()
    assert (made.status["desiredNumberScheduled"], made.status["numberMisscheduled"]) == (0, 1)


def test_a_failed_pod_goes_before_another_comes():
    made = plan(daemon_set(), NEW, fits("a"), [pod("a", phase="Failed")])
    assert (gone(made), made.creations) == (["a-new"], ())


def test_the_younger_of_two_pods_on_a_node_goes():
    old, young = pod("a", OLD), pod("a")
    old["metadata"]["creationTimestamp"], young["metadata"]["creationTimestamp"] = "2026-01-01", "2026-01-02"
    assert gone(plan(daemon_set({"type": "OnDelete"}), NEW, fits("a"), [young, old])) == ["a-new"]
