"""The file by which kubelet remembers devices: what it reads, and what it takes for corrupt."""

import json

import pytest

from purser.core.kubelet.devicemanager.checkpoint import Data, PodDevicesEntry, decode, encode, encode_data, spew
from purser.core.kubelet.errors import CheckpointError
from purser.core.kubelet.gotext import fnv1a_32
from purser.core.kubelet.state import Allocation

GPU = "nvidia.com/gpu"
HELD = {("uid", "c"): {GPU: Allocation({-1: ("x",), 0: ("a", "b"), 10: ("b",), 2: ("d",)}, b"\x12\x00")}}


def test_nodes_are_written_in_the_order_of_go() -> None:
    ids = json.loads(encode(HELD, {}))["Data"]["PodDeviceEntries"][0]["DeviceIDs"]
    assert list(ids) == ["-1", "0", "10", "2"]


def test_nobody_holding_anything_is_null() -> None:
    assert '"PodDeviceEntries":null' in encode({}, {GPU: ()})


def test_a_file_that_was_changed_is_corrupt() -> None:
    text = encode(HELD, {GPU: ("a", "b")})
    assert decode(text).registered == {GPU: ("a", "b")}
    with pytest.raises(CheckpointError, match="checkpoint is corrupted"):
        decode(text.replace('"a"', '"z"'))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut off"),
        pytest.param("[]", id="another kind of value"),
        pytest.param('{"Data":{}}', id="fields missing"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param("[" * 100_000, id="too deep"),
        pytest.param('{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":"x"}', id="no number"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(text: str | bytes) -> None:
    with pytest.raises(CheckpointError):
        decode(text)


def test_the_list_of_kubelets_up_to_1_19_is_read_as_devices_of_node_0() -> None:
    entry = PodDevicesEntry("uid", "c", GPU, ["a", "b"], b"\x12\x00")
    data = Data([entry], {GPU: ["a", "b"]})
    assert spew(data) == (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)[{PodUID:(string)uid "
        "ContainerName:(string)c ResourceName:(string)nvidia.com/gpu DeviceIDs:([]string)[a b] "
        "AllocResp:([]uint8)[18 0]}] RegisteredDevices:(map[string][]string)map[nvidia.com/gpu:[a b]]}"
    )
    assert decode(encode_data(data)).held == {("uid", "c"): {GPU: Allocation({0: ("a", "b")}, b"\x12\x00")}}


def test_nil_and_empty_differ_in_the_checksum_and_are_read_alike() -> None:
    nil = Data([PodDevicesEntry("uid", "c", GPU, None, None)], {GPU: None})
    empty = Data([PodDevicesEntry("uid", "c", GPU, {}, b"")], {GPU: []})
    assert fnv1a_32(spew(nil)) != fnv1a_32(spew(empty))
    assert decode(encode_data(nil)) == decode(encode_data(empty))
