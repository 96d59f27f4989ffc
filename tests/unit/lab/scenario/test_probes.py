"""What a scenario says of its steps: their titles, and what was found instead of what they expect."""

from collections import Counter
from datetime import date
from types import SimpleNamespace

import pytest

from purser.lab.scenario.describe import describe
from purser.lab.scenario.probes import expected
from purser.lab.scenario.spec import (
    Expect,
    ExpectEvent,
    ExpectGrants,
    ExpectObjects,
    ExpectRejections,
    NeverRule,
    Step,
    Wait,
)

REJECTIONS = {"a": {"UnexpectedAdmissionError": 2}, "b": {"TopologyAffinityError": 1}}


@pytest.mark.parametrize(
    ("rejections", "expect", "problem"),
    [
        ({}, ExpectRejections(), None),
        ({}, ExpectRejections(1), "kubelets rejected 0 pods"),
        ({}, ExpectRejections(1, "OutOfcpu"), "kubelets rejected 0 pods with reason OutOfcpu"),
        (REJECTIONS, ExpectRejections(3), None),
        (REJECTIONS, ExpectRejections(2, "UnexpectedAdmissionError"), None),
        (
            REJECTIONS,
            ExpectRejections(),
            "kubelets rejected 3 pods: 2 x UnexpectedAdmissionError, 1 x TopologyAffinityError",
        ),
        (
            REJECTIONS,
            ExpectRejections(1, "OutOfcpu"),
            "kubelets rejected 0 pods with reason OutOfcpu "
            "(all rejections: 2 x UnexpectedAdmissionError, 1 x TopologyAffinityError)",
        ),
    ],
)
async def test_a_count_of_one_reason_names_the_reason(rejections, expect, problem):
    nodes = {name: SimpleNamespace(rejections=Counter(counts)) for name, counts in rejections.items()}
    assert await expected(SimpleNamespace(nodes=nodes), Expect(rejections=expect)) == problem


@pytest.mark.parametrize(
    ("step", "title"),
    [
        (Step(expect=Expect(rejections=ExpectRejections(1))), "1 pod rejected by kubelets"),
        (
            Step(expect=Expect(rejections=ExpectRejections(1, "OutOfcpu"))),
            "1 pod rejected by kubelets with reason OutOfcpu",
        ),
        (Step(expect=Expect(grants=ExpectGrants([2, 1]))), "grants per GPU [2, 1]"),
        (Step(expect=Expect(grants=ExpectGrants([2, 1], "t4-4-0"))), "grants per GPU on t4-4-0 [2, 1]"),
        (
            Step(expect=Expect(event=ExpectEvent("a", "FailedScheduling", "no GPU"))),
            "event FailedScheduling on a with 'no GPU' in its message",
        ),
        (Step(expect=Expect(objects=ExpectObjects("Pod", {"a": 1}, count=0))), "Pod * with a=1: 0 objects"),
        (
            Step(never=NeverRule("Node", {"spec": {"unschedulable": True}}, more_than=2, longer_than_s=10)),
            "never more than 2 at a time: Node * with spec.unschedulable=true for 10 s",
        ),
        (
            Step(never=NeverRule("Pod", {"metadata": {"labels": {"a": None, "b": "x*"}}})),
            "never: Pod * with metadata.labels.a=null, metadata.labels.b=x*",
        ),
        (Step(never=NeverRule("Pod", {"a": date(2027, 1, 1)})), 'never: Pod * with a="2027-01-01"'),
        (Step(never=NeverRule("Pod", deleted=True, more_than=1)), "never more than 1: Pod * removed"),
        (Step(wait=Wait(["a*"])), "a* running"),
        (Step(wait=Wait(["a*"], count=3)), "a* running: 3 pods"),
    ],
)
def test_a_step_without_a_name_says_all_that_it_looks_for(step, title):
    assert describe(step) == title
