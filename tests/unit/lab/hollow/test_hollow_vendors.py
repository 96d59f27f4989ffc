"""Other vendors' device plugins on hollow nodes: what they register is read as they mean it."""

import pytest

from purser.core.vendors.catalogue import FAMILIES
from purser.core.vendors.registration import vendor_devices
from purser.lab.hollow import HollowNodes
from purser.lab.hollow.vendors import listed, registration, served


def test_the_devices_of_every_family_are_read_as_healthy():
    for family in FAMILIES:
        amounts = listed(family, 3)
        found = vendor_devices((family,), "n1", registration(family, "n1", 3), amounts, amounts)
        assert found.problems == ()
        assert [(each.resource, each.healthy, each.cores_percent) for each in found.devices] == [
            (family.resource, True, 100)
        ] * 3
        assert all(each.memory_mib >= 100 for each in found.devices)


def test_a_plugin_consumes_its_devices_once():
    waiting = {"hami.io/bind-phase": "allocating", "hami.io/dcu-devices-to-allocate": "d,DCU,1,1:;;", "other": "x"}
    changes = served(waiting)
    assert changes == {"hami.io/bind-phase": "success", "hami.io/dcu-devices-to-allocate": ";;"}
    assert served({**waiting, **changes}) == {}


def test_a_family_that_there_is_none_of_is_refused():
    with pytest.raises(ValueError, match="unknown family"):
        HollowNodes(name="n", family="Acme")
