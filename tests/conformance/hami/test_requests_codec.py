"""HAMi's encodings of device lists, by the cases of its own tests (v2.10)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.core.dialects.hami_codec import (
    CodecError,
    ContainerDevice,
    MigPlacement,
    MigProfile,
    RegisteredDevice,
    decode_node_register,
    decode_pod_devices,
    encode_legacy_register,
    encode_node_register,
    encode_pod_devices,
)

ONE, TWO = ContainerDevice("UUID1", "Type1", 1000, 30), ContainerDevice("UUID2", "Type1", 1000, 30)
P4 = "GPU-ebe7c3f7-303d-558d-435e-99a160631fe4,10,7680,100,NVIDIA-Tesla P4,0,true:"


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


@pytest.mark.parametrize("text", ["uuid,type,100:;", "uuid,type,x,30:;", "uuid,type,1000,30,7:;", "uuid,t,¹,2:;"])
def test_pod_devices_that_are_none(text):
    with pytest.raises(CodecError):
        decode_pod_devices(text)


def test_a_register_leaves_out_zero_values():
    device = RegisteredDevice(
        id="GPU-c6a9ed1a-e4f8-f17b-845b-7c76ba095a82",
        count=10,
        devmem=258787,
        devcore=500,
        type="NVIDIA-NVIDIA H20-3e",
        mode="mig",
        health=True,
    )
    text = (
        '[{"id":"GPU-c6a9ed1a-e4f8-f17b-845b-7c76ba095a82","count":10,"devmem":258787,"devcore":500,'
        '"type":"NVIDIA-NVIDIA H20-3e","mode":"mig","health":true}]'
    )
    assert encode_node_register([device]) == text
    assert decode_node_register(text) == (device,)


def test_a_register_with_an_index():
    text = (
        '[{"id":"GPU-c53c0221-f097-5b48-427f-1a4f0f0ab91d","index":4,"count":10,"devmem":258787,"devcore":500,'
        '"type":"NVIDIA-NVIDIA H20-3e","mode":"mig","health":true}]'
    )
    assert encode_node_register(decode_node_register(text)) == text


def test_what_a_register_leaves_out_is_zero_and_unhealthy():
    (device,) = decode_node_register('[{"id":"GPU-1","unknown":{"x":[1]}}]')
    assert (device.index, device.numa, device.devcore, device.health) == (0, 0, 0, False)


def test_mig_profiles_write_every_field():
    profile = MigProfile("1g.5gb", 4864, 15, 1, (MigPlacement(6, 1),))
    text = encode_node_register([RegisteredDevice(mig_profiles=(profile,))])
    assert json.loads(text) == [
        {
            "migProfiles": [
                {
                    "name": "1g.5gb",
                    "memoryMB": 4864,
                    "core": 15,
                    "sliceCount": 1,
                    "placements": [{"start": 6, "size": 1}],
                }
            ]
        }
    ]
    assert decode_node_register(text)[0].mig_profiles == (profile,)


def test_the_older_register_with_seven_fields():
    assert decode_node_register(P4) == (
        RegisteredDevice(
            id="GPU-ebe7c3f7-303d-558d-435e-99a160631fe4",
            index=0,
            count=10,
            devmem=7680,
            devcore=100,
            type="NVIDIA-Tesla P4",
            mode="hami-core",
            numa=0,
            health=True,
        ),
    )


def test_the_older_register_with_nine_fields():
    text = "GPU-1,10,7680,100,NVIDIA-Tesla P4,1,false,3,mps:GPU-2,1,1,1,T,0,true,0,mig:"
    devices = decode_node_register(text)
    assert [(d.id, d.numa, d.health, d.index, d.mode) for d in devices] == [
        ("GPU-1", 1, False, 3, "mps"),
        ("GPU-2", 0, True, 0, "mig"),
    ]
    assert encode_legacy_register(devices) == text


@pytest.mark.parametrize(
    "text",
    [
        "GPU-1,10:",
        "a,b,c,d,e,f,g:",
        "a,1,1,1,T,0,perhaps:",
        "[{]",
        '[{"count":"ten"}]',
        "[" * 100_000,
        "a,1,1,1,T,0,true,1:",
    ],
    ids=lambda text: text[:20],
)
def test_a_register_that_is_none(text):
    with pytest.raises(CodecError):
        decode_node_register(text)


names = st.text("ABCdef0123-[] .", min_size=1, max_size=12)
devices = st.builds(ContainerDevice, names, names, st.integers(0, 10**6), st.integers(0, 100))


@given(st.lists(st.lists(devices, max_size=3), max_size=4))
def test_what_is_encoded_is_decoded(containers):
    assert decode_pod_devices(encode_pod_devices(containers)) == (*map(tuple, containers), ())


@given(st.text(max_size=60))
def test_any_text_is_either_decoded_or_refused(text):
    for decode in (decode_pod_devices, decode_node_register):
        try:
            decode(text)
        except CodecError as error:
            assert str(error)
