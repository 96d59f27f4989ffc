"""What HAMi's scheduler recorded is read as HAMi reads it (`DecodePodDevices`, v2.10): what it skips is skipped."""

import pytest

from purser.core.dialects.hami import allocated_uuids, recorded_grant
from purser.core.dialects.hami_codec import CodecError, ContainerDevice, decode_pod_devices
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerKind, ContainerSpec, PodManifest

INIT, APP = ContainerKind.INIT, ContainerKind.APP
A = ContainerDevice("GPU-a", "NVIDIA", 5, 6)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        pytest.param("GPU-a,NVIDIA,5,6", [[A]], id="nothing ends"),
        pytest.param("GPU-a,NVIDIA,5,6:;", [[A], []], id="all ends"),
        pytest.param("GPU-a,NVIDIA,5,6,of-tomorrow,7:;", [[A], []], id="fields of later versions"),
        pytest.param("x::GPU-a,NVIDIA,5,6: :;", [[A], []], id="parts without a comma"),
        pytest.param("GPU-a,NVIDIA,+5,0000000000006:;", [[A], []], id="signs and zeros"),
        pytest.param("GPU-a,,-5,6:", [[ContainerDevice("GPU-a", "", -5, 6)]], id="below zero, no word"),
        pytest.param("", [[]], id="nothing"),
    ],
)
def test_odd_forms_are_read_as_hami_reads_them(text: str, devices: list[list[ContainerDevice]]) -> None:
    assert [list(each) for each in decode_pod_devices(text)] == devices
    assert allocated_uuids({"hami.io/vgpu-devices-allocated": text}) == {each.uuid for all in devices for each in all}


@pytest.mark.parametrize(
    "text",
    ["GPU-a,NVIDIA,5", "GPU-a,NVIDIA,5MB,6", "GPU-a,NVIDIA, 5,6", "GPU-a,NVIDIA,2147483648,6", "a,b,1_0,1", "a,b,٣,1"],
)
def test_what_hami_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(CodecError, match=r"GPU-a|a,b"):
        decode_pod_devices(text)


def pod(text: str, *containers: str) -> PodManifest:
    """``i`` and ``a`` ask for nothing, ``I`` and ``A`` for a GPU."""
    made = tuple(
        ContainerSpec(f"{name}{number}", INIT if name in "iI" else APP, {GPU_RESOURCE: "1"} if name.isupper() else {})
        for number, name in enumerate(containers)
    )
    return PodManifest("u", "n", "p", {"hami.io/vgpu-node": "h", "hami.io/vgpu-devices-allocated": text}, made)


DEVICE = "GPU-a,NVIDIA,5,6:"


@pytest.mark.parametrize(
    ("text", "containers", "holders"),
    [
        pytest.param(f"{DEVICE}", "A", ["A0"], id="without an end"),
        pytest.param(f"{DEVICE};;;", "A", ["A0"], id="more ends than containers"),
        pytest.param(f"{DEVICE};", "Aa", ["A0"], id="fewer than containers"),
        pytest.param(f";{DEVICE}", "iA", ["A1"], id="the last one without an end"),
        pytest.param(f";{DEVICE};", "iaA", ["A2"], id="an older scheduler, by who asks: containers of the app alone"),
        pytest.param(f";{DEVICE};", "iAa", ["A1"], id="one for initialisation first, and the last one left out"),
        pytest.param(";;", "A", None, id="nothing held"),
    ],
)
def test_a_list_that_is_shorter_or_longer_than_the_pod_loses_nothing(
    text: str, containers: str, holders: list[str] | None
) -> None:
    grant = recorded_grant(pod(text, *containers))
    assert (None if grant is None else [each.container for each in grant.containers]) == holders


@pytest.mark.parametrize("text", [f"{DEVICE};{DEVICE};", f";{DEVICE};"])
def test_devices_that_no_container_can_hold_are_refused_in_words(text: str) -> None:
    with pytest.raises(CodecError, match="lists 2 containers, but the pod has 1"):
        recorded_grant(pod(text, "A"))
