"""Which device an id of kubelet's is of, in every form that plugins write."""

import pytest

from purser.core.device.ids import device_ids, uuid_of
from purser.core.model import Device, DeviceMode

CARD = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"
MIG = "MIG-4efb3d2c-0b1a-5f7c-9d3e-2f1a6b7c8d9e"
OLD_MIG = "MIG-GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76/1/0"


@pytest.mark.parametrize("uuid", [CARD, MIG, CARD.upper()])
@pytest.mark.parametrize("suffix", ["", "::0", "::12", "-0", "-9", "-10", "-255"])
def test_the_device_is_known_by_ids_of_nvidias_plugin_and_of_hamis(uuid: str, suffix: str) -> None:
    assert uuid_of(uuid + suffix) == uuid


@pytest.mark.parametrize("odd", [OLD_MIG, "GPU-1", "node-1-0", f"{CARD}-", f"{CARD}-x", f"{CARD}-1-2", CARD[:-2], ""])
def test_what_has_neither_form_is_a_device_of_that_name(odd: str) -> None:
    assert uuid_of(odd) == odd


@pytest.mark.parametrize("mode", list(DeviceMode))
def test_ids_that_are_advertised_lead_back(mode: DeviceMode) -> None:
    device = Device(CARD, 0, "NVIDIA A100", 40960, slots=3, mode=mode)
    assert {uuid_of(each) for each in device_ids(device)} == {CARD}
