"""Several MIG devices in one container: given as NVIDIA's plugin gives them, and said what CUDA makes of them."""

import pytest
from tests.unit.core.dialects.pods import container, pod

from purser.core.dialects import parse
from purser.core.mig.several import asked_warnings, granted_note
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceMode, DeviceShare, Grant, MigPlacement

SMALL = "nvidia.com/mig-1g.5gb"


@pytest.mark.parametrize(
    ("limits", "annotations", "warned"),
    [
        ({"mig": 2}, {}, True),
        ({"mig": 1}, {}, False),
        ({"gpu": 2}, {}, False),
        ({"gpu": 2, "mem": 4000}, {"mode": "mig"}, True),
        ({"gpu": 1, "mem": 4000}, {"mode": "mig"}, False),
    ],
)
def test_who_asks_for_several_by_name_is_warned(limits, annotations, warned):
    request = parse(pod(container(**limits), **annotations))
    warnings = list(asked_warnings(request))
    assert len(warnings) == warned
    assert all("asks for 2 MIG devices: with drivers before R" in each for each in warnings)
    assert all(len(each) <= 256 for each in warnings)  # the API server cuts longer ones


LISTED = [Device(f"m{at}", at, "A100", 4864, mode=DeviceMode.MIG, resource=SMALL, parent="g") for at in range(2)]
CUT = Device("cut", 2, "A100", 40960, slots=7, mode=DeviceMode.MIG, mig_kind="A100-40GB")
WHOLE = [Device(f"w{at}", 3 + at, "A100", 40960) for at in range(2)]
DEVICES = {device.uuid: device for device in [*LISTED, CUT, *WHOLE]}
INSTANCES = [DeviceShare("cut", 4864, 14, MigPlacement("1g.5gb", at)) for at in range(2)]


@pytest.mark.parametrize(
    ("shares", "driver", "told"),
    [
        ([DeviceShare("m0", 4864, 100), DeviceShare("m1", 4864, 100)], "535.161.08", True),
        (INSTANCES, "550.90", True),
        (INSTANCES[:1], "550.90", False),
        (INSTANCES, "570.133.20", False),
        (INSTANCES, "", False),
        (INSTANCES, "unknown", False),
        ([DeviceShare("w0", 40960, 100), DeviceShare("w1", 40960, 100)], "535.161.08", False),
        ([DeviceShare("gone", 1, 1), *INSTANCES[:1]], "535.161.08", False),
    ],
)
def test_of_an_old_driver_the_event_says_that_cuda_shows_one(shares, driver, told):
    one = ContainerGrant("other", ContainerKind.APP, tuple(shares[:1]))
    grant = Grant("p", "ns", "p", "n", (ContainerGrant("main", ContainerKind.APP, tuple(shares)), one))
    said = (
        f"with driver {driver}, CUDA shows each process in container main only one MIG device: the first one, unless "
        "CUDA_VISIBLE_DEVICES names another"
    )
    assert granted_note(grant, DEVICES, driver) == (said if told else "")
