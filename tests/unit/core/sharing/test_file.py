"""The device plugin's file: what k8s-device-plugin's own tables accept and refuse (api/config/v1/*_test.go)."""

import re
from typing import Any

import pytest

from purser.agent.sharing.reading import MAX_PLUGIN_FILE_BYTES, read_plugin_file
from purser.core.sharing import SharingError
from purser.core.sharing.file import PluginFile, ReadFile, Replicas, ReplicatedResource, plugin_file

GPU = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
MIG = "MIG-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"


TWO = {"name": "nvidia.com/gpu", "replicas": 2}


def file(value: Any) -> PluginFile:
    return plugin_file(value)[0]


def replicas(value: Any) -> Replicas:
    found = file({"sharing": {"timeSlicing": value}}).sharing.time_slicing
    assert found is not None
    return found


def assert_costs_itself_alone(entry: Any) -> None:
    """The entry beside it is followed, and one sentence says which is not, and what to write."""
    good = {"name": "nvidia.com/gpu", "replicas": 5}
    read = plugin_file({"sharing": {"timeSlicing": {"resources": [entry, good]}}, "flags": {"migStrategy": "single"}})
    assert read.file.sharing.time_slicing == Replicas((ReplicatedResource("nvidia.com/gpu", 5, place=1),))
    assert read.file.flags.mig_strategy == "single"
    assert read.problems
    for problem in read.problems:
        assert problem.startswith("the device plugin's file: sharing.timeSlicing.resources[0]")
        assert re.search(r"must (be|consist)|use a shorter", problem)
        assert problem.endswith(" is ignored")


def replicated(**value: Any) -> ReplicatedResource:
    return replicas({"resources": [value]}).resources[0]


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ("all", "all"),
        (2, 2),
        ([0], ("0",)),
        (["0"], ("0",)),
        (["0:0"], ("0:0",)),
        ([GPU], (GPU,)),
        ([MIG], (MIG,)),
        ([f"MIG-{GPU}/10/0"], (f"MIG-{GPU}/10/0",)),
        ([0, "0:0", GPU], ("0", "0:0", GPU)),
        ("not-all", None),
        (-2, None),
        (0, None),
        (2.5, None),
        ([-1], None),
        (["-1"], None),
        (["invalid-UUID"], None),
        (["GPU-UUID"], None),
        (["MIG-UUID"], None),
        ([f"MIG-{GPU}"], None),
        (None, None),
        ({}, None),
        ([], None),
        ([None], None),
    ],
)
def test_devices(devices: Any, found: Any) -> None:
    if found is None:
        assert_costs_itself_alone({"name": "gpu", "replicas": 2, "devices": devices})
    else:
        entry = replicated(name="gpu", replicas=2, devices=devices)
        assert (entry.refs or entry.devices) == found


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"name": "valid"},
        {"name": "valid", "devices": "all"},
        {"name": "valid", "replicas": -1},
        {"name": "valid", "replicas": 0},
        {"name": "valid", "replicas": 1},
        {"name": "valid", "replicas": "2"},
        {"name": "valid", "replicas": 2.5},
        "valid",
        {"name": "$invalid$", "replicas": 2},
        {"name": "valid", "replicas": 2, "rename": "$invalid$"},
        {"name": "Upper", "replicas": 2},
        {"name": None, "replicas": 2},
        {"name": "", "replicas": 2},
        {"name": "nvidia.com/" + "a" * 53, "replicas": 2},
        {"Name": "valid", "replicas": 2},
        None,
    ],
)
def test_no_replicas_of_a_malformed_resource(entry: Any) -> None:
    assert_costs_itself_alone(entry)


@pytest.mark.parametrize("value", [{}, {"resources": []}, {"resources": None}, [], {"resources": [3]}])
def test_a_way_of_sharing_shares_something(value: Any) -> None:
    read = plugin_file({"sharing": {"timeSlicing": value}, "flags": {"migStrategy": "single"}})
    assert read.file.flags.mig_strategy == "single"
    assert all("the device plugin's file: sharing.timeSlicing" in each and "must" in each for each in read.problems)
    assert read.problems


