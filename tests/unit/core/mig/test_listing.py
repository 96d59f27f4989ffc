"""What kubelet hears of a GPU that is cut on demand."""

import pytest

from purser.core.device.resources import mig_resource
from purser.core.mig import MIG_KINDS, MigKind
from purser.core.mig.choice import room_table
from purser.core.mig.listing import ids_by_resource
from purser.core.model import Device, DeviceMode


@pytest.mark.parametrize("kind", MIG_KINDS.values(), ids=lambda kind: kind.name)
def test_of_each_profile_as_many_are_listed_as_an_empty_gpu_has_room_for(kind: MigKind) -> None:
    listed = ids_by_resource(Device("GPU", 0, "A100", 40960, mode=DeviceMode.MIG, slots=7, mig_kind=kind.name))
    for profile, room in zip(kind.profiles, room_table(kind)[0].tolist(), strict=True):
        assert len(listed[mig_resource(profile.name)]) == room
        assert room == 1 or not profile.takes_media
