"""Single cores of AWS Neuron devices, from what nodes list to the annotations for the vendor's plugin: HAMi's rules
(``awsneuron/device.go``: ``splitCoreRequest``, ``addCoreUsage``, ``PatchAnnotations``)."""

from functools import partial

import pytest
from tests.unit.core.placement.vendor_world import World, vendor_pod

from purser.core.dialects import DialectError, parse
from purser.core.dialects.hami_codec import decode_pod_devices
from purser.core.ledger import OvercommitError
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Grant
from purser.core.placement import Reason
from purser.core.vendors.catalogue import families_of
from purser.core.vendors.registration import vendor_devices

DEVICES, CORES = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
INIT, APP = ContainerKind.INIT, ContainerKind.APP
RECORD = "hami.io/aws-neuron-devices-allocated"


def neurons(devices=1, cores=None):
    listed = {DEVICES: devices, CORES: 2 * devices if cores is None else cores}
    found = vendor_devices(families_of(["AWS Neuron"]), "n", {}, listed, listed)
    assert found.problems == ()
    return found.devices


manifest = partial(vendor_pod, "AWS Neuron")


def cores(number):
    return {CORES: number}


@pytest.mark.parametrize(
    ("asked", "ids", "masks"),
    [
        (cores(1), "0", [1]),
        (cores(2), "0,1", [3]),
        (cores(8), "0,1,2,3,4,5,6,7", [3, 3, 3, 3]),
        ({DEVICES: 1}, "0", [3]),
        ({DEVICES: 4}, "0,1,2,3", [3, 3, 3, 3]),
    ],
)
def test_what_the_plugin_is_told(asked, ids, masks):
    told = World(neurons(4)).put(manifest("p", asked))
    ((*devices,), *_) = decode_pod_devices(told[RECORD])
    assert sorted(told["AWS_NEURON_IDS"].split(","), key=int) == ids.split(",")
    assert [device.cores_percent for device in devices] == masks
    assert told.get("NEURON_RESOURCE_TYPE") == (CORES if CORES in asked else None)


def test_the_other_core_of_a_device_goes_to_the_next_pod_and_a_given_back_one_again():
    world = World(neurons(1))
    assert world.put(manifest("a", cores(1)))["AWS_NEURON_IDS"] == "0"
    assert world.put(manifest("b", cores(1)))["AWS_NEURON_IDS"] == "1"
    assert world.put(manifest("c", cores(1))) == {Reason.SLOTS_EXHAUSTED}
    world.fleet.ledger.release("a")
    assert world.put(manifest("d", {DEVICES: 1})) == {Reason.INSUFFICIENT_MEMORY}
    assert world.put(manifest("e", cores(1)))["AWS_NEURON_IDS"] == "0"


def test_containers_of_a_pod_have_cores_of_their_own_and_an_init_containers_is_handed_on():
    told = World(neurons(1)).put(manifest("p", cores(1), cores(1), cores(1), kinds=(INIT, APP, APP)))
    assert told["AWS_NEURON_IDS"] == "0,0,1"


def test_a_pods_devices_and_cores_are_both_counted_in_their_own_way():
    told = World(neurons(2)).put(manifest("p", {DEVICES: 1}, cores(1)))
    first, second = (int(each) for each in told["AWS_NEURON_IDS"].split(","))
    assert second == 2 * (1 - first)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            cores(3),
            'aws.amazon.com/neuroncore "3" is not a number of whole devices: must be at most 2, or a multiple of 2',
        ),
        ({DEVICES: 1, CORES: 2}, "counts cores, or aws.amazon.com/neuron, which counts whole devices"),
        (cores("1.5"), "is not an integer: must be a number of cores"),
    ],
)
def test_what_is_no_number_of_cores_is_refused(asked, sentence):
    with pytest.raises(DialectError, match=sentence):
        parse(manifest("p", asked))


@pytest.mark.parametrize("listed", [0, 4, 7, 16])
def test_where_devices_have_another_number_of_cores_they_are_given_whole(listed):
    assert World(neurons(4, listed)).put(manifest("p", cores(1))) == {Reason.TYPE_MISMATCH}
    world = World(neurons(4, listed))
    assert world.put(manifest("p", {DEVICES: 4}))[RECORD].count(",3:") == 4
    assert world.put(manifest("q", {DEVICES: 1})) & {Reason.SLOTS_EXHAUSTED}


def test_the_ledger_refuses_by_itself_a_core_that_is_taken_or_that_there_is_none_of():
    world = World(neurons(1))
    world.put(manifest("a", cores(1)))
    uuid = world.inventory.devices[0].uuid
    for number in (0, 2):
        share = DeviceShare(uuid, 100, 50, family=DEVICES, core_numbers=(number,))
        with pytest.raises(OvercommitError, match=f"cores 0, {number} would be allocated, but it has 2 cores"):
            world.fleet.ledger.reserve(Grant("b", "team", "b", "n", (ContainerGrant("c", APP, (share,)),)))
