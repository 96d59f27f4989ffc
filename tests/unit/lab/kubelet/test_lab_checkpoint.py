import json
from pathlib import Path

import msgspec
import pytest

from purser.lab.kubelet import checkpoint

VECTORS = json.loads((Path(__file__).parent / "vectors" / "checkpoint_device_manager.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_checksum_and_text_are_those_of_the_real_kubelet(vector):
    data = msgspec.json.decode(vector["file"], type=checkpoint._File, strict=False)
    assert checkpoint.spew(data.Data) == vector["hash_input"]
    assert checkpoint.checksum(data.Data) == vector["checksum"]
    assert checkpoint.encode_data(data.Data.PodDeviceEntries, data.Data.RegisteredDevices) == vector["file"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_what_was_read_is_written_again_with_the_same_content(vector):
    allocations, registered = checkpoint.decode(vector["file"])
    text = checkpoint.encode(allocations, {name: tuple(ids) for name, ids in registered.items()})
    assert checkpoint.decode(text) == (allocations, registered)


def test_a_changed_device_is_found_by_the_checksum():
    text = next(vector["file"] for vector in VECTORS if vector["name"] == "two numa nodes")
    with pytest.raises(checkpoint.CheckpointError, match="corrupted"):
        checkpoint.decode(text.replace("GPU-a", "GPU-z"))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"Data":{},"Checksum":1}'])
def test_what_is_no_checkpoint_is_refused(text):
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.decode(text)
