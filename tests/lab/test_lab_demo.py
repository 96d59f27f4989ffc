"""`purser lab --demo`, in a process of its own and without kubectl."""

import pytest

from tests.unit.cli.typed import apart, here


@pytest.mark.gate
async def test_the_demonstration_needs_no_kubectl_and_ends_by_itself(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = await apart("lab", "--demo")
    assert (code, err) == (0, "")
    placed, lost, replaced, recovered, waits, started = out.split("\n# ")
    assert "share   main        t4-4-0   0      7680         50" in placed
    assert lost.count("Unhealthy") == 1
    assert "share   main        t4-4-0   1      7680         50" in replaced
    assert "Healthy" in recovered and "Unhealthy" not in recovered
    assert "pod default/share is deleted: the pod then fits on t4-4-0" in waits
    assert "whole   main        t4-4-0   0,1,2,3" in started
    assert "kubectl is not on your PATH" in started


def test_the_demonstration_takes_no_other_nodes_or_pods():
    for options in (["--node=t4-4"], ["--run=scenario.yaml"], ["--operator"]):
        assert here("lab", "--demo", *options)[0] == 2
