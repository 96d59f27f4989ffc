"""Options of `purser lab` that are the scheduler's own: pods of other schedulers, from the command to the container."""

import pytest
import yaml

from tests.unit.cli.typed import apart, here

pytestmark = pytest.mark.gate


def pod_of(scheduler, limits):
    main = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": scheduler},
        "spec": {"schedulerName": scheduler, "containers": [main]},
    }


VOLCANO = "volcano"
LISTED = {"volcano.sh/gpu-memory": str(4 * 1536)}
SCENARIO = {
    "nodes": ["t4-4"],
    "steps": [
        {"apply": [pod_of(VOLCANO, {"volcano.sh/gpu-memory": 300}), pod_of("other", {"nvidia.com/gpu": 1})]},
        {"wait": {"pods": [VOLCANO]}, "within_s": 20},
        {"expect": {"environment": {"pod": VOLCANO, "variables": {"VOLCANO_GPU_ALLOCATED": "3000"}}}},
        {"expect": {"objects": {"kind": "Node", "names": ["t4-4-0"], "match": {"status": {"allocatable": LISTED}}}}},
        {
            "expect": {
                "objects": {
                    "kind": "Pod",
                    "names": ["other"],
                    "match": {
                        "metadata": {"annotations": {"purser.dev/awaits-grant": "true"}},
                        "spec": {"schedulerName": "other"},
                    },
                }
            }
        },
    ],
}


async def test_pods_of_schedulers_that_are_adopted_or_served_and_units_of_memory(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    names = ("--adopt-scheduler-name", "volcano", "--serve-scheduler-name", "other")
    code, out, err = await apart("lab", "--run", path, *names, "--memory-unit", "volcano.sh/gpu-memory=10")
    assert code == 0, (out, err)
    assert out.count("ok ") == len(SCENARIO["steps"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--memory-unit", "nvidia.com/gpumem=2"], "--memory-unit: 'nvidia.com/gpumem=2' is not a memory unit"),
        (["--memory-unit", "aliyun.com/gpu-mem=1", "--operator"], "--memory-unit cannot be used with --operator"),
    ],
)
def test_units_that_nothing_counts_in_are_wrong_usage(words, said):
    code, _, err = here("lab", *words)
    assert code == 2
    assert said in err