@pytest.mark.parametrize("replicas", [1001, 4000, 10**9, 1e6])
@pytest.mark.parametrize("way", ["timeSlicing", "mps"])
def test_more_replicas_than_purser_lists_are_as_many_as_it_lists(way: str, replicas: float) -> None:
    entries = [{"name": "gpu", "replicas": 1000}, {"name": "mig-1g.5gb", "replicas": replicas}]
    read = plugin_file({"sharing": {way: {"resources": entries}}})
    shared = read.file.sharing.mps if way == "mps" else read.file.sharing.time_slicing
    assert shared is not None
    assert [each.replicas for each in shared.resources] == [1000, 1000]
    (problem,) = read.problems
    assert f"file: sharing.{way}.resources[1].replicas is {int(replicas)}: must be at most 1000" in problem


@pytest.mark.parametrize("bad", ["GPU-typo", None, -1, 1.5, True, {}])
def test_of_a_list_of_devices_those_that_can_be_some_count(bad: Any) -> None:
    read = plugin_file({"sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 2, "devices": [0, bad, "1"]}]}}})
    assert read.file.sharing.mps is not None
    assert read.file.sharing.mps.resources[0].refs == ("0", "1")
    (problem,) = read.problems
    assert "sharing.mps.resources[0].devices[1] is " in problem
    assert "an index" in problem


@pytest.mark.parametrize("bad", [{"name": "x"}, {"pattern": "*"}, {"pattern": 3, "name": "x"}, None, "*", []])
@pytest.mark.parametrize("kind", ["gpus", "mig"])
def test_a_bad_pattern_costs_itself_alone(kind: str, bad: Any) -> None:
    good = {"pattern": "*", "name": "gpu-x"}
    read = plugin_file({"resources": {kind: [bad, good]}, "sharing": {"mps": {"resources": [TWO]}}})
    assert [each.name for each in getattr(read.file.resources, kind)] == ["nvidia.com/gpu-x"]
    assert read.file.sharing.mps is not None
    (problem,) = read.problems
    assert problem.startswith(f"the device plugin's file: resources.{kind}[0]")
    assert "must be " in problem


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ({"flags": {"failOnInitError": "true", "gdsEnabled": True}}, "flags.failOnInitError"),
        ({"flags": {"plugin": {"deviceListStrategy": 3}, "gdsEnabled": True}}, "flags.plugin.deviceListStrategy"),
        ({"flags": {"plugin": [], "gdsEnabled": True}}, "flags.plugin"),
        ({"flags": {"gfd": {"oneshot": 1}, "gdsEnabled": True}}, "flags.gfd.oneshot"),
        ({"imex": {"channelIDs": ["0"]}, "flags": {"gdsEnabled": True}}, "imex.channelIDs"),
        ({"imex": 0, "flags": {"gdsEnabled": True}}, "imex"),
        ({"resources": [], "flags": {"gdsEnabled": True}}, "resources"),
        ({"resources": {"gpus": {}}, "flags": {"gdsEnabled": True}}, "resources.gpus"),
        ({"sharing": "mps", "flags": {"gdsEnabled": True}}, "sharing"),
    ],
)
def test_a_bad_flag_costs_itself_alone(said: dict[str, Any], where: str) -> None:
    read = plugin_file({"sharing": {"timeSlicing": {"resources": [TWO]}}, **said})
    assert "sharing" in said or read.file.sharing.time_slicing is not None
    assert read.file.flags.gds_enabled is True
    (problem,) = read.problems
    assert problem.startswith(f"the device plugin's file: {where} is ")
    assert "must be " in problem


