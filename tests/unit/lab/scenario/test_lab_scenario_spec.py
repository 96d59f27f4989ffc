from pathlib import Path

import pytest

from purser.lab.scenario import ScenarioError, load
from purser.lab.scenario.describe import describe

EXAMPLES = Path(__file__).parents[4] / "examples" / "scenarios"


def write(folder, text):
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_scenarios(path):
    loaded = load(path)
    assert loaded.nodes or loaded.scenario.hollow
    assert all(describe(step) for step in loaded.scenario.steps)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["the file", "Expected `object`"]),
        ("steps: []", ["steps", "at least one step"]),
        ("stepps: [{apply: x.yaml}]", ["stepps"]),
        ("steps: [{wait: {pods: [a], phase: runing}}]", ["steps[0].wait.phase", "runing"]),
        ("steps: [{wait: {pods: [a], colour: red}}]", ["steps[0].wait", "colour"]),
        ("steps: [{apply: x.yaml}, {}]", ["steps[1]", "none", "exactly one of apply, refused, wait"]),
        ("steps: [{apply: x.yaml, delete: {names: [a]}}]", ["steps[0]", "apply and delete"]),
        ("steps: [{expect: {}}]", ["steps[0].expect", "exactly one of grants, event, environment, container"]),
        ("steps: [{fault: {kill_scheduler: true, start_scheduler: true}}]", ["steps[0].fault"]),
        ("steps: [{wait: {}}]", ["steps[0].wait", "either pods or node, but has neither"]),
        ("steps: [{wait: {pods: [a], node: b}}]", ["steps[0].wait", "either pods or node, but has both"]),
        (
            "nodes: [t4-4]\nsteps: [{wait: {node: t4-4-0}}]",
            ["steps[0].wait.allocatable", "must be set to the number of"],
        ),
        ("nodes: [t4-4]\nsteps: [{fault: {kill_agent: t4-4-7}}]", ["steps[0]", "unknown node t4-4-7", "t4-4-0"]),
        ("steps: [{fault: {lose_gpu: {node: '', gpu: 0}}}]", ["steps[0]", "unknown node"]),
        (
            "nodes: [t4-4]\nsteps: [{fault: {lose_gpu: {node: t4-4-0, gpu: 4}}}]",
            ["steps[0]", "t4-4-0 has no GPU 4", "0 to 3"],
        ),
        ("nodes: [nonsense]\nsteps: [{apply: x.yaml}]", ["nodes", "profile nonsense does not exist", "a100-40gb-8"]),
        ("nodes: ['t4-4:none']\nsteps: [{apply: x.yaml}]", ["nodes", "PROFILE:COUNT"]),
        ("nodes: ['t4-4:65']\nsteps: [{apply: x.yaml}]", ["nodes", "65 nodes"]),
        ("kubelet: {topologyPolicy: none}\nsteps: [{apply: x.yaml}]", ["kubelet", "topologyPolicy"]),
        (
            "nodes: [t4-4]\nkubelet: {reservedSystemCPUs: '64'}\nsteps: [{apply: x.yaml}]",
            ["t4-4-0", "reservedSystemCPUs", "does not have CPUs 64"],
        ),
        (
            "nodes: [gb200-nvl4]\nkubelet: {topologyManagerPolicyOptions: {}}\nsteps: [{apply: x.yaml}]",
            ["gb200-nvl4-0", "would not start", "more than 8 NUMA Nodes"],
        ),
        ("steps: [{expect: {container: {pod: a, cpu: 4}}}]", ["steps[0].expect.container", "cpu"]),
        ("nodes: []\nsteps: [{apply: x.yaml}]", ["nodes", "at least one profile", "hollow"]),
        ("hollow: [{name: a, count: 0}]\nsteps: [{apply: x.yaml}]", ["hollow[0]", "invalid count 0"]),
        ("hollow: [{name: a, colour: red}]\nsteps: [{apply: x.yaml}]", ["hollow[0]", "colour"]),
        ("hollow: [{name: a}, {name: a}]\nsteps: [{apply: x.yaml}]", ["two nodes have the name a-0"]),
        ("nodes: [t4-4]\nsteps: [{join: [{name: a}]}]", ["steps[0].join", "must start with hollow nodes"]),
        ("steps: [{fault: {kill_operator: true}}]", ["steps[0].fault", "operator: true"]),
        ("steps: [", ["invalid YAML"]),
        ("steps: [{apply: x.yaml, within_s: soon}]", ["steps[0].within_s", "float"]),
        ("[" * 101, ["nested deeper than 100 levels"]),
    ],
)
def test_a_bad_file_is_refused_with_its_name_the_field_and_the_fix(tmp_path, text, parts):
    path = write(tmp_path, text)
    with pytest.raises(ScenarioError) as caught:
        load(path)
    for part in (str(path), *parts):
        assert part in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match="cannot read"):
        load(tmp_path / "none.yaml")


def test_nodes_are_named_by_profile_and_number(tmp_path):
    loaded = load(write(tmp_path, "nodes: [t4-4, a100-40gb-8, 't4-4:2']\nsteps: [{apply: x.yaml}]"))
    assert [node.name for node in loaded.nodes] == ["t4-4-0", "a100-40gb-8-0", "t4-4-1", "t4-4-2"]
