import pytest

from purser.lab.controllers.workloads.statefulplan import REVISION_LABEL, plan


def pod(number, ready=True, revision="new", phase="Running"):
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": {"name": f"s-{number}", "labels": {REVISION_LABEL: revision}}, "status": status}


def done(pods, going=(), **spec):
    made = plan({"replicas": 3, **spec}, "new", {number: pod(number, **said) for number, said in pods.items()}, going)
    return list(made.creations), [each["metadata"]["name"] for each in made.deletions]


OK, OLD, WAITS = {}, {"revision": "old"}, {"ready": False}
PARALLEL = {"podManagementPolicy": "Parallel"}


@pytest.mark.parametrize(
    ("pods", "going", "spec", "creations", "deletions"),
    [
        ({}, (), {}, [0], []),
        ({0: WAITS}, (), {}, [], []),
        ({0: OK}, (), {}, [1], []),
        ({1: OK, 2: OK}, (), {}, [0], []),
        ({}, (), PARALLEL, [0, 1, 2], []),
        ({0: WAITS}, (), PARALLEL, [1, 2], []),
        ({}, (), {"ordinals": {"start": 5}}, [5], []),
        # One that ended gives its name to another; one that goes is waited for.
        ({0: {"phase": "Failed"}}, (), {}, [], ["s-0"]),
        ({0: {"phase": "Failed"}}, {0}, {}, [], []),
        ({0: OK, 1: OK}, {0}, {}, [], []),
        # Fewer: the highest first, one after the other, once the rest is ready.
        ({0: OK, 1: OK, 2: OK, 3: OK, 4: OK}, (), {}, [], ["s-4"]),
        ({0: OK, 1: OK, 2: OK, 3: OK, 4: OK}, {4}, {}, [], []),
        ({0: WAITS, 3: OK}, (), {"replicas": 1}, [], []),
        ({0: OK, 3: OK, 4: OK}, (), {"replicas": 1, **PARALLEL}, [], ["s-4", "s-3"]),
        ({0: OK}, (), {"replicas": 0}, [], ["s-0"]),
        # A newer template: the highest first, the next one once that is ready, none below the partition.
        ({0: OLD, 1: OLD, 2: OLD}, (), {}, [], ["s-2"]),
        ({0: OLD, 1: OLD, 2: OK}, (), {}, [], ["s-1"]),
        ({0: OLD, 1: OLD, 2: WAITS}, (), {}, [], []),
        ({0: OLD, 1: OLD, 2: WAITS}, (), PARALLEL, [], []),
        ({0: OLD, 1: OLD, 2: OLD}, {2}, PARALLEL, [], []),
        ({0: OLD, 1: OLD, 2: OK}, (), {"updateStrategy": {"rollingUpdate": {"partition": 2}}}, [], []),
        ({0: OLD, 1: OLD, 2: OLD}, (), {"updateStrategy": {"type": "OnDelete"}}, [], []),
    ],
)
def test_what_comes_next(pods, going, spec, creations, deletions):
    assert done(pods, going, **spec) == (creations, deletions)
