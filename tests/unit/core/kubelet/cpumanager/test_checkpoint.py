"""The file cpu_manager_state."""

import msgspec
import pytest

from purser.core.kubelet.cpumanager.checkpoint import CpuManagerCheckpoint, decode, encode, hash_input, parse, to_json
from purser.core.kubelet.errors import CheckpointError
from purser.core.kubelet.gotext import fnv1a_32
from purser.core.kubelet.state import CpuState

STATE = CpuState(
    default=0b1000_0001, reserved=1, exclusive={("b", "y"): 0b0110, ("a", "x"): 0b11000, ("b", "x"): 0b100000}
)
V1 = CpuManagerCheckpoint("static", "0", container_ids={"id1": "1-2"})


def problem(text: str, policy: str = "static") -> str:
    with pytest.raises(CheckpointError) as raised:
        decode(text, policy)
    return str(raised.value)


def written(**content: object) -> str:
    return msgspec.json.encode(content).decode()


def test_what_is_written_is_read_but_for_the_reserved_cpus() -> None:
    assert decode(encode(STATE), "static") == msgspec.structs.replace(STATE, reserved=0)


def test_the_file_has_pods_and_containers_in_order() -> None:
    assert encode(STATE).startswith(
        '{"policyName":"static","defaultCpuSet":"0,7","entries":{"a":{"x":"3-4"},"b":{"x":"5","y":"1-2"}},"checksum":'
    )


def test_policy_none_writes_a_file_too() -> None:
    assert parse(encode(None)) == CpuManagerCheckpoint("none", "", {})


def test_kubelet_1_37_adds_its_content_as_a_string_which_counts() -> None:
    assert encode(None, with_data=True).endswith(
        r',"data":"{\"policyName\":\"none\",\"defaultCpuSet\":\"\"}","dataChecksum":3028111495}'  # by kubelet 1.37.2
    )
    text = encode(STATE, with_data=True)
    assert text.startswith(encode(STATE).removesuffix("}"))
    assert decode(text, "static") == msgspec.structs.replace(STATE, reserved=0)
    assert decode(text.replace('"0,7"', '"0,6"', 1), "static").default == STATE.default
    changed = text.replace(r"\"0,7\"", r"\"0,6\"")
    assert problem(changed) == "could not load v4 checkpoint: checkpoint is corrupted"


def test_a_flipped_bit_is_found() -> None:
    assert problem(encode(STATE).replace('"0,7"', '"0,6"')) == "checkpoint is corrupted"


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_no_depth_of_nesting_breaks_the_reader(depth: int) -> None:
    assert problem('{"later": ' + "[" * depth + "]" * depth + "}").startswith("checkpoint is corrupted")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\ud800",
        '{"policyName": "\\ud800"}',
        "[]",
        '{"entries": 3}',
        '{"checksum": "x"}',
        '{"entries": {"a": {"b": 1}}}',
    ],
)
def test_what_is_no_checkpoint_is_corrupt(text: str) -> None:
    assert problem(text).startswith("checkpoint is corrupted: ")


def test_another_policy_is_refused() -> None:
    assert problem(encode(None)) == 'configured policy "static" differs from state checkpoint policy "none"'


def test_a_cpu_set_that_is_none_is_refused() -> None:
    assert problem(to_json(CpuManagerCheckpoint("static", "0-x", {}))).startswith(
        'could not parse default cpu set "0-x": '
    )
    entries = {"p": {"c": "8-1"}}
    assert problem(to_json(CpuManagerCheckpoint("static", "0", entries))).startswith(
        'could not parse cpuset "8-1" for container "c" in pod "p": '
    )


def test_format_v1_is_read_with_the_containers_that_run() -> None:
    assert parse(to_json(V1)) == msgspec.structs.replace(V1, entries={})
    assert decode(to_json(V1), "static", {"id1": ("p", "c")}) == CpuState(1, 0, {("p", "c"): 0b110})
    assert problem(to_json(V1)) == (
        "error migrating v1 checkpoint state to v2 checkpoint state: "
        "containerID 'id1' not found in initial containers list"
    )


def test_format_v3_is_known_by_its_checksum_and_refused_where_pods_have_cpus() -> None:
    without_pods = CpuManagerCheckpoint("static", "0", {"p": {"c": "1"}}, {})
    assert parse(to_json(without_pods)) == without_pods
    assert decode(to_json(without_pods), "static").exclusive == {("p", "c"): 0b10}
    with_pods = CpuManagerCheckpoint("static", "0", {"p": {"c": "1"}}, {"p": "1,3"})
    assert parse(to_json(with_pods)) == with_pods
    assert problem(to_json(with_pods)) == "CPUs of whole pods (p) are not supported"


def test_fields_that_nobody_knows_do_no_harm() -> None:
    sum_ = fnv1a_32(hash_input(CpuManagerCheckpoint("static", "0-3", {})))
    text = written(policyName="static", defaultCpuSet="0-3", checksum=sum_, later="field")
    assert decode(text, "static") == CpuState(0b1111, 0)


def test_a_file_with_containers_by_id_and_by_name_is_corrupt() -> None:
    text = written(policyName="static", defaultCpuSet="0", entries={"p": {"c": "1"}, "id": "2"}, checksum=0)
    assert problem(text) == "checkpoint is corrupted"
