"""HAMi's encodings of device lists, by the cases of its own tests (v2.10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text

from purser.core.dialects.hami_codec import (
    CodecError,
    ContainerDevice,
    decode_pod_devices,
    encode_pod_devices,
)

ONE, TWO = ContainerDevice("UUID1", "Type1", 1000, 30), ContainerDevice("UUID2", "Type1", 1000, 30)


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        ([[ONE]], "UUID1,Type1,1000,30:;"),
        ([[ONE], [ONE]], "UUID1,Type1,1000,30:;UUID1,Type1,1000,30:;"),
        ([[ONE, TWO]], "UUID1,Type1,1000,30:UUID2,Type1,1000,30:;"),
        ([[]], ";"),
        (
            [
                [ContainerDevice("GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76", "NVIDIA", 500, 3)],
                [ContainerDevice("GPU-ebe7c3f7-303d-558d-435e-99a160631fe4", "NVIDIA", 500, 3)],
            ],
            "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76,NVIDIA,500,3:;GPU-ebe7c3f7-303d-558d-435e-99a160631fe4,NVIDIA,500,3:;",
        ),
    ],
)
def test_pod_devices(containers, text):
    assert encode_pod_devices(containers) == text
    assert decode_pod_devices(text) == (*map(tuple, containers), ())


def test_empty_text_is_one_empty_container():
    assert decode_pod_devices("") == ((),)


@pytest.mark.parametrize("text", ["uuid,type,100:;", "uuid,type,x,30:;", "uuid,t,¹,2:;"])
def test_pod_devices_that_are_none(text):
    with pytest.raises(CodecError):
        decode_pod_devices(text)


names = st.text("ABCdef0123-[] .", min_size=1, max_size=12)
devices = st.builds(ContainerDevice, names, names, st.integers(0, 10**6), st.integers(0, 100))


@given(st.lists(st.lists(devices, max_size=3), max_size=4))
def test_what_is_encoded_is_decoded(containers):
    assert decode_pod_devices(encode_pod_devices(containers)) == (*map(tuple, containers), ())


@given(any_text(max_size=60))
def test_any_text_is_either_decoded_or_refused(text):
    try:
        decode_pod_devices(text)
    except CodecError as error:
        assert str(error)