def test_names_stand_under_nvidias_domain() -> None:
    assert replicated(name="valid", replicas=2, rename="nvidia.com/shared") == ReplicatedResource(
        "nvidia.com/valid", 2, "nvidia.com/shared"
    )
    assert len(replicated(name="a" * 52, replicas=2).name) == 63
    entries = [{"name": "a", "replicas": 2}, {"name": "b", "rename": "c", "replicas": 3}]
    both = replicas({"renameByDefault": True, "resources": entries})
    assert [both.advertised_as(each) for each in both.resources] == ["nvidia.com/a.shared", "nvidia.com/c"]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("1g.24gb", "1g.24gb", True),
        ("1g.24gb", "2g.48gb", False),
        ("1g.24gb", "1g.24gb-me", False),
        ("1g.24gb", "1g.24gb+me.all", False),
        ("1g.24gb", "x1g.24gb", False),
        ("1g.24gb", "1gx24gb", False),
        ("1g.24gb-me", "1g.24gb-me", True),
        ("1g.24gb+me.all", "1g.24gb+me.all", True),
        ("*", "1g.24gb-me", True),
        ("1g.*", "1g.24gb", True),
        ("1g.*", "2g.48gb", False),
        ("1g.24gb+gfx", "1g.24gb+gfx", True),
        ("1g.24gb+gfx", "1g.24gb", False),
        ("*gb", "1g.24gb", True),
        ("*gb", "1g.24gb-me", False),
        ("*A100*80*", "NVIDIA A100-SXM4-80GB", True),
        ("*A100*80*", "NVIDIA 80 A100", False),
        ("ab*ba", "aba", False),
        ("a**a", "aa", True),
        ("a*" * 30 + "b", "a" * 500, False),
        ("", "", True),
    ],
)
def test_patterns(pattern: str, text: str, matches: bool) -> None:
    (rule,) = file({"resources": {"gpus": [{"pattern": pattern, "name": "x"}]}}).resources.gpus
    assert rule.matches(text) is matches
    assert rule.name == "nvidia.com/x"


@pytest.mark.parametrize("text", ["migStrategy: single\nMIGSTRATEGY: x", "MIGSTRATEGY: x\nmigStrategy: single"])
def test_of_several_spellings_of_a_key_the_last_by_name_counts(text: str) -> None:
    """sigs.k8s.io/yaml sorts keys before encoding/json reads them."""
    lines = "\n".join(f"  {line}" for line in text.splitlines())
    assert read_plugin_file(f"version: v1\nflags:\n{lines}")[0].flags.mig_strategy == "single"


def test_keys_as_go_reads_them() -> None:
    text = """
    Version: v1
    flags:
      MIGSTRATEGY: single
      gdsEnabled: null
      plugin: null
      gfd: {sleepInterval: 5.0, oneShot: true}
      colour: red
    resources: {gpus: null}
    sharing:
      mps: null
      timeSlicing:
        RenameByDefault: true
        renameByDefault: null
        resources: [{name: gpu, replicas: 4.0, rplicas: 3}]
    imex: {channelIds: [0]}
    more: {}
    """
    found, notes, *_ = read_plugin_file(text)
    assert found.flags.mig_strategy == "single"
    assert found.flags.gfd.sleep_interval == 5
    assert found.flags.gfd.oneshot is True
    assert found.flags.gds_enabled is None
    assert found.imex.channel_ids == (0,)
    assert found.sharing.time_slicing == Replicas((ReplicatedResource("nvidia.com/gpu", 4),))
    assert [note.removeprefix("the device plugin's file: ").partition(" is ")[0] for note in notes] == [
        "flags.colour",
        "more",
        "sharing.timeSlicing.RenameByDefault",
        "sharing.timeSlicing.resources[0].rplicas",
    ]


@pytest.mark.parametrize("text", ["", "{}", "version: ''", "version: v1", "flags: {}", '{"version": "v1"}'])
def test_a_file_that_says_nothing(text: str) -> None:
    assert read_plugin_file(text) == ReadFile(PluginFile())


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("version: v2", "version is v2"),
        ("version: 2", "version is 2, but must be v1"),
        ("[]", "object"),
        ("sharing:\n  timeSlicing: [", "line 3"),
        ("a: " + "[" * 200, "nested deeper"),
        ("# " + "a" * MAX_PLUGIN_FILE_BYTES, "bytes"),
    ],
)
def test_errors_say_where(text: str, where: str) -> None:
    with pytest.raises(SharingError, match=f"the device plugin's file.*{where}"):
        read_plugin_file(text)
